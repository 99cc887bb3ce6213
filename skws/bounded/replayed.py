"""A bounded query over a replay, time step by time step."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import NamedTuple

from bounds.query import Union
from bounds.run import Output, Run
from schema.errors import UsageError
from schema.model import Row, Schema
from skws.replay import BadRecordLog, Replay
from skws.tables.whole import with_sources


class Added(NamedTuple):
    """A result that the tuples of one time added: microseconds, its values, and how many times."""

    time: int
    values: Output
    times: int


class Replayed:
    """Runs a query; ``records`` and ``most_entries`` tell how much came and how much was kept at most.

    Raises UsageError if its synopses would not be bounded.
    """

    def __init__(self, union: Union, schema: Schema, replay: Replay, bad: BadRecordLog) -> None:
        self._schema = schema
        self._replay = replay
        self._bad = bad
        self._names = [r.name for r in schema.relations]
        self._used = {s.relation for q in union.queries for s in q.streams}
        tables: dict[str, list[Row]] = defaultdict(list)
        for record in with_sources(schema, replay.tables(bad)):
            tables[self._names[record.relation]].append(record.row)
        self._run = Run(union, schema, tables)
        self.records = 0
        self.most_entries = 0

    def results(self) -> Iterator[Added]:
        """What each time step adds, in order of time. Raises BadRecordsError, SourceError, UsageError."""
        for time, rows in self._steps():
            for values, count in self._run.step(time, rows):
                yield Added(time, values, count)
            self.most_entries = max(self.most_entries, self._run.entries)

    def _steps(self) -> Iterator[tuple[int, dict[str, list[Row]]]]:
        """The rows of each time, by relation; no more of the replay is in memory than a batch."""
        now: int | None = None
        rows: dict[str, list[Row]] = {}
        for batch in self._replay.batches(self._bad):
            if batch.delete is not None and batch.delete.any():
                raise UsageError(
                    "the replay deletes tuples; a query in constant memory takes insertions only"
                )
            for relation, time, row in zip(
                batch.relation.tolist(), batch.time.tolist(), batch.rows, strict=True
            ):
                self.records += 1
                if time != now:
                    if now is not None and rows:
                        yield now, rows
                    now, rows = time, {}
                name = self._names[relation]
                if name in self._used:
                    rows.setdefault(name, []).append(row)
        if now is not None and rows:
            yield now, rows
