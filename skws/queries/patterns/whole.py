"""Patterns with whole tuples over endless streams without a window, in constant memory.

Such a match has one tuple of an endless stream, which comes after all tuples
of finite streams that it joins. Synopses find matches by the positions of
their tuples. Tuples of finite streams and of the current instant are
remembered, for later matches and for names.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from skws.queries.evaluator import Load, OrderedBatch, SynopsesEvaluator
from skws.queries.keywords.memory_guard import FORCE, ends, lasting
from skws.queries.patterns.history import History, formed, marks_of
from skws.queries.patterns.normal_form import choices_of, pattern_query, pattern_verdict
from skws.queries.patterns.result import PatternResult
from skws.queries.patterns.selected import SelectedRun, by_positions
from skws.queries.patterns.stream import PatternStream
from skws.queries.patterns.text import PatternQuery, is_formal
from skws.queries.sql.report import reasons
from skws.spec.stream import Stream
from skws_bounds.names import attribute_of
from skws_bounds.verdict import check
from skws_patterns.queries.hcq import parse_conjunctive_query
from skws_schema.errors import PatternError, UsageError
from skws_schema.evolution import nameable
from skws_schema.model import Row, Schema
from skws_windows.window import FOREVER, Unbounded

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
