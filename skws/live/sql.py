"""Bounded queries in SQL as standing queries: synopses over the stream, kept as a state of constant size."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

from bounds.query import Union
from bounds.run import Run
from bounds.sql import parse_sql
from schema.errors import BadRecordsError
from schema.evolve import nameable
from schema.model import Row
from skws.bounded.decide import refuse_unbounded_union
from skws.bounded.result import SqlResult, shown_row
from skws.live.changing import check_stays
from skws.live.evaluator import Arrived, Evaluator, Load
from skws.live.share import Share
from skws.live.standing import Standing
from skws.live.stream import Stream
from skws.records import Record
from skws.tables.whole import with_sources
from windows.window import MICROSECOND

FORCE: Final = "force"
"""An option: run it even if only the form of the paper's synopses is in the way."""


class SqlKind:
    """Reads SQL. A query is answered as a whole by one shard."""

    def check(self, standing: Standing, stream: Stream) -> None:
        """Raises SqlError; UsageError if it is not bounded."""
        union = _read(standing, stream)
        if FORCE not in standing.options:
            refuse_unbounded_union(union)
        Run(union, stream.schema, {})

    def check_change(self, standing: Standing, before: Stream, after: Stream) -> None:
        """Its state goes on: it is of relations that stay."""
        reads = [s.relation for q in _read(standing, after).queries for s in q.streams]
        check_stays(reads, before.schema, after.schema)

    def evaluator(self, standing: Standing, stream: Stream, share: Share) -> StandingSql | None:
        return StandingSql(standing, stream) if share.whole or share.owns(standing.name) else None


class StandingSql:
    """One query over the stream. What the tuples of one time add is told when a later time has begun."""

    keeps: None = None

    def __init__(self, standing: Standing, stream: Stream) -> None:
        self._name = standing.name
        self._schema = stream.schema
        self._union = _read(standing, stream)
        self._used = {s.relation for q in self._union.queries for s in q.streams}
        self._tables: dict[str, list[Row]] = defaultdict(list)
        for record in with_sources(stream.schema, ()):
            self._tables[self._schema.relations[record.relation].name].append(record.row)
        self._run = Run(self._union, stream.schema, self._tables)
        self._now: int | None = None
        self._rows: dict[str, list[Row]] = {}

    def load_tables(self, records: Sequence[Record]) -> None:
        """The static tables, before the stream."""
        for record in records:
            self._tables[self._schema.relations[record.relation].name].append(record.row)
        self._run = Run(self._union, self._schema, self._tables)

    def begin(self, past: Iterable[Arrived]) -> Iterable[SqlResult]:  # noqa: ARG002 - it is not remembered
        """It tells of what comes from now on."""
        return ()

    def take(self, arrived: Arrived) -> Iterator[SqlResult]:
        """Raises BadRecordsError for a deletion from a stream that the query is over."""
        for record in arrived.batch.records():
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

    def end(self) -> Iterator[SqlResult]:
        """What the last tuples add, as no more of their time will come."""
        if self._now is None:
            return
        rows, self._rows = self._rows, {}
        for values, count in self._run.step(self._now, rows):
            row = shown_row(self._union, values)
            yield SqlResult.of(self._name, self._now / MICROSECOND, row, count)
        self._now = None

    def succeed(self, former: Evaluator) -> Iterable[SqlResult]:
        """With the state of the former."""
        self.restore(former.snapshot())
        return ()

    def load(self) -> Load:
        return Load(waiting=self._run.entries)

    def snapshot(self) -> bytes:
        state: list[Any] = [self._now, self._rows, self._run.snapshot()]
        return json.dumps(state, separators=(",", ":")).encode()  # counters may have more than 64 bits

    def restore(self, state: bytes) -> None:
        self._now, rows, run = json.loads(state)
        self._rows = {name: list(map(tuple, arrived)) for name, arrived in rows.items()}
        self._run.restore(run)


def _read(standing: Standing, stream: Stream) -> Union:
    return parse_sql(standing.query, nameable(stream.schema))
