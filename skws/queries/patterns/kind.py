"""Patterns as queries of a session: the order of tuples matters, deletions do not.

A pattern's own window holds (``within ...``), else that of the stream. Where
all tuples of a result share a value, shards divide the results by it; else one
shard has the whole pattern, as for a window expression.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable

from skws.queries.evaluator import Evaluator
from skws.queries.operator import Operator, SeparateKind, check_stays
from skws.queries.partitioning import Part
from skws.queries.patterns.replayed import ReplayedPattern
from skws.queries.patterns.stream import PatternStream
from skws.queries.patterns.text import PatternQuery, read_query
from skws.queries.patterns.whole import WholePatternEvaluator, in_constant_memory, refuse_unbounded_pattern
from skws.queries.stream_state import StreamState
from skws.spec.query import ALLOWED, Query
from skws.spec.stream import Stream
from skws_schema.evolution import nameable
from skws_schema.model import Row
from skws_windows.window import ExpressionWindow, Unbounded, Window


class PatternKind(SeparateKind):
    """Patterns in both forms. Those over the same window expression share its windows."""

    def check(self, query: Query, stream: Stream) -> str:
        """Raises PatternError, QueryError; UsageError for a window that does not fit.

        These are expressions whose windows pile up; and no window, unless the
        stream may grow or constant memory is enough: all tuples would be kept.
        """
        pattern, window = _read(query, stream)
        if isinstance(window, ExpressionWindow):
            from skws.queries.windowed.plan import admit  # noqa: PLC0415 - z3, only for window expressions

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
            from skws.queries.windowed.plan import check_same_windows  # noqa: PLC0415 - z3, only for window expressions

            check_same_windows(before.schema, after.schema, window)

    def group(self, query: Query, state: StreamState) -> Hashable | None:
        """A pattern by itself; one over a window expression with others that begin at the same position."""
        group, window = super().group(query, state), _read(query, state.stream)[1]
        shared = group is not None and isinstance(window, ExpressionWindow)
        return (window, state.order.next) if shared else group

    def operator(self, query: Query, state: StreamState) -> Operator:
        window = _read(query, state.stream)[1]
        if isinstance(window, ExpressionWindow):
            from skws.queries.windowed.pattern import WindowedPatterns  # noqa: PLC0415 - z3, only for window expressions

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
            return ReplayedPattern(pattern, stream.schema, window)
        return PatternStream(pattern, nameable(stream.schema), window, own=_own(pattern, part))


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
