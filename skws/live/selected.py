"""Patterns that show attributes, as standing queries: synopses, kept as a state of constant size."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from schema.errors import UsageError
from schema.evolve import nameable
from skws.bounded.replayed import Added
from skws.bounded.result import SqlResult
from skws.bounded.selected import (
    Selected,
    SelectedRun,
    names_of,
    refuse_unbounded_selection,
    selected,
    told,
)
from skws.live.changing import check_stays
from skws.live.evaluator import Arrived, Evaluator, Load
from skws.live.share import Share
from skws.live.standing import SELECT, Standing
from skws.live.stream import Stream
from skws.records import Record
from skws.tables.whole import with_sources


class SelectedKind:
    """Reads patterns in both forms. One is answered as a whole by one shard."""

    def check(self, standing: Standing, stream: Stream) -> None:
        """Raises PatternError, QueryError; UsageError if it is not bounded, or the stream has a window."""
        pattern = _read(standing, stream)
        refuse_unbounded_selection(pattern, pattern.window or stream.window, forced=stream.force_unbounded)
        if pattern.until is None:
            raise UsageError(
                f"pattern {standing.query!r} reads a finite stream, but no max of its time tells when it ends"
            )
        SelectedRun(pattern)

    def check_change(self, standing: Standing, before: Stream, after: Stream) -> None:
        """Its state goes on: it is of relations that stay."""
        reads = [after.schema.relations[n].name for n in _read(standing, after).feeds]
        check_stays(reads, before.schema, after.schema)

    def evaluator(self, standing: Standing, stream: Stream, share: Share) -> StandingSelected | None:
        return StandingSelected(standing, stream) if share.whole or share.owns(standing.name) else None


class StandingSelected:
    """One pattern over the stream. What the tuples of one time add is told when a later time has begun."""

    keeps: Final = None

    def __init__(self, standing: Standing, stream: Stream) -> None:
        self._name = standing.name
        self._pattern = _read(standing, stream)
        self._tables = list(with_sources(stream.schema, ()))
        self._run = SelectedRun(self._pattern, self._tables)

    def load_tables(self, records: Sequence[Record]) -> None:
        """The static tables, before the stream."""
        self._tables += records
        self._run = SelectedRun(self._pattern, self._tables)

    def begin(self, past: Iterable[Arrived]) -> Iterable[SqlResult]:  # noqa: ARG002 - it is not remembered
        """It tells of what comes from now on."""
        return ()

    def take(self, arrived: Arrived) -> Iterator[SqlResult]:
        """Raises BadRecordsError where a row breaks a bound of the schema; deletions are left out."""
        for record in arrived.batch.records():
            if not record.delete:
                yield from map(self._told, self._run.take(record.relation, record.time, record.row))

    def end(self) -> Iterator[SqlResult]:
        """What the last tuples add, as no more of their time will come."""
        return map(self._told, self._run.end())

    def succeed(self, former: Evaluator) -> Iterable[SqlResult]:
        """With the state of the former."""
        self.restore(former.snapshot())
        return ()

    def load(self) -> Load:
        return Load(waiting=self._run.entries)

    def snapshot(self) -> bytes:
        return json.dumps(self._run.snapshot(), separators=(",", ":")).encode()  # counters may be large

    def restore(self, state: bytes) -> None:
        self._run.restore(json.loads(state))

    def _told(self, added: Added) -> SqlResult:
        return told(self._pattern, self._name, added)


def _read(standing: Standing, stream: Stream) -> Selected:
    return selected(standing.query, nameable(stream.schema), names_of(standing.options.get(SELECT, "")))
