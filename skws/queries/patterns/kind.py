"""Patterns as queries of a session: the order of tuples matters, deletions do not.

A pattern's own window holds (``within ...``), else that of the stream. Where
all tuples of a result share a value, shards divide the results by it; else one
shard has the whole pattern, as for a window expression.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator
from dataclasses import replace
from itertools import chain

import numpy as np

from skws.data.batch import Ints, RecordBatch
from skws.queries.evaluator import Evaluator, Load, OrderedBatch
from skws.queries.operator import Operator, SeparateKind, check_stays
from skws.queries.partitioning import Part
from skws.queries.patterns import PatternQuery, PatternResult, PatternStream, read_query
from skws.queries.patterns.replayed import ReplayedPattern
from skws.queries.patterns.stream import ReadTuple
from skws.queries.patterns.whole import WholePatternEvaluator, in_constant_memory, refuse_unbounded_pattern
from skws.queries.stream_state import StreamState
from skws.spec.query import ALLOWED, Query
from skws.spec.stream import Stream
from skws_schema.evolution import nameable
from skws_schema.model import Row
from skws_windows.window import CountWindow, ExpressionWindow, Unbounded, Window


class PatternKind(SeparateKind):
    """Patterns in both forms. Those over the same window expression share its windows."""

    def check(self, query: Query, stream: Stream) -> str:
        """Raises PatternError, QueryError; UsageError for a window that does not fit.

        These are expressions whose windows pile up; and no window, unless the
        stream may grow or constant memory is enough: all tuples would be kept.
        """
        pattern, window = _read(query, stream)
        if isinstance(window, ExpressionWindow):
            from skws.queries.windowed.check_overlap import admit  # noqa: PLC0415 - z3, for who has an expression

            return admit(nameable(stream.schema), window, allowed=ALLOWED in query.options)
        if isinstance(window, Unbounded) and not stream.may_grow:
            refuse_unbounded_pattern(pattern.text, nameable(stream.schema))
        return ""

    def window(self, query: Query, stream: Stream) -> Window:
        return _read(query, stream)[1]

    def check_change(self, query: Query, before: Stream, after: Stream) -> None:
        """A pattern is rebuilt from the log, without the tuples of removed relations that ``*`` read."""
        pattern, window = _read(query, after)
        reads = [after.schema.relations[i].name for i in pattern.pcea.relations]
        check_stays(reads, before.schema, after.schema)
        if isinstance(window, ExpressionWindow):
            from skws.queries.windowed.check_overlap import check_same_windows  # noqa: PLC0415 - z3 and more

            check_same_windows(before.schema, after.schema, window)

    def group(self, query: Query, state: StreamState) -> Hashable | None:
        """A pattern by itself; one over a window expression with others that begin at the same position."""
        group, window = super().group(query, state), _read(query, state.stream)[1]
        shared = group is not None and isinstance(window, ExpressionWindow)
        return (window, state.order.next) if shared else group

    def operator(self, query: Query, state: StreamState) -> Operator:
        window = _read(query, state.stream)[1]
        if isinstance(window, ExpressionWindow):
            from skws.queries.windowed.pattern import WindowedPatterns  # noqa: PLC0415 - z3 and more

            return WindowedPatterns(state, window)
        return super().operator(query, state)

    def owns(self, query: Query, stream: Stream, part: Part) -> bool:
        """All parts have results of a pattern whose tuples share a value; else one has it whole."""
        if part.whole:
            return True
        pattern, window = _read(query, stream)
        whole = (
            pattern.root is None or isinstance(window, ExpressionWindow) or _forgets(pattern, window, stream)
        )
        return part.owns(query.name) if whole else True

    def evaluator(self, query: Query, stream: Stream, part: Part) -> Evaluator:
        pattern, window = _read(query, stream)
        if _forgets(pattern, window, stream):
            return WholePatternEvaluator(pattern, stream)
        if stream.finite:
            return FinitePattern(pattern, stream, window)
        return PatternEvaluator(pattern, stream, window, _own(pattern, part))


class PatternEvaluator(Evaluator):
    """Answers one pattern. ``own``: the tuples that its results may have; None for all."""

    def __init__(
        self, query: PatternQuery, stream: Stream, window: Window, own: Callable[[int, Row], bool] | None
    ) -> None:
        self.keeps = window
        # Under a count window records come in order of arrival: a time before the latest counts as it.
        self._by_arrival = stream.by_count and not isinstance(window, CountWindow)
        self._latest = np.iinfo(np.int64).min
        self._pattern = PatternStream(query, nameable(stream.schema), window, own=own)

    def begin(self, past: Iterable[OrderedBatch]) -> Iterable[PatternResult]:
        """Process the log; gives the results that are alive now."""
        told = iter(past)
        first = next(told, None)
        if first is None:
            return ()
        self._pattern.seek(first.position)
        found = self._pattern.snapshot(map(self._ordered, chain([first], told)))
        return sorted(found, key=_place)

    def take(self, arrived: OrderedBatch) -> Iterable[PatternResult]:
        """The results that the next tuples complete.

        The order of those that one tuple completes depends on tuples long gone, so they are sorted.
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


class FinitePattern(Evaluator):
    """Answers one pattern over a stream that ends: by columns as long as that is fast.

    The results that a tuple completes are given as they are found, unordered: they may exceed memory.
    """

    def __init__(self, query: PatternQuery, stream: Stream, window: Window) -> None:
        self.keeps = window
        self._replayed = ReplayedPattern(query, stream.schema, window)

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


def _read(query: Query, stream: Stream) -> tuple[PatternQuery, Window]:
    """A pattern, and the window that holds for it."""
    pattern = read_query(query.text, nameable(stream.schema))
    return pattern, stream.window if stream.overrides else pattern.window or stream.window


def _forgets(pattern: PatternQuery, window: Window, stream: Stream) -> bool:
    """Whether tuples are forgotten although nothing expires; never where memory may grow."""
    endless = isinstance(window, Unbounded) and not stream.may_grow
    return endless and in_constant_memory(pattern.text, nameable(stream.schema))


def _own(query: PatternQuery, part: Part) -> Callable[[int, Row], bool] | None:
    root = query.root
    if root is None or part.whole:
        return None
    return lambda relation, row: root.shard(relation, row, part.shards) == part.number
