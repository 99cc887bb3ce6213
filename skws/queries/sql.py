"""Bounded queries in SQL, answered by synopses of the stream: a state of constant size."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator, Sequence
from hashlib import blake2b
from typing import Any, Final

import orjson

from skws.data.batch import RecordBatch, records_of
from skws.index import source_batches
from skws.queries.evaluator import Counts, Evaluator, Load, OrderedBatch
from skws.queries.operator import SeparatePlan, StreamState, check_stays
from skws.results.result import JsonRow, Result, ResultTuple
from skws.spec.query_spec import Query, Stream
from skws_bounds.maxref import Failure
from skws_bounds.normal_form import Atom, Domain, TextSpan, Union
from skws_bounds.query_run import Output, UnionRun
from skws_bounds.repairs import WINDOW, Repair
from skws_bounds.repairs import repairs as repairs_of
from skws_bounds.verdict import Verdict, check
from skws_schema.budgets import Footprint, register
from skws_schema.errors import BadRecordsError, UsageError, shown
from skws_schema.evolution import nameable
from skws_schema.model import Row, Schema, iso, sourced
from skws_windows.window import MICROSECOND, Unbounded, Window

_HEADINGS = {True: "bounded", False: "not bounded", None: "not known to be bounded"}
_REASONS = {
    (True, False): "duplicates are kept, and all conditions of Theorem 1 hold",
    (True, True): "duplicates are eliminated, and all conditions of Theorem 2 hold",
    (False, False): "duplicates are kept, and Theorem 1 needs all of its conditions",
    (False, True): "duplicates are eliminated, so all output has to be remembered",
    (None, False): "duplicates are kept, and not all orders could be checked",
    (None, True): "duplicates are eliminated; Theorem 2 does not apply, so it is not decided",
}


def to_json(union: Union, verdict: Verdict, repairs: Sequence[Repair]) -> dict[str, Any]:
    """The verdict as ``skws bounds check --format json`` prints it; consumers depend on this format."""
    return {
        "bounded": verdict.bounded,
        "projection": verdict.projection,
        "failed": [_failed(union.text, failure) for failure in verdict.failures],
        "repairs": [*map(str, repairs), WINDOW] if verdict.failures else [],
        "certain": verdict.certain,
    }


def to_text(union: Union, verdict: Verdict, repairs: Sequence[Repair]) -> str:
    return "".join(f"{line}\n" for line in _lines(union, verdict, repairs))


def _failed(text: str, failure: Failure) -> dict[str, Any]:
    return {
        "condition": failure.condition,
        "atoms": [_atom_json(text, atom) for atom in failure.atoms]
        + [_column(text, p) for p in failure.columns],
        "streams": list(failure.streams),
        "attributes": list(map(str, failure.attributes)),
        "message": failure.message,
    }


def _atom_json(text: str, atom: Atom) -> dict[str, Any]:
    if atom.place is None:
        return {"text": str(atom), "line": None, "column": None}
    line, column = _place(text, atom.place.start)
    return {"text": str(atom), "line": line, "column": column}


def _column(text: str, place: TextSpan) -> dict[str, Any]:
    """The text and place of a projected column, if no atom is responsible."""
    line, column = _place(text, place.start)
    return {"text": text[place.start : place.end], "line": line, "column": column}


def _place(text: str, offset: int) -> tuple[int, int]:
    """Line and column, from 1."""
    return text.count("\n", 0, offset) + 1, offset - text.rfind("\n", 0, offset)


def _lines(union: Union, verdict: Verdict, repairs: Sequence[Repair]) -> Iterator[str]:
    yield f"{_HEADINGS[verdict.bounded]}: {_REASONS[verdict.bounded, verdict.distinct]}"
    yield from reasons(union, verdict)
    if verdict.bounded is False and not verdict.certain:
        yield "  the theorem covers one form of synopses; to run the query: skws bounds run --force-synopses"
    if verdict.failures:
        yield from offers(repairs)


def reasons(union: Union, verdict: Verdict) -> Iterator[str]:
    """The conditions that fail, each with the responsible atoms and their places."""
    for failure in verdict.failures:
        yield f"  {failure.condition}: {failure.message}"
        for atom in failure.atoms:
            yield f"    {_atom_text(union.text, atom)}"
        for place in failure.columns:
            column = _column(union.text, place)
            yield f"    line {column['line']}, column {column['column']}: {column['text']}"


def offers(repairs: Sequence[Repair]) -> Iterator[str]:
    """Changes that would make a query bounded."""
    yield "any of these would make it bounded:" if repairs else "no small change makes it bounded, but:"
    yield from (f"  - {repair}" for repair in repairs)
    yield f"  - {WINDOW}"


def _atom_text(text: str, atom: Atom) -> str:
    if atom.place is None:
        return str(atom)
    line, column = _place(text, atom.place.start)
    return f"line {line}, column {column}: {atom}"


def refuse_unbounded_union(union: Union) -> None:
    """Raises UsageError with the conditions that fail, the atoms responsible and the smallest repairs."""
    verdict = check(union)
    if not verdict.bounded:
        raise UsageError("\n".join(_refusal(union, verdict)))


def _refusal(union: Union, verdict: Verdict) -> Iterator[str]:
    needs = "needs" if verdict.bounded is False and verdict.certain else "may need"
    yield f"this query {needs} unbounded memory:"
    yield from reasons(union, verdict)
    yield from offers(repairs_of(union, verdict))


def json_row_of(union: Union, values: Output) -> JsonRow:
    """A row by column name; time stamps are ISO 8601 in UTC."""
    query = union.queries[0]
    values_shown = (
        iso(value) if term.domain is Domain.TIMESTAMP and value is not None else value
        for term, value in zip(query.output, values, strict=True)
    )
    return dict(zip(query.names, values_shown, strict=True))


def row_result(query: Query, start: float, row: JsonRow, count: int) -> Result:
    """The result for a row that the tuples of one time, ``start``, in seconds, add ``count`` times.

    Equal rows of one time are one result, which has the row as its only tuple.
    """
    identity = blake2b(orjson.dumps([query.name, start, row]), digest_size=12).hexdigest()
    row_tuple = ResultTuple.given("row", identity, (), row)
    return Result.of_tuples(query, identity, start, None, (row_tuple,), count=count)


FORCE: Final = "force"
"""An option: run the query even if the paper's form of synopses is not bounded for it."""


