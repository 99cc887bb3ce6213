"""One micro-batch's way: kept in the journal, worked on, delivered to the sinks, committed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import Any, Protocol
from uuid import uuid4

from skws.data.batch import NOTHING, Chunk
from skws.data.record import Item, Record
from skws.formats.dead_letters import Late, late_letters, late_notice
from skws.jobs.checkpoint import Checkpoint
from skws.jobs.control import Command
from skws.jobs.intake import BatchSizer, Intake
from skws.jobs.journal import Entry, Journal, Recent
from skws.jobs.metrics import Gauges
from skws.jobs.sink_fanout import SinkFanout
from skws.jobs.standing import StandingQueries
from skws.queries.session import Session
from skws.queries.stream_state import LoggedBatch
from skws.results.model import LiveResult
from skws.sinks.base import NONE, Run
from skws.sources.feed import Batch, Offset
from skws.spec.job import Job
from skws_purging.retention import Retention
from skws_schema.errors import StateError
from skws_windows.window import MICROSECOND


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a micro-batch came to. ``late``: what came too late for it."""

    results: list[LiveResult]
    late: list[Late]


class Worker:
    """Works on micro-batches, one after the other.

    ``past``: the log before the micro-batch of a number, for queries that come with it.
    """

    def __init__(self, request: Job, past: Callable[[int], Iterable[LoggedBatch]] = lambda _: ()) -> None:
        self._request = request
        self._late: list[Late] = []
        self._number = 0
        self.live = Session(
            request.stream,
            on_late=self._on_late,
            keywords=request.asks_keywords,
            past=lambda: past(self._number),
        )
        self.standing = StandingQueries(request, self.live)

    def load_tables(self, records: Sequence[Record]) -> None:
        """Static tables, before all else; their results come in the snapshots of queries."""
        self.live.load_tables(records)

    def work(self, entry: Entry) -> Outcome:
        """Commands first, then records."""
        results = self._obey(entry)
        results += self.live.take(entry.records, ended=entry.ended)
        late, self._late = self._late, []
        return Outcome(results, late)

    def replay(self, entry: Entry) -> None:
        """Do again what was done and delivered by an earlier process."""
        self._obey(entry)
        self.live.replay(entry.records, ended=entry.ended)
        self._late.clear()

    def _obey(self, entry: Entry) -> list[LiveResult]:
        self._number = entry.number
        return [result for command in entry.commands for result in self.standing.apply(command)]

    def _on_late(self, record: Record, reached: int) -> None:
        self._late.append(Late(record, reached))


class JobListener(Protocol):
    """Sees the good records of a live search go by, in the thread that runs it."""

    def load_tables(self, records: Sequence[Record]) -> None:
        """Of static tables."""

    def add(self, records: Sequence[Record]) -> None:
        """Of a micro-batch, once its results are delivered."""

    def miss(self) -> None:
        """Some went by unseen: they came too fast."""


