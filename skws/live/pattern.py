"""Patterns as standing queries: order of tuples matters, deletions do not.

A pattern's own window holds (``within ...``), else that of the stream. Where
all tuples of a result share a value, shards divide results by it; else one
shard has the whole pattern, as it has one over the windows of an expression.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from itertools import chain
from typing import TYPE_CHECKING

import numpy as np

from schema.evolve import nameable
from schema.model import Row
from skws.batches import Ints, RecordBatch
from skws.live.changing import check_stays
from skws.live.evaluator import Arrived, Evaluator, Load, MadeFromLog
from skws.live.share import Share
from skws.live.standing import ALLOWED, Standing
from skws.live.stream import Stream
from skws.live.whole_pattern import StandingWhole, in_constant_memory, refuse_unbounded_pattern
from skws.pattern_search import PatternQuery, PatternResult, PatternStream, read_query
from windows.window import CountWindow, ExpressionWindow, Unbounded, Window

if TYPE_CHECKING:  # z3 and more, for who has an expression
    from skws.live.windowed_pattern import AllWindows


class PatternKind:
    """Reads patterns in both forms; of one live search those over the same windows share them."""

    def __init__(self) -> None:
        self._windows: AllWindows | None = None

    def check(self, standing: Standing, stream: Stream) -> None:
        """Raises PatternError, QueryError; UsageError for windows that are not for it.

        Those are expressions whose windows pile up, and none at all unless asked for, or if constant memory
        does: other whole tuples would never be forgotten.
        """
        query = _read(standing, stream)
        window = _window(query, stream)
        if isinstance(window, ExpressionWindow):
            from skws.windowing.admission import admit  # noqa: PLC0415 - z3, for who has an expression

            admit(nameable(stream.schema), window, allowed=ALLOWED in standing.options)
        if isinstance(window, Unbounded) and not stream.force_unbounded:
            refuse_unbounded_pattern(standing.query, nameable(stream.schema))

    def check_change(self, standing: Standing, before: Stream, after: Stream) -> None:
        """It is made anew from the log: what a wildcard read of relations that are gone is forgotten."""
        query = _read(standing, after)
        reads = [after.schema.relations[i].name for i in query.pcea.relations]
        check_stays(reads, before.schema, after.schema)
        window = _window(query, after)
        if isinstance(window, ExpressionWindow):
            from skws.windowing.admission import check_same_windows  # noqa: PLC0415 - z3 and more

            check_same_windows(before.schema, after.schema, window)

    def evaluator(self, standing: Standing, stream: Stream, share: Share) -> Evaluator | None:
        """None on shards that have no part in it; one over an expression is answered whole by one."""
        query = _read(standing, stream)
        window = _window(query, stream)
        if isinstance(window, ExpressionWindow):
            from skws.live.windowed_pattern import (  # noqa: PLC0415 - z3 and more
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

    def begin(self, past: Iterable[Arrived]) -> Iterable[PatternResult]:
        """Take in the log; gives the results that are alive now."""
        told = iter(past)
        first = next(told, None)
        if first is None:
            return ()
        self._pattern.begin_at(first.position)
        found = self._pattern.snapshot(map(self._ordered, chain([first], told)))
        return sorted(found, key=_place)

    def take(self, arrived: Arrived) -> Iterable[PatternResult]:
        """The results that the next tuples complete.

        In which order a tuple completes several depends on what came long ago; so they are sorted.
        """
        self._pattern.begin_at(arrived.position)
        batch, positions = self._ordered(arrived)
        return sorted(self._pattern.process(batch, positions), key=_place)

    def load(self) -> Load:
        return Load(self._pattern.live_tuples, 1, self._pattern.runs)

    def _ordered(self, arrived: Arrived) -> tuple[RecordBatch, Ints | None]:
        batch = arrived.batch
        if not self._by_arrival or not len(batch):
            return batch, arrived.positions
        time = np.maximum.accumulate(np.maximum(batch.time, self._latest))
        self._latest = int(time[-1])
        return replace(batch, time=time), arrived.positions


def _place(result: PatternResult) -> tuple[int, str]:
    return result.tuples[-1].position, result.id


def _read(standing: Standing, stream: Stream) -> PatternQuery:
    return read_query(standing.query, nameable(stream.schema))


def _window(query: PatternQuery, stream: Stream) -> Window:
    return query.window or stream.window


def _forgets(standing: Standing, stream: Stream, window: Window) -> bool:
    """Whether tuples are let go although nothing expires. All are kept if it was let in without a check."""
    endless = isinstance(window, Unbounded) and not stream.force_unbounded
    return endless and in_constant_memory(standing.query, nameable(stream.schema))


def _own(query: PatternQuery, share: Share) -> Callable[[int, Row], bool]:
    root = query.root
    assert root is not None  # noqa: S101 - only asked for then
    return lambda relation, row: root.shard(relation, row, share.shards) == share.number
