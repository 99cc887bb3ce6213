"""Bounded queries in SQL: synopses over the stream, a state of constant size."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import Any, Final

from skws.data.record import Record
from skws.index import with_sources
from skws.queries.evaluator import Counts, OrderedBatch, SynopsesEvaluator
from skws.queries.operator import SynopsesKind
from skws.queries.partitioning import Part
from skws.queries.sql.report import refuse_unbounded_union
from skws.queries.sql.result import SqlResult, shown_row
from skws.spec.query import Query
from skws.spec.stream import Stream
from skws_bounds.normal_form import Union
from skws_bounds.run import Run
from skws_bounds.sql import parse_sql
from skws_schema.errors import BadRecordsError, UsageError
from skws_schema.evolution import nameable
from skws_schema.model import Row
from skws_windows.window import MICROSECOND

FORCE: Final = "force"
"""An option: run the query even if the paper's form of synopses is not bounded for it."""


class SqlKind(SynopsesKind):
    """Bounded queries in SQL."""

    def check(self, query: Query, stream: Stream) -> str:
        """Raises SqlError; UsageError if the query is not bounded."""
        union = _read(query, stream)
        if FORCE not in query.options:
            refuse_unbounded_union(union)
        Run(union, stream.schema, {})
        return ""

    def reads(self, query: Query, stream: Stream) -> Iterable[str]:
        return {s.relation for q in _read(query, stream).queries for s in q.streams}

    def evaluator(self, query: Query, stream: Stream, part: Part) -> SqlEvaluator:  # noqa: ARG002
        return SqlEvaluator(query, stream)


class SqlEvaluator(SynopsesEvaluator):
    """Answers one query."""

    def __init__(self, query: Query, stream: Stream) -> None:
        self._name = query.name
        self._schema = stream.schema
        self._union = _read(query, stream)
        self._used = {s.relation for q in self._union.queries for s in q.streams}
        self._tables: dict[str, list[Row]] = defaultdict(list)
        for record in with_sources(stream.schema, ()):
            self._tables[self._schema.relations[record.relation].name].append(record.row)
        self._run = Run(self._union, stream.schema, self._tables)
        self._finite = stream.finite
        self._most = 0
        self._now: int | None = None
        self._rows: dict[str, list[Row]] = {}

    def load_tables(self, records: Iterable[Record]) -> None:
        for record in records:
            self._tables[self._schema.relations[record.relation].name].append(record.row)
        self._run = Run(self._union, self._schema, self._tables)

    def take(self, arrived: OrderedBatch) -> Iterator[SqlResult]:
        """Raises BadRecordsError for a deletion from a stream of the query, UsageError from a replay."""
        for record in arrived.batch.records():
            if record.delete and self._finite:
                raise UsageError(
                    "the replay deletes tuples; a query in constant memory takes insertions only"
                )
            name = self._schema.relations[record.relation].name
            if name not in self._used:
                continue
            if record.delete:
                raise BadRecordsError(
                    f"a record deletes a tuple of {name}; query {self._name!r} runs in constant memory, and "
                    "takes insertions only"
                )
            if record.time != self._now:
                yield from self.end()
                self._now = record.time
            self._rows.setdefault(name, []).append(record.row)

    @property
    def waits(self) -> bool:
        return self._now is not None

    def end(self) -> Iterator[SqlResult]:
        if self._now is None:
            return
        rows, self._rows = self._rows, {}
        for values, count in self._run.step(self._now, rows):
            row = shown_row(self._union, values)
            yield SqlResult.of(self._name, self._now / MICROSECOND, row, count)
        self._most = max(self._most, self._entries)
        self._now = None

    @property
    def counts(self) -> Counts:
        return Counts(kept=self._most)

    @property
    def _entries(self) -> int:
        return self._run.entries

    def _state(self) -> Any:
        return [self._now, self._rows, self._run.snapshot()]

    def _go_on(self, state: Any) -> None:
        self._now, rows, run = state
        self._rows = {name: list(map(tuple, arrived)) for name, arrived in rows.items()}
        self._run.restore(run)


def _read(query: Query, stream: Stream) -> Union:
    return parse_sql(query.text, nameable(stream.schema))