class Pipeline:
    """Takes micro-batches, one after the other; ``full`` when the limit of results is reached.

    ``checkpoint`` None keeps nothing. ``now`` tells the run's time in microseconds.
    """

    def __init__(
        self,
        request: Job,
        checkpoint: Checkpoint | None,
        now: Callable[[], int],
        onlooker: JobListener | None = None,
    ) -> None:
        self.worker = Worker(request, self._past)
        self.gauges = Gauges(request, now())
        self.intake = Intake(request.on_error)
        self.appetite = BatchSizer()
        self.full = False
        self._request = request
        self._checkpoint = checkpoint
        self._recent = Recent() if checkpoint is None and request.keeps_past else None
        self._now = now
        self._onlooker = onlooker
        self._table_letters: tuple[str, ...] = ()  # go with the first micro-batch
        self._first_late: Late | None = None
        self._late_told = False
        self._delivery: SinkFanout | None = None
        self._run: Run | None = None
        self._kept: Offset = {}
        self._number = self._delivered = self._committed = 0

    @property
    def delivery(self) -> SinkFanout:
        assert self._delivery is not None  # noqa: S101 - deliver_to comes first
        return self._delivery

    @property
    def held(self) -> int:
        """The last micro-batch that some sink had when it was opened."""
        return NONE if self._run is None else self._run.held

    def deliver_to(self, delivery: SinkFanout) -> None:
        """Where results go, before anything is taken."""
        self._delivery = delivery

    def seek(self, number: int, offset: Offset) -> None:
        """The micro-batch ``number``, which ended at ``offset``, was the last one."""
        self._number = self._delivered = number
        self._kept = offset

    def tables(self, items: list[Item]) -> tuple[Record, ...]:
        """The good rows of static tables. Raises BadRecordsError by the policy."""
        read = Chunk.of(items)
        self._table_letters += self.intake.refuse(read.bad)
        records = tuple(read.records.records())
        if self._onlooker is not None:
            self._onlooker.load_tables(records)
        return records

    def take(self, commands: list[Command], polled: Batch, commands_to: int, arrived: int) -> None:
        """Work on what was polled at ``arrived``. Raises BadRecordsError, SinkError, StateError."""
        began = perf_counter()
        records, bad = polled.read.records, polled.read.bad
        letters, self._table_letters = (*self._table_letters, *self.intake.refuse(bad)), ()
        self._number += 1
        entry = Entry(
            self._number, polled.end, commands_to, tuple(commands), records, letters, len(bad), polled.ended
        )
        live = self.worker.live
        if self._checkpoint is not None:
            standing = self.worker.standing
            self._checkpoint.journal.append(
                entry, standing.shown(), live.position, live.now, standing.schemas
            )
        self._kept = polled.end
        before = live.position, live.now
        kept = perf_counter()
        outcome = self.worker.work(entry)
        self.gauges.spent("journal", kept - began)
        self.gauges.spent("engine", perf_counter() - kept)
        self.deliver(entry, outcome)
        if self._recent is not None:
            self._recent.keep(entry, *before)
            self._recent.trim(live)
        self.speak_of_schema()
        seconds = (self._now() - arrived) / MICROSECOND
        self.appetite.worked(len(records), seconds, len(outcome.results))
        self.gauges.worked(seconds)

    def deliver(self, entry: Entry, outcome: Outcome) -> None:
        """What a micro-batch came to, up to the limit of results."""
        results = outcome.results
        limit = self._request.limit
        if limit is not None and len(results) >= limit - self.gauges.told:
            results = results[: limit - self.gauges.told]
            self.full = True
        letters = (*entry.letters, *self._late_letters(outcome))
        if self._checkpoint is not None and (results or letters):
            # What has been told must never be found anew in other batches.
            self._checkpoint.journal.sync()
        began = perf_counter()
        self.delivery.write(entry.number, results, letters)
        self.gauges.spent("sinks", perf_counter() - began)
        self._delivered = entry.number
        self.gauges.delivered(entry.records, results, [one.record for one in outcome.late])
        self._first_late = self._first_late or next(iter(outcome.late), None)
        if self._onlooker is not None:
            self._onlooker.add(list(entry.records.records()))

    def _late_letters(self, outcome: Outcome) -> tuple[str, ...]:
        if self._request.dead_letters is None:
            return ()
        schema = self.worker.live.stream.schema
        return self.intake.letters(late_letters(outcome.late, schema, self._request.stream.lateness))

    def late_notice(self) -> str:
        """A line on the first late record, once; else empty."""
        if self._first_late is None or self._late_told:
            return ""
        self._late_told = True
        return late_notice(self._first_late, self.worker.live.stream.schema, self._request.stream.lateness)

    def speak_of_schema(self) -> None:
        """Metrics and sinks hear which schema holds now."""
        schema = self.worker.standing.stream.schema
        self.gauges.schema = schema
        if self._run is not None:
            self._run.schema = schema

    def commit(self, offset: Offset, commands_to: int) -> None:
        """All that was delivered is there for good: with the sinks first, then in the checkpoint."""
        if self._checkpoint is not None and offset != self._kept:
            # The source moved on past nothing of ours; it may forget that too.
            self.take([], Batch(NOTHING, offset), commands_to, self._now())
        if self._checkpoint is not None:
            self._checkpoint.journal.sync()
        began = perf_counter()
        self.delivery.flush()
        self.gauges.spent("sinks", perf_counter() - began)
        if self._checkpoint is None or self._committed == self._delivered:
            return
        first = self._first_to_keep(self._checkpoint.journal)
        self._checkpoint.commit(self._delivered, self.worker.live.snapshot(), first)
        self._committed = self._delivered
        self._checkpoint.journal.trim(first)

    def _past(self, number: int) -> Iterable[LoggedBatch]:
        if self._checkpoint is not None:
            return self._checkpoint.journal.before(number)
        return () if self._recent is None else self._recent.told()

    def _first_to_keep(self, journal: Journal) -> int:
        live = self.worker.live
        retention = Retention(live.keeps, self._request.stream.lateness)
        now, position = live.latest or 0, live.position
        return journal.first_to_keep(self._delivered, lambda part: retention.over(part.kept, now, position))

    def close(self, *, failed: bool) -> None:
        """``failed``: the run broke; the sinks keep what they have, if the journal has it for good."""
        if self._delivery is not None:
            self._delivery.close(failed=failed and self._journal_synced())

    def _journal_synced(self) -> bool:
        if self._checkpoint is None:
            return True
        try:
            self._checkpoint.journal.sync()
        except StateError:
            return False
        return True

    def run(self, wait: Callable[[float], bool], tell: Callable[[str], None]) -> Run:
        """What sinks are told of the run."""
        kept: dict[str, Any] = (
            {"id": uuid4().hex, "folder": None} if self._checkpoint is None else self._checkpoint.kept_run()
        )
        self._run = Run(
            **kept,
            schema=self._request.schema,
            match_names=self._request.match_names,
            wait=wait,
            tell=tell,
        )
        return self._run
