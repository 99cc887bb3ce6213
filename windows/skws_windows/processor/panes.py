"""Aggregates of overlapping windows, computed once for what they share (window paper, Section 4).

Records between two cuts are a pane; every start of a window is a cut. A
window's aggregate is a fold of panes over a monoid. For invertible monoids that
is the difference of two prefixes (``prefixes``), for min and max a look-up on a
stack, for others a fold of logarithmically many panes. NULLs are left out.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, Protocol

from skws_schema.errors import UsageError, nearest
from skws_schema.model import Value
from skws_windows.guards.columns import Column
from skws_windows.processor.prefixes import CountPanes, MeanPanes, SumPanes


@dataclass(frozen=True, slots=True)
class Monoid:
    """An associative ``combine`` over lifted values; ``lower`` gives the result.

    There is no neutral element: a window without values has the result None.
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
    """Register a monoid by its name. Raises ValueError if the name is taken."""
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
    """The names of all aggregates."""
    return [*PREFIXED, *EXTREME, *_REGISTERED]


class Forest:
    """Folds of 1, 2, 4, ... neighbours: ``levels[j][i]`` is that of the 2^j elements from i * 2^j on."""

    def __init__(self, combine: Callable[[Any, Any], Any]) -> None:
        self._combine = combine
        self._levels: list[list[Any]] = [[]]

    def append(self, element: Any) -> None:
        level = 0
        while True:
            row = self._levels[level]
            row.append(element)
            if len(row) % 2:
                return
            element = self._combine(row[-2], row[-1])
            level += 1
            if level == len(self._levels):
                self._levels.append([])

    def fold(self, start: int) -> Any:
        """The fold of the elements from ``start``, at least one, to the last."""
        end, parts = len(self._levels[0]), []
        while start < end:
            # The largest tree that begins here and is complete.
            level = (start & -start).bit_length() - 1 if start else len(self._levels) - 1
            while level >= len(self._levels) or start + (1 << level) > end:
                level -= 1
            parts.append(self._levels[level][start >> level])
            start += 1 << level
        folded = parts[0]
        for part in parts[1:]:
            folded = self._combine(folded, part)
        return folded

    def drop(self, count: int) -> None:
        """Forget the first ``count`` elements; later ones are counted from 0 again."""
        rest = self._levels[0][count:]
        self._levels = [[]]
        for element in rest:
            self.append(element)


class Panes(Protocol):
    """One aggregate over one stream (of one key), record after record, a segment at a time."""

    def feed(self, column: Column | None, size: int, position: int) -> None:
        """Take the next ``size`` records, the first of which is at ``position``."""

    def begin(self, offset: int) -> Any:
        """Cut before a record of the segment; returns the value that a window that begins there keeps."""

    def value(self, begun: Any, offset: int) -> Value:
        """The aggregate from the cut of ``begun`` to a record of the segment, inclusive."""

    def forget(self, position: int) -> None:
        """Drop panes before ``position``, where no open window began."""

    def finish(self) -> None:
        """End the segment; its offsets are no longer valid."""

    def __len__(self) -> int:
        """The number of panes kept."""


class _CutPanes:
    """Panes that are cut at starts and at ends of windows; ``begun`` is a position."""

    def __init__(self) -> None:
        self._values: list[Any] = []
        self._position = 0
        self._cut = 0

    def feed(self, column: Column | None, size: int, position: int) -> None:
        assert column is not None  # noqa: S101 - only count has no field
        values, present = column.values.tolist(), column.present.tolist()
        self._values = [v if there else None for v, there in zip(values, present, strict=True)]
        self._position = position
        self._cut = 0
        del size

    def begin(self, offset: int) -> int:
        self._close(offset)
        return self._position + offset

    def finish(self) -> None:
        self._close(len(self._values))

    def _close(self, offset: int) -> None:
        """Add a pane of the records since the last cut."""
        if offset > self._cut:
            values = [v for v in self._values[self._cut : offset] if v is not None]
            if values:
                self._add(self._position + self._cut, values)
            self._cut = offset

    def _add(self, position: int, values: list[Any]) -> None:
        raise NotImplementedError


class ExtremePanes(_CutPanes):
    """Min or max: a stack of panes, each better than all panes after it."""

    def __init__(self, best: Callable[[Any], Any]) -> None:
        super().__init__()
        self._best = best
        self._positions: list[int] = []
        self._bests: list[Any] = []

    def __len__(self) -> int:
        return len(self._positions)

    def _add(self, position: int, values: list[Any]) -> None:
        value = self._best(values)
        while self._bests and self._best((value, self._bests[-1])) == value:
            # An earlier pane that is no better is covered by this one.
            self._bests.pop()
            self._positions.pop()
        self._positions.append(position)
        self._bests.append(value)

    def value(self, begun: int, offset: int) -> Value:
        self._close(offset + 1)
        place = bisect_left(self._positions, begun)
        found: Value = self._bests[place] if place < len(self._bests) else None
        return found

    def forget(self, position: int) -> None:
        place = bisect_left(self._positions, position)
        del self._positions[:place], self._bests[:place]


class MonoidPanes(_CutPanes):
    """Any monoid: panes in a forest, folded in logarithmic time."""

    def __init__(self, of: Monoid) -> None:
        super().__init__()
        self._monoid = of
        self._positions: list[int] = []
        self._forest = Forest(of.combine)

    def __len__(self) -> int:
        return len(self._positions)

    def _add(self, position: int, values: list[Any]) -> None:
        lifted = self._monoid.lift(values[0])
        for value in values[1:]:
            lifted = self._monoid.combine(lifted, self._monoid.lift(value))
        self._positions.append(position)
        self._forest.append(lifted)

    def value(self, begun: int, offset: int) -> Value:
        self._close(offset + 1)
        place = bisect_left(self._positions, begun)
        if place == len(self._positions):
            return None
        return self._monoid.lower(self._forest.fold(place))

    def forget(self, position: int) -> None:
        place = bisect_left(self._positions, position)
        if 2 * place > len(self._positions):
            # At least half at a time, so that the cost of rebuilding the rest is shared by those dropped.
            del self._positions[:place]
            self._forest.drop(place)


def panes(aggregate: Aggregate) -> Panes:
    """Empty panes of an aggregate. Raises UsageError if it is unknown."""
    match aggregate.monoid:
        case "count":
            return CountPanes()
        case "sum":
            return SumPanes()
        case "mean":
            return MeanPanes()
        case "min":
            return ExtremePanes(min)
        case "max":
            return ExtremePanes(max)
    return MonoidPanes(monoid(aggregate.monoid))
