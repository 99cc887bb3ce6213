"""Patterns that show attributes, as standing queries: synopses, kept as a state of constant size."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

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
from skws.live.evaluator import Arrived
from skws.live.standing import SELECT, Standing
from skws.live.stream import Stream
from skws.live.synopses import StandingSynopses, SynopsesKind
from skws.records import Record
from skws.tables.whole import with_sources


class SelectedKind(SynopsesKind):
    """Reads patterns in both forms."""

    def check(self, standing: Standing, stream: Stream) -> None:
        """Raises PatternError, QueryError; UsageError if it is not bounded, or the stream has a window."""
        pattern = _read(standing, stream)
        refuse_unbounded_selection(pattern, pattern.window or stream.window, forced=stream.force_unbounded)
        if pattern.until is None:
            raise UsageError(
                f"pattern {standing.query!r} reads a finite stream, but no max of its time tells when it ends"
            )
        SelectedRun(pattern)

    def reads(self, standing: Standing, stream: Stream) -> Iterable[str]:
        return [stream.schema.relations[n].name for n in _read(standing, stream).feeds]

    def whole(self, standing: Standing, stream: Stream) -> StandingSynopses:
        return StandingSelected(standing, stream)


class StandingSelected(StandingSynopses):
    """One pattern over the stream."""

    def __init__(self, standing: Standing, stream: Stream) -> None:
        self._pattern = _read(standing, stream)
        self._tables = list(with_sources(stream.schema, ()))
        self._run = SelectedRun(self._pattern, self._tables)

    def load_tables(self, records: Iterable[Record]) -> None:
        self._tables += records
        self._run = SelectedRun(self._pattern, self._tables)

    def take(self, arrived: Arrived) -> Iterator[SqlResult]:
        """Raises BadRecordsError where a row breaks a bound of the schema; deletions are left out."""
        for record in arrived.batch.records():
            if not record.delete:
                yield from map(self._told, self._run.take(record.relation, record.time, record.row))

    @property
    def waits(self) -> bool:
        return self._run.waits

    def end(self) -> Iterator[SqlResult]:
        return map(self._told, self._run.end())

    @property
    def _entries(self) -> int:
        return self._run.entries

    def _state(self) -> Any:
        return self._run.snapshot()

    def _go_on(self, state: Any) -> None:
        self._run.restore(state)

    def _told(self, added: Added) -> SqlResult:
        return told(self._pattern, added)


def _read(standing: Standing, stream: Stream) -> Selected:
    return selected(standing.query, nameable(stream.schema), names_of(standing.options.get(SELECT, "")))
