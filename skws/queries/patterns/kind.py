"""Patterns as standing queries: order of tuples matters, deletions do not.

A pattern's own window holds (``within ...``), else that of the stream. Where
all tuples of a result share a value, shards divide results by it; else one
shard has the whole pattern, as it has one over the windows of an expression.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from itertools import chain
from typing import TYPE_CHECKING

import numpy as np

from skws.data.batch import Ints, RecordBatch
from skws.queries.evaluator import Evaluator, Load, MadeFromLog, OrderedBatch, check_stays
from skws.queries.partitioning import Part
from skws.queries.patterns import PatternQuery, PatternResult, PatternStream, read_query
from skws.queries.patterns.replayed import ReplayedPattern
from skws.queries.patterns.stream import ReadTuple
from skws.queries.patterns.whole import StandingWhole, in_constant_memory, refuse_unbounded_pattern
from skws.queries.separate import SeparateKind
from skws.spec.query import ALLOWED, Standing
from skws.spec.stream import Stream
from skws_schema.evolution import nameable
from skws_schema.model import Row
from skws_windows.window import CountWindow, ExpressionWindow, Unbounded, Window

if TYPE_CHECKING:  # z3 and more, for who has an expression
    from skws.queries.patterns.windowed import AllWindows


class PatternKind(SeparateKind):
    """Reads patterns in both forms; of one live search those over the same windows share them."""

    def __init__(self) -> None:
        self._windows: AllWindows | None = None

    def check(self, standing: Standing, stream: Stream) -> str:
        """Raises PatternError, QueryError; UsageError for windows that are not for it.

        Those are expressions whose windows pile up, and none at all unless asked for, or if constant memory
        does: other whole tuples would never be forgotten.
        """
        query = _read(standing, stream)
        window = _window(query, stream)
        if isinstance(window, ExpressionWindow):
            from skws.queries.windowed.check_overlap import admit  # noqa: PLC0415 - z3, for who has an expression

            return admit(nameable(stream.schema), window, allowed=ALLOWED in standing.options)
        if isinstance(window, Unbounded) and not stream.may_grow:
            refuse_unbounded_pattern(standing.query, nameable(stream.schema))
        return ""

    def window(self, standing: Standing, stream: Stream) -> Window:
        return _window(_read(standing, stream), stream)

    def check_change(self, standing: Standing, before: Stream, after: Stream) -> None:
        """It is made anew from the log: what a wildcard read of relations that are gone is forgotten."""
        query = _read(standing, after)
        reads = [after.schema.relations[i].name for i in query.pcea.relations]
        check_stays(reads, before.schema, after.schema)
        window = _window(query, after)
        if isinstance(window, ExpressionWindow):
            from skws.queries.windowed.check_overlap import check_same_windows  # noqa: PLC0415 - z3 and more

            check_same_windows(before.schema, after.schema, window)

    def evaluator(self, standing: Standing, stream: Stream, share: Part) -> Evaluator | None:
        """None on shards that have no part in it; one over an expression is answered whole by one."""
        query = _read(standing, stream)
        window = _window(query, stream)
        if isinstance(window, ExpressionWindow):
            from skws.queries.patterns.windowed import (  # noqa: PLC0415 - z3 and more
                AllWindows,
                StandingWindowedPattern,
            )

            if not share.owns(standing.name):
                return None
            self._windows = self._windows or AllWindows()
            return StandingWindowedPattern(query, stream, window, self._windows)
        if _forgets(standing, stream, window):
            owned = share.whole or share.owns(standing.name)
            return StandingWhole(standing, stream, query) if owned else None
        if stream.finite:
            return FinitePattern(query, stream)
        if share.whole or (query.root is None and share.owns(standing.name)):
            return StandingPattern(query, stream, None)
        return None if query.root is None else StandingPattern(query, stream, _own(query, share))


class StandingPattern(MadeFromLog):
    """One pattern over the stream; ``own``: which tuples its results here are made of, None for all."""

    def __init__(self, query: PatternQuery, stream: Stream, own: Callable[[int, Row], bool] | None) -> None:
        self.keeps = _window(query, stream)
        # Under a count window the stream comes in any order: then time stands still where it would go back.
        self._by_arrival = stream.by_count and not isinstance(self.keeps, CountWindow)
        self._latest = np.iinfo(np.int64).min
        self._pattern = PatternStream(query, nameable(stream.schema), self.keeps, own=own)

    def begin(self, past: Iterable[OrderedBatch]) -> Iterable[PatternResult]:
        """Take in the log; gives the results that are alive now."""
        told = iter(past)
        first = next(told, None)
        if first is None:
            return ()
        self._pattern.seek(first.position)
        found = self._pattern.snapshot(map(self._ordered, chain([first], told)))
        return sorted(found, key=_place)

    def take(self, arrived: OrderedBatch) -> Iterable[PatternResult]:
        """The results that the next tuples complete.

        In which order a tuple completes several depends on what came long ago; so they are sorted.
        """
        self._pattern.seek(arrived.position)
        batch, positions = self._ordered(arrived)
        return sorted(self._pattern.process(batch, positions), key=_place)

    def load(self) -> Load:
        return Load(self._pattern.live_tuples, 1, self._pattern.runs)

    def _ordered(self, arrived: OrderedBatch) -> tuple[RecordBatch, Ints | None]:
        batch = arrived.batch
        if not self._by_arrival or not len(batch):
            return batch, arrived.positions
        time = np.maximum.accumulate(np.maximum(batch.time, self._latest))
        self._latest = int(time[-1])
        return replace(batch, time=time), arrived.positions


class FinitePattern(MadeFromLog):
    """One pattern over a stream that ends: by columns as long as that is quick. Nothing comes to it later.

    What a tuple completes is given as it is found, in no order: it may be more than memory holds.
    """

    def __init__(self, query: PatternQuery, stream: Stream) -> None:
        self.keeps = _window(query, stream)
        self._replayed = ReplayedPattern(query, stream.schema, self.keeps)

    def begin(self, past: Iterable[OrderedBatch]) -> Iterable[PatternResult]:  # noqa: ARG002 - there is none
        return ()

    def take(self, arrived: OrderedBatch) -> Iterator[PatternResult]:
        return (result for _, result in self._replayed.results(self._tuples(arrived)))

    def count(self, arrived: OrderedBatch) -> int:
        return sum(self._replayed.count(self._tuples(arrived)))

    def load(self) -> Load:
        return Load(self._replayed.stream.live_tuples, 1, self._replayed.stream.runs)

    def _tuples(self, arrived: OrderedBatch) -> Iterator[ReadTuple]:
        return self._replayed.stream.tuples(arrived.batch, arrived.positions)


def _place(result: PatternResult) -> tuple[int, str]:
    return result.tuples[-1].position, result.id


def _read(standing: Standing, stream: Stream) -> PatternQuery:
    return read_query(standing.query, nameable(stream.schema))


def _window(query: PatternQuery, stream: Stream) -> Window:
    return stream.window if stream.overrides else query.window or stream.window


def _forgets(standing: Standing, stream: Stream, window: Window) -> bool:
    """Whether tuples are let go although nothing expires. All are kept if it was let in without a check."""
    endless = isinstance(window, Unbounded) and not stream.may_grow
    return endless and in_constant_memory(standing.query, nameable(stream.schema))


def _own(query: PatternQuery, share: Part) -> Callable[[int, Row], bool]:
    root = query.root
    assert root is not None  # noqa: S101 - only asked for then
    return lambda relation, row: root.shard(relation, row, share.shards) == share.number
