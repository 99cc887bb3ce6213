"""Aggregates of overlapping windows, which share the work on common records (window paper, Section 4).

A pane consists of the records between two cuts; every start of a window is a cut. A window's aggregate is a
fold of panes over a monoid. For invertible monoids it is the difference of two prefixes, for min and max a
look-up on a stack, for others a fold of a logarithmic number of panes. NULLs are left out.

Sums of whole numbers are exact. A sum of doubles keeps its rounding errors (compensated summation), so the
sum of a small window after large values is as exact as if it had been computed alone.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, Final, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

from skws_schema.errors import UsageError, nearest
from skws_schema.model import Value
from skws_windows.guards.letters import FieldColumn


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
    """The combined count, mean and sum of squared deviations of two parts, without loss by cancellation."""
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


def unregister(name: str) -> None:
    """Forget a registered monoid."""
    del _REGISTERED[name]


PREFIXED: Final = ("count", "sum", "mean")
"""Invertible: a window's aggregate is the difference of two prefixes."""
EXTREME: Final = ("min", "max")
"""Aggregates on a stack of panes."""

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
        registered = names()
        raise UsageError(
            f"no aggregate {name!r}; expected one of {', '.join(registered)}{nearest(name, registered)}"
        )
    return _REGISTERED[name]


def names() -> list[str]:
    return [*PREFIXED, *EXTREME, *_REGISTERED]


class FoldLevels:
    """Folds of 1, 2, 4, ... neighbours: ``levels[j][i]`` is the fold of the 2^j elements from i * 2^j on."""

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
        result = parts[0]
        for part in parts[1:]:
            result = self._combine(result, part)
        return result

    def drop(self, count: int) -> None:
        """Forget the first ``count`` elements; later ones are counted from 0 again."""
        elements = self._levels[0][count:]
        self._levels = [[]]
        for element in elements:
            self.append(element)


class Panes(Protocol):
    """One aggregate over the stream of one key, a segment at a time."""

    def feed(self, column: FieldColumn | None, size: int, position: int) -> None:
        """Take the next ``size`` records, the first of which is at ``position``."""

    def begin(self, offset: int) -> Any:
        """Cut before a record of the segment; returns the mark of a window that begins there."""

    def value(self, mark: Any, offset: int) -> Value:
        """The aggregate from the cut of ``mark`` to a record of the segment, inclusive."""

    def forget(self, position: int) -> None:
        """Drop panes before ``position``, in which no open window began."""

    def finish(self) -> None:
        """End the segment; its offsets are no longer valid."""

    def __len__(self) -> int:
        """The number of panes."""


class _CutPanes:
    """Panes cut at starts and at ends of windows; ``mark`` is a position."""

    def __init__(self) -> None:
        self._values: list[Any] = []
        self._position = 0
        self._cut = 0

    def feed(self, column: FieldColumn | None, size: int, position: int) -> None:
        assert column is not None  # noqa: S101 - only count has no field
        values, present = column.values.tolist(), column.present.tolist()
        self._values = [v if is_present else None for v, is_present in zip(values, present, strict=True)]
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
    """Min or max: a stack of panes, each with a better value than all panes after it."""

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
            # This pane replaces earlier ones that are not better.
            self._bests.pop()
            self._positions.pop()
        self._positions.append(position)
        self._bests.append(value)

    def value(self, mark: int, offset: int) -> Value:
        self._close(offset + 1)
        index = bisect_left(self._positions, mark)
        best: Value = self._bests[index] if index < len(self._bests) else None
        return best

    def forget(self, position: int) -> None:
        index = bisect_left(self._positions, position)
        del self._positions[:index], self._bests[:index]


class MonoidPanes(_CutPanes):
    """Any monoid: levels of folds, so that a window takes logarithmic time."""

    def __init__(self, of: Monoid) -> None:
        super().__init__()
        self._monoid = of
        self._positions: list[int] = []
        self._forest = FoldLevels(of.combine)

    def __len__(self) -> int:
        return len(self._positions)

    def _add(self, position: int, values: list[Any]) -> None:
        result = self._monoid.lift(values[0])
        for value in values[1:]:
            result = self._monoid.combine(result, self._monoid.lift(value))
        self._positions.append(position)
        self._forest.append(result)

    def value(self, mark: int, offset: int) -> Value:
        self._close(offset + 1)
        index = bisect_left(self._positions, mark)
        if index == len(self._positions):
            return None
        return self._monoid.lower(self._forest.fold(index))

    def forget(self, position: int) -> None:
        index = bisect_left(self._positions, position)
        if 2 * index > len(self._positions):
            # At least half at a time, which amortises the cost of rebuilding the rest.
            del self._positions[:index]
            self._forest.drop(index)


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


_MOST_INT_SUM: Final = 1 << 62


