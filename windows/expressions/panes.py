"""Aggregates of overlapping windows, computed once for what they share (window paper, Section 4).

Records between two cuts are a pane; every start of a window is a cut. A
window's aggregate is a fold of panes. For invertible monoids that is the
difference of two prefixes, for min and max a look-up on a stack, for others a
fold of logarithmically many panes.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable
from typing import Any, Protocol

from schema.model import Value
from windows.expressions.columns import Column
from windows.expressions.forest import Forest
from windows.expressions.monoids import Aggregate, Monoid, monoid
from windows.expressions.prefixes import CountPanes, MeanPanes, SumPanes


class Panes(Protocol):
    """One aggregate over one stream (of one key), record after record, a segment at a time."""

    def feed(self, column: Column | None, size: int, position: int) -> None:
        """The next ``size`` records, the first of which stands at ``position``."""

    def begin(self, offset: int) -> Any:
        """Cut before a record of the segment; gives what a window that begins there has to remember."""

    def value(self, begun: Any, offset: int) -> Value:
        """The aggregate from where ``begun`` was given up to a record of the segment, that included."""

    def forget(self, position: int) -> None:
        """No window that began before ``position`` is open any more."""

    def finish(self) -> None:
        """The segment ends; offsets into it mean nothing from now on."""

    def __len__(self) -> int:
        """Panes kept."""


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
        """Make a pane of the records since the last cut."""
        if offset > self._cut:
            values = [v for v in self._values[self._cut : offset] if v is not None]
            if values:
                self._add(self._position + self._cut, values)
            self._cut = offset

    def _add(self, position: int, values: list[Any]) -> None:
        raise NotImplementedError


class ExtremePanes(_CutPanes):
    """Min or max: a stack of panes of which each is better than all after it would be without it."""

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
            # A pane that is no better speaks for the records from its own beginning on.
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
            # Half of them at a time: the cost of building the rest anew is shared by those dropped.
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
