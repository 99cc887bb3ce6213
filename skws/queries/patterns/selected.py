"""Patterns whose matches show attributes instead of whole tuples, in constant memory.

Synopses take positions as time, so each tuple is a step. Each letter is a
relation of its own: that of the tuples that satisfy its conditions.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, TypeAlias

from skws.data.batch import Record
from skws.index import with_sources
from skws.queries.evaluator import OrderedBatch, SynopsesEvaluator
from skws.queries.keywords.memory_guard import WHOLE, end_of, ends, whole_tuples
from skws.queries.operator import SynopsesKind
from skws.queries.partitioning import Part
from skws.queries.patterns.normal_form import choices_of, pattern_query
from skws.queries.patterns.text import is_formal
from skws.queries.sql import Added, SqlResult, refuse_unbounded_union, shown_row
from skws.spec.query import SELECT, Query, Stream
from skws_bounds.normal_form import Constant, Domain, Union
from skws_bounds.run import Output, Run
from skws_patterns.language.expression import Letter
from skws_patterns.language.resolve import Reading
from skws_schema.errors import UsageError
from skws_schema.evolution import nameable
from skws_schema.model import Attribute, AttributeType, Row, Schema
from skws_windows.window import MICROSECOND, Unbounded, Window

Accepts: TypeAlias = Callable[[Row], bool]
Feeds: TypeAlias = Mapping[int, tuple[tuple[str, Accepts], ...]]
_NEVER: Final = 2**63
"""Not a position: the time of records says when finite streams have ended."""


@dataclass(frozen=True, slots=True)
class Selected:
    """A pattern with the attributes of its matches.

    ``union``: the query for verdicts; ``run``: the same over ``schema``, whose
    relations are letters. ``feeds``: by the number of a relation in the
    stream's schema, its letters, each with the condition on its tuples.
    ``until``: when the last finite stream ends, in microseconds; None if not
    known. ``window``: the pattern's own.
    """

    union: Union
    run: Union
    schema: Schema
    feeds: Feeds
    until: int | None
    window: Window | None = None


def names_of(select: str) -> tuple[str, ...]:
    """The attributes in a list separated by commas."""
    return tuple(name.strip() for name in select.split(",") if name.strip())


def selected(text: str, schema: Schema, shown: tuple[str, ...]) -> Selected:
    """Read a pattern. Raises PatternError, QueryError, UsageError."""
    relations = {r.name: n for n, r in enumerate(schema.relations)}
    if is_formal(text):
        union = run = pattern_query(text, schema, shown)
        names = {s.relation for q in union.queries for s in q.streams}
        plain: Feeds = {relations[name]: ((name, _all),) for name in sorted(names)}
        return Selected(union, run, schema, plain, _until(schema, plain))
    choices = choices_of(text, schema, shown)
    called = {
        letter: f"{schema.relations[letter.relation].name} {letter.variable}" for letter in choices.readings
    }
    queries = tuple(
        replace(
            q, streams=tuple(replace(s, relation=called[x]) for s, x in zip(q.streams, letters, strict=True))
        )
        for q, letters in zip(choices.union.queries, choices.letters, strict=True)
    )
    _same_domains(choices.union)
    read = tuple(replace(schema.relations[x.relation], name=name) for x, name in called.items())
    by_relation: dict[int, list[tuple[str, Accepts]]] = {}
    for letter, name in called.items():
        by_relation.setdefault(letter.relation, []).append((name, _test(choices.readings, letter)))
    feeds = {relation: tuple(found) for relation, found in by_relation.items()}
    run = replace(choices.union, queries=queries)
    return Selected(
        choices.union, run, Schema(schema.name, read, ()), feeds, _until(schema, feeds), choices.window
    )


def by_positions(text: str, schema: Schema) -> Selected:
    """Read a pattern whose matches show the number of their choice, and their positions.

    Each row of a run has the position of its tuple after its values.
    """
    pattern = selected(text, schema, ())
    queries = tuple(
        replace(q, output=(Constant(n, Domain.INTEGER), *whole_tuples(q.streams, every=True)))
        for n, q in enumerate(pattern.run.queries)
    )
    position = Attribute(WHOLE, AttributeType.NUMBER)
    read = tuple(replace(r, attributes=(*r.attributes, position)) for r in pattern.schema.relations)
    return replace(
        pattern, run=replace(pattern.run, queries=queries), schema=replace(pattern.schema, relations=read)
    )


def result_of(pattern: Selected, added: Added) -> SqlResult:
    """A row that the tuples of one time add, as a result."""
    row = shown_row(pattern.union, added.values)
    return SqlResult.of(pattern.union.text, added.time / MICROSECOND, row, added.times)


def refuse_unbounded_selection(pattern: Selected, window: Window, *, forced: bool = False) -> None:
    """Raises UsageError, with reasons and repairs, if synopses cannot evaluate a pattern under its window."""
    text = pattern.union.text
    if not isinstance(window, Unbounded):
        raise UsageError(
            f"pattern {text!r}: --select is for streams without a window (--window none, and no 'within'), "
            "where matches are counted; with one, they are shown with their whole tuples"
        )
    if not forced:
        refuse_unbounded_union(pattern.union, f"pattern {text!r}: without a window nothing expires, and it")


class SelectedRun:
    """Evaluates a pattern over a stream in order of time. ``tables``: rows of static relations.

    Raises UsageError if the synopses would not be bounded.
    """

    def __init__(self, pattern: Selected, tables: Iterable[Record] = ()) -> None:
        self._pattern = pattern
        rows: dict[str, list[Row]] = {}
        for record in tables:
            for name, accepts in pattern.feeds.get(record.relation, ()):
                if accepts(record.row):
                    rows.setdefault(name, []).append(record.row)
        self._run = Run(pattern.run, pattern.schema, rows, until=_NEVER)
        self._position = 0
        self._now: int | None = None
        self._found: Counter[Output] = Counter()

    @property
    def entries(self) -> int:
        """The number of entries in memory, besides the results of the current time."""
        return self._run.entries

    def take(self, relation: int, time: int, row: Row) -> Iterator[Added]:
        """Process the next tuple; gives the results of an earlier time when it is over.

        ``time`` in microseconds. Raises BadRecordsError if a row exceeds a bound of the schema.
        """
        if time != self._now:
            yield from self.end()
            self._now = time
        for values, count in self.completed(relation, time, row):
            self._found[values] += count

    def completed(self, relation: int, time: int, row: Row) -> list[tuple[Output, int]]:
        """As ``take``, but gives the results of this tuple at once."""
        if self._pattern.until is not None and time >= self._pattern.until:
            self._run.end_finite()
        rows = {name: [row] for name, accepts in self._pattern.feeds.get(relation, ()) if accepts(row)}
        if not rows:
            return []
        self._position += 1
        return self._run.step(self._position, rows)

    @property
    def waits(self) -> bool:
        """True if there are results of the current time."""
        return bool(self._found)

    def end(self) -> Iterator[Added]:
        """The results of the current time, which is over."""
        found, self._found = self._found, Counter()
        for values, count in found.items():
            assert self._now is not None  # noqa: S101 - a tuple has come
            yield Added(self._now, values, count)

    def snapshot(self) -> Any:
        """The state without tables, as JSON."""
        return [self._position, self._now, list(self._found.items()), self._run.snapshot()]

    def restore(self, state: Any) -> None:
        """Inverse of ``snapshot``."""
        self._position, self._now, found, run = state
        self._found = Counter({tuple(values): count for values, count in found})
        self._run.restore(run)


def _all(_: Row) -> bool:
    return True


def _test(readings: Mapping[Letter, Reading], letter: Letter) -> Accepts:
    tests = readings[letter].unary.tests
    return lambda row: all(test.holds(row) for test in tests)


def _until(schema: Schema, read: Iterable[int]) -> int | None:
    ends_of = [end_of(r) for r in map(schema.relations.__getitem__, read) if ends(r) and not r.table]
    return None if None in ends_of else max((end for end in ends_of if end is not None), default=0)


def _same_domains(union: Union) -> None:
    """Raises UsageError if alternatives show values of different types in one column."""
    for column in zip(*(q.output for q in union.queries), strict=True):
        if len({term.domain.family for term in column}) > 1:
            kinds = " and ".join(dict.fromkeys(f"{term} is of type {term.domain}" for term in column))
            raise UsageError(f"--select: {kinds}; the alternatives of a pattern show one kind in a column")


class SelectedKind(SynopsesKind):
    """Patterns whose matches show attributes."""

    def check(self, query: Query, stream: Stream) -> str:
        """Raises PatternError, QueryError; UsageError if the pattern is not bounded, or there is a window."""
        pattern = _read(query, stream)
        window = stream.window if stream.overrides else pattern.window or stream.window
        refuse_unbounded_selection(pattern, window, forced=stream.force_unbounded)
        if pattern.until is None and not stream.finite:
            raise UsageError(
                f"pattern {query.text!r} reads a finite stream, but no max of its time says when it ends"
            )
        SelectedRun(pattern)
        return ""

    def reads(self, query: Query, stream: Stream) -> Iterable[str]:
        return [stream.schema.relations[n].name for n in _read(query, stream).feeds]

    def evaluator(self, query: Query, stream: Stream, part: Part) -> SelectedEvaluator:  # noqa: ARG002
        return SelectedEvaluator(query, stream)


class SelectedEvaluator(SynopsesEvaluator):
    """Answers one pattern."""

    def __init__(self, query: Query, stream: Stream) -> None:
        self._pattern = _read(query, stream)
        self._tables = list(with_sources(stream.schema, ()))
        self._run = SelectedRun(self._pattern, self._tables)

    def load_tables(self, records: Iterable[Record]) -> None:
        self._tables += records
        self._run = SelectedRun(self._pattern, self._tables)

    def take(self, arrived: OrderedBatch) -> Iterator[SqlResult]:
        """Raises BadRecordsError if a row exceeds a bound of the schema; deletions are left out."""
        for record in arrived.batch.records():
            if not record.delete:
                yield from map(self._result, self._run.take(record.relation, record.time, record.row))

    @property
    def waits(self) -> bool:
        return self._run.waits

    def end(self) -> Iterator[SqlResult]:
        return map(self._result, self._run.end())

    @property
    def _entries(self) -> int:
        return self._run.entries

    def _state(self) -> Any:
        return self._run.snapshot()

    def _go_on(self, state: Any) -> None:
        self._run.restore(state)

    def _result(self, added: Added) -> SqlResult:
        return result_of(self._pattern, added)


def _read(query: Query, stream: Stream) -> Selected:
    return selected(query.text, nameable(stream.schema), names_of(query.options.get(SELECT, "")))