class SqlPlan(SeparatePlan):
    """Bounded queries in SQL: nothing expires, and their state has a constant size. Also raises SqlError."""

    def __init__(self, query: Query, stream: Stream) -> None:
        super().__init__(query, stream)
        self._union = parse_union(query.text, nameable(stream.schema))
        if FORCE not in query.options:
            refuse_unbounded_union(self._union)
        UnionRun(self._union, stream.schema, {})

    @property
    def window(self) -> Window:
        return Unbounded()

    def check_change(self, before: Stream) -> None:
        """The state is kept if all relations of the query stay."""
        check_stays(_reads(self._union), before.schema, self.stream.schema)

    def evaluator(self, state: StreamState) -> SqlEvaluator:  # noqa: ARG002
        return SqlEvaluator(self.query, self._union, self.stream)


class SqlEvaluator(Evaluator):
    """Answers one query by synopses, from its start on; does not read the log."""

    def __init__(self, query: Query, union: Union, stream: Stream) -> None:
        self._query = query
        self._schema = stream.schema
        self._union = union
        self._streams_read = _reads(union)
        self._tables: dict[str, list[Row]] = defaultdict(list)
        for record in records_of(source_batches(stream.schema, sourced(stream.schema))):
            self._tables[self._schema.relations[record.relation].name].append(record.row)
        self._run = UnionRun(self._union, stream.schema, self._tables)
        self._finite = stream.finite
        self._most_entries = 0
        self._now: int | None = None
        self._rows: dict[str, list[Row]] = {}
        register(self)

    def footprint(self) -> Footprint:
        """The number of entries and rows of tables that the query holds."""
        rows = [*self._rows.values(), *self._tables.values()]
        entries = self._run.entries + sum(map(len, rows))
        return Footprint(entries, f"query {shown(self._query.text)} holds {entries:,} entries")

    def load_tables(self, batches: Sequence[RecordBatch]) -> None:
        for record in records_of(batches):
            self._tables[self._schema.relations[record.relation].name].append(record.row)
        if batches:
            self._run = UnionRun(self._union, self._schema, self._tables)

    def take(self, arrived: OrderedBatch) -> Iterator[Result]:
        """Raises BadRecordsError for a deletion from a stream of the query, UsageError if it is a replay."""
        for record in arrived.batch.records():
            if record.delete and self._finite:
                raise UsageError(
                    "the replay deletes tuples; a query in constant memory only accepts insertions"
                )
            name = self._schema.relations[record.relation].name
            if name not in self._streams_read:
                continue
            if record.delete:
                raise BadRecordsError(
                    f"a record deletes a tuple of {name}; query {shown(self._query.name)} runs in"
                    " constant memory,"
                    " and only accepts insertions"
                )
            if self._now is None or record.time > self._now:  # under a count window, times may decrease
                yield from self.end()
                self._now = record.time
            self._rows.setdefault(name, []).append(record.row)

    @property
    def waits(self) -> bool:
        return self._now is not None

    def end(self) -> Iterator[Result]:
        if self._now is None:
            return
        rows, self._rows = self._rows, {}
        for values, count in self._run.step(self._now, rows):
            row = json_row_of(self._union, values)
            yield row_result(self._query, self._now / MICROSECOND, row, count)
        self._most_entries = max(self._most_entries, self._run.entries)
        self._now = None

    @property
    def counts(self) -> Counts:
        return Counts(kept=self._most_entries)

    def load(self) -> Load:
        return Load(waiting=self._run.entries)

    def snapshot(self) -> bytes:
        state = [self._now, self._rows, self._run.snapshot()]
        return json.dumps(state, separators=(",", ":")).encode()  # counters may exceed 64 bits

    def restore(self, state: bytes) -> None:
        self._now, rows, run = json.loads(state)
        self._rows = {name: list(map(tuple, name_rows)) for name, name_rows in rows.items()}
        self._run.restore(run)


def _reads(union: Union) -> set[str]:
    return {stream.relation for query in union.queries for stream in query.streams}


def parse_union(text: str, schema: Schema) -> Union:
    """The union that a text in SQL denotes. Raises SqlError."""
    from skws_bounds.sql_reader import parse_sql  # noqa: PLC0415 - the SQL parser takes a while to load

    return parse_sql(text, schema)
