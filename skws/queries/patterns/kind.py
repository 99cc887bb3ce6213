"""Patterns as queries of a session: the order of tuples matters, deletions do not.

A pattern's own window holds (``within ...``), else that of the stream. Where
all tuples of a result share a value, shards divide the results by it; else one
shard has the whole pattern, as for a window expression. A stream that ends is
matched by columns as long as that is fast, then by the automaton.

Without a window, patterns with whole tuples over endless streams take constant
memory. Such a match has one tuple of an endless stream, which comes after all
tuples of finite streams that it joins. Synopses find matches by the positions of
their tuples. Tuples of finite streams and of the current instant are
remembered, for later matches and for names.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from itertools import islice
from typing import Any, Final

import numpy as np

from skws.data.batch import BATCH
from skws.queries.evaluator import Evaluator, Load, OrderedBatch, SynopsesEvaluator
from skws.queries.keywords.memory_guard import FORCE, ends, lasting
from skws.queries.operator import Operator, SeparateKind, StreamState, check_stays
from skws.queries.partitioning import Part
from skws.queries.patterns.normal_form import choices_of, pattern_query, pattern_verdict
from skws.queries.patterns.result import PatternResult
from skws.queries.patterns.selected import SelectedRun, by_positions
from skws.queries.patterns.stream import History, PatternStream, ReadTuple, formed, marks_of
from skws.queries.patterns.text import PatternQuery, is_formal, read_query
from skws.queries.sql import reasons
from skws.spec.query import ALLOWED, Query, Stream
from skws_bounds.names import attribute_of
from skws_bounds.verdict import check
from skws_patterns.columnar import (
    MOST_RESULTS,
    ColumnarEvaluator,
    Found,
    TooManyRunsError,
    Tuples,
    column_plan,
)
from skws_patterns.evaluator import Valuation
from skws_patterns.hcq import parse_conjunctive_query
from skws_schema.errors import PatternError, UsageError
from skws_schema.evolution import nameable
from skws_schema.model import Row, Schema
from skws_windows.window import FOREVER, ExpressionWindow, Unbounded, Window

_MOST_TRIED: Final = 100
"""The most attributes of a relation to try."""


def refuse_whole_tuples(text: str, schema: Schema) -> None:
    """Raises UsageError with the conditions that fail, and the attributes that could be shown."""
    raise UsageError("\n".join(_refusal(text, schema)))


def _refusal(text: str, schema: Schema) -> Iterator[str]:
    yield f"pattern {text!r}: without a window every tuple that it reads is kept for ever"
    shown: tuple[str, ...] | None = None
    try:
        union = pattern_query(text, schema)
        yield from reasons(union, pattern_verdict(text, schema))
        shown = showable(text, schema)
    except PatternError as error:
        yield f"  {error}"
    yield "any of these would make it bounded:"
    if shown is not None:
        yield f"  - show attributes instead of whole tuples (--select {','.join(shown) or repr('')})"
    yield "  - give it a window of its own (within 10 minutes), or all of them one (--window '10 minutes')"
    yield f"{FORCE} keeps all tuples for as long as there is memory"


def showable(text: str, schema: Schema) -> tuple[str, ...] | None:
    """The attributes that a pattern can show in constant memory; None if not even a count is possible.

    Raises PatternError.
    """
    union = pattern_query(text, schema, ())
    if not check(union).bounded:
        return None
    aliases = [{s.alias for s in q.streams} for q in union.queries]
    streams = [s for s in union.queries[0].streams if all(s.alias in known for known in aliases)]
    found: list[str] = []
    for stream in streams:
        for attribute in schema.relation(stream.relation).attributes[:_MOST_TRIED]:
            name = str(attribute_of(schema, stream, attribute.name))
            try:
                if check(pattern_query(text, schema, (*found, name))).bounded:
                    found.append(name)
            except UsageError:
                continue  # an alternative has no such attribute
    return tuple(found)


def refuse_unbounded_pattern(text: str, schema: Schema) -> None:
    """Raises UsageError if the matches of a pattern, with whole tuples, need more than constant memory."""
    if not _bounded(text, schema):
        refuse_whole_tuples(text, schema)
    for why in _excluded(text, schema):
        raise UsageError(f"pattern {text!r}: without a window nothing expires, and {why}")


def in_constant_memory(text: str, schema: Schema) -> bool:
    """Whether ``refuse_unbounded_pattern`` accepts a pattern."""
    return _bounded(text, schema) and not any(_excluded(text, schema))


def _bounded(text: str, schema: Schema) -> bool:
    try:
        return pattern_verdict(text, schema).bounded is True
    except PatternError:
        return False  # not a select-project-join


def _excluded(text: str, schema: Schema) -> Iterator[str]:
    """Reasons that the theorem does not cover."""
    pattern = by_positions(text, schema)
    if pattern.until is None:
        yield "it reads a finite stream, but no max of its time says when it ends"
    for relation in (schema.relations[number] for number in sorted(pattern.feeds)):
        if relation.table:
            yield f"its matches show rows of the table {relation.name}: show attributes instead (--select)"
        if relation.key and not lasting(relation):
            yield (
                f"the name of each {relation.name} tuple depends on whether it replaced another of its key, "
                "and there is no bound on keys"
            )


class WholePatternEvaluator(SynopsesEvaluator):
    """Answers one pattern; its results are given with their last tuple."""

    def __init__(self, query: PatternQuery, stream: Stream) -> None:
        schema = nameable(stream.schema)
        self._query = query
        self._pattern = by_positions(query.text, schema)
        self._run = SelectedRun(self._pattern)
        self._labels = _labels(query.text, schema)
        self._order = PatternStream(query, schema, Unbounded())
        self._schema = schema
        self._history = self._no_history()
        self._endless = {n for n in self._pattern.feeds if not ends(schema.relations[n])}
        self._passing: list[int] = []  # positions of their remembered tuples
        self._now = -FOREVER

    def take(self, arrived: OrderedBatch) -> Iterator[PatternResult]:
        """Raises BadRecordsError if a row exceeds a bound of the schema; deletions are left out."""
        self._order.seek(arrived.position)
        for position, relation, row, time in self._order.tuples(arrived.batch, arrived.positions):
            self._forget(time)
            self._remember(position, relation, row, time)
            found = self._run.completed(relation, time, (*row, position))
            results = (self._result(choice, positions) for (choice, *positions), _ in found)
            yield from sorted(results, key=lambda result: result.id)

    def _forget(self, time: int) -> None:
        """Forget tuples of endless streams before this instant, once finite ones have ended."""
        if time > self._now and self._pattern.until is not None and time >= self._pattern.until:
            self._history.drop(self._passing)
            self._passing.clear()

    def _remember(
        self, position: int, relation: int, row: Row, time: int, successor: bool | None = None
    ) -> None:
        self._now = time
        self._history.add(position, relation, row, time, time, successor)
        if relation in self._endless:
            self._passing.append(position)

    def load(self) -> Load:
        return Load(len(self._history), 1, self._entries)

    def _result(self, choice: int, positions: list[int]) -> PatternResult:
        marks = zip(positions, self._labels[choice], strict=True)
        return formed(self._query.text, self._history, marks_of(tuple(marks)), None)

    @property
    def _entries(self) -> int:
        return self._run.entries

    def _state(self) -> Any:
        return [list(self._history.tuples()), self._run.snapshot()]

    def _go_on(self, state: Any) -> None:
        tuples, run = state
        self._history = self._no_history()
        self._passing = []
        for position, relation, row, time, successor in tuples:
            self._remember(position, relation, tuple(row), time, successor)
        self._run.restore(run)

    def _no_history(self) -> History:
        return History(self._schema, Unbounded(), self._query.keywords)


def _labels(text: str, schema: Schema) -> list[list[frozenset[str]]]:
    """For each choice, the label of each stream: its variable, or the number of its atom."""
    if is_formal(text):
        return [[frozenset({str(n)}) for n in range(len(parse_conjunctive_query(text, schema).atoms))]]
    return [[frozenset({x.variable}) for x in letters] for letters in choices_of(text, schema, ()).letters]


_ROWS: Final = 4096  # results converted to Python objects at a time


class ReplayedPattern(Evaluator):
    """Evaluates a pattern; use either ``take`` or ``count``.

    The results that a tuple completes are given as they are found, unordered:
    they may exceed memory. With more than ``most_results`` in a batch, the automaton
    finds them one by one.
    """

    def __init__(
        self, query: PatternQuery, schema: Schema, window: Window, most_results: int = MOST_RESULTS
    ) -> None:
        self._stream = PatternStream(query, schema, window)
        self.keeps = window
        plan = column_plan(query.pcea)
        self._labels = [frozenset({label}) for label in plan.labels] if plan else []
        self._columns = ColumnarEvaluator(plan, window, most_results) if plan else None

    def take(self, arrived: OrderedBatch) -> Iterator[PatternResult]:
        for batch in self._batches(arrived):
            found = self._found(batch)
            if found is None:
                for _ in self._stream.completing(batch):
                    yield from self._stream.results()
            else:
                yield from self._formed(batch, found)

    def count(self, arrived: OrderedBatch) -> int:
        """The number of results, which are not formed."""
        total = 0
        for batch in self._batches(arrived):
            found = self._found(batch)
            if found is None:
                total += sum(self._stream.how_many() for _ in self._stream.completing(batch, remember=False))
            else:
                total += len(found)
        return total

    def load(self) -> Load:
        return self._stream.load()

    def _batches(self, arrived: OrderedBatch) -> Iterator[list[ReadTuple]]:
        self._stream.seek(arrived.position)
        tuples = self._stream.tuples(arrived.batch, arrived.positions)
        while batch := [*islice(tuples, BATCH)]:
            yield batch

    def _found(self, batch: Sequence[ReadTuple]) -> Found | None:
        """The results that a batch completes; None if the automaton is to find them."""
        if self._columns is None:
            return None
        try:
            return self._columns.take(
                Tuples(
                    np.array([taken.position for taken in batch], dtype=np.int64),
                    np.array([taken.relation for taken in batch], dtype=np.int64),
                    np.array([self._stream.tick(taken) for taken in batch], dtype=np.int64),
                    [taken.row for taken in batch],
                )
            )
        except TooManyRunsError:
            self._stream.catch_up(self._columns.live())
            self._columns = None
            return None

    def _formed(self, batch: Sequence[ReadTuple], found: Found) -> Iterator[PatternResult]:
        valuations = self._valuations(found)
        last, valuation = next(valuations, (FOREVER, ()))
        for taken in batch:
            self._stream.remember(taken)
            while last == taken.position:
                yield self._stream.formed(valuation)
                last, valuation = next(valuations, (FOREVER, ()))

    def _valuations(self, found: Found) -> Iterator[tuple[int, Valuation]]:
        for at in range(0, len(found), _ROWS):
            chosen = slice(at, at + _ROWS)
            rows = zip(*found.marked[:, chosen].tolist(), strict=True)
            for last, row in zip(found.last[chosen].tolist(), rows, strict=True):
                yield last, tuple([m for m in zip(row, self._labels, strict=True) if m[0] >= 0])


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