class CountPanes:
    """The number of records, or of those in which a field is not NULL."""

    def __init__(self) -> None:
        self._prefix: list[int] = [0]
        self._column: FieldColumn | None = None
        self._position = 0

    def __len__(self) -> int:
        return 0

    def feed(self, column: FieldColumn | None, size: int, position: int) -> None:
        self._column = column
        self._position = position
        if column is not None:
            self._prefix = list(accumulate(column.present[:size].tolist(), initial=self._prefix[-1]))

    def begin(self, offset: int) -> int:
        return self._position + offset if self._column is None else self._prefix[offset]

    def value(self, mark: int, offset: int) -> Value:
        if self._column is None:
            return self._position + offset + 1 - mark
        return self._prefix[offset + 1] - mark

    def forget(self, position: int) -> None:
        """Only the totals are kept."""

    def finish(self) -> None:
        self._prefix = [self._prefix[-1]]


_SCALE: Final = 2.0**40
"""Sums of doubles are kept divided by this power of two: an infinite prefix would spoil all later sums."""

# A prefix: the number of values, their sum, and its rounding error; the last two of doubles by ``_SCALE``.
Total: TypeAlias = tuple[int, int | float, float]


class SumPanes:
    """The sum of a field's values; None if there are none."""

    def __init__(self) -> None:
        self._totals: Total = (0, 0, 0.0)
        # Arrays or lists; in either, element i belongs to the prefix before record i.
        self._counts: Any = [0]
        self._sums: Any = [0]
        self._errors: Any = [0.0]
        self._is_list = True

    def __len__(self) -> int:
        return 0

    def feed(self, column: FieldColumn | None, size: int, position: int) -> None:
        assert column is not None  # noqa: S101 - only count has no field
        del size, position
        counts = np.empty(len(column.present) + 1, dtype=np.int64)
        counts[0] = self._totals[0]
        np.cumsum(column.present, out=counts[1:])
        counts[1:] += self._totals[0]
        self._counts, self._is_list = counts, False
        values = np.where(column.present, column.values, 0)
        if values.dtype == np.float64:
            self._add_doubles(values / _SCALE)
        else:
            self._add_whole(values)

    def _add_doubles(self, values: npt.NDArray[np.float64]) -> None:
        sums = np.cumsum(np.concatenate([[float(self._totals[1])], values]))
        previous, following = sums[:-1], sums[1:]
        # Knuth's two-sum: the exact loss of each addition.
        rounded = following - previous
        losses = (previous - (following - rounded)) + (values - rounded)
        self._sums = sums
        self._errors = np.cumsum(np.concatenate([[self._totals[2]], losses]))

    def _add_whole(self, values: npt.NDArray[Any]) -> None:
        initial = int(self._totals[1])
        if values.dtype != object and float(np.abs(values).max(initial=0)) * len(values) < _MOST_INT_SUM:
            self._sums = [initial + s for s in [0, *np.cumsum(values).tolist()]]
        else:
            self._sums = list(accumulate((int(v) for v in values.tolist()), initial=initial))
        self._errors = [0.0] * len(self._sums)

    def begin(self, offset: int) -> Total:
        if not self._is_list:
            self._to_lists()
        return self._counts[offset], self._sums[offset], self._errors[offset]

    def _to_lists(self) -> None:
        """Convert to lists when a window begins: elements are read faster; most segments need no lists."""
        self._counts, self._sums, self._errors = (
            part if isinstance(part, list) else part.tolist()
            for part in (self._counts, self._sums, self._errors)
        )
        self._is_list = True

    def total(self, mark: Total, offset: int) -> tuple[int, int | float]:
        """The number of values between two prefixes, and their sum, of doubles divided by ``_SCALE``."""
        count, total, error = self.begin(offset + 1)
        start_total = mark[1]
        difference = total - start_total
        if error != mark[2] or difference.__class__ is float:
            rounded = difference - total
            loss = (total - (difference - rounded)) - (start_total + rounded)
            difference += loss + (error - mark[2])
        return count - mark[0], difference

    def value(self, mark: Total, offset: int) -> Value:
        count, total = self.total(mark, offset)
        if not count:
            return None
        return total * _SCALE if isinstance(total, float) else total

    def forget(self, position: int) -> None:
        """Only the totals are kept."""

    def finish(self) -> None:
        last = len(self._counts) - 1
        self._totals = (int(self._counts[last]), _plain(self._sums[last]), float(self._errors[last]))
        self._counts, self._sums, self._errors = [self._totals[0]], [self._totals[1]], [self._totals[2]]
        self._is_list = True


class MeanPanes(SumPanes):
    """The mean of a field's values; None if there are none."""

    def value(self, mark: Total, offset: int) -> Value:
        count, total = self.total(mark, offset)
        if not count:
            return None
        return total / count * _SCALE if isinstance(total, float) else total / count


def _plain(number: Any) -> int | float:
    """A NumPy number as a Python number."""
    return number if isinstance(number, int) else float(number)
