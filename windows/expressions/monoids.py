"""What windows are aggregated by: monoids over the values of a field, NULLs left out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from schema.errors import UsageError, nearest
from schema.model import Value


@dataclass(frozen=True, slots=True)
class Monoid:
    """An associative ``combine`` on what ``lift`` makes of a value; ``lower`` makes the result of it.

    Nothing is combined with nothing: a window without values has the result None.
    ``numeric``: only for fields of numbers.
    """

    name: str
    lift: Callable[[Any], Any]
    combine: Callable[[Any, Any], Any]
    lower: Callable[[Any], Value]
    numeric: bool = False


def _first(a: Any, b: Any) -> Any:  # noqa: ARG001 - one of two
    return a


def _last(a: Any, b: Any) -> Any:  # noqa: ARG001
    return b


def _same(value: Any) -> Any:
    return value


def _moments(a: tuple[int, float, float], b: tuple[int, float, float]) -> tuple[int, float, float]:
    """Count, mean and sum of squared deviations of two parts together, without loss by cancellation."""
    count = a[0] + b[0]
    apart = b[1] - a[1]
    mean = a[1] + apart * b[0] / count
    return count, mean, a[2] + b[2] + apart * apart * a[0] * b[0] / count


_REGISTERED: dict[str, Monoid] = {}


def register(monoid: Monoid) -> Monoid:
    """Make a monoid known by its name. Raises ValueError if another has it."""
    if monoid.name in _REGISTERED or monoid.name in PREFIXED or monoid.name in EXTREME:
        raise ValueError(f"there is a monoid {monoid.name!r} already")
    _REGISTERED[monoid.name] = monoid
    return monoid


PREFIXED: Final = ("count", "sum", "mean")
"""Invertible: a window's aggregate is the difference of two prefixes."""
EXTREME: Final = ("min", "max")
"""Kept on a stack of panes."""

register(Monoid("first", _same, _first, _same))
register(Monoid("last", _same, _last, _same))
register(
    Monoid("variance", lambda v: (1, float(v), 0.0), _moments, lambda m: float(m[2] / m[0]), numeric=True)
)


@dataclass(frozen=True, slots=True)
class Aggregate:
    """An aggregate of a field; ``count`` without a field counts records."""

    monoid: str
    field: str | None = None

    def __str__(self) -> str:
        return self.monoid if self.field is None else f"{self.monoid}({self.field})"


def monoid(name: str) -> Monoid:
    """The registered monoid of a name. Raises UsageError with the nearest name."""
    if name not in _REGISTERED:
        known = names()
        raise UsageError(f"no aggregate {name!r}; expected one of {', '.join(known)}{nearest(name, known)}")
    return _REGISTERED[name]


def names() -> list[str]:
    """Every aggregate that can be asked for."""
    return [*PREFIXED, *EXTREME, *_REGISTERED]
