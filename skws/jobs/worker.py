"""Processes micro-batches in a session, and rebuilds the session of an earlier run."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from skws.data.batch import Record, RecordBatch
from skws.durable import damaged
from skws.formats.dead_letters import Late
from skws.jobs.checkpoint import Checkpoint
from skws.jobs.control import JobCommand
from skws.jobs.journal import Journal, JournalEntry, LogReplacement, PriorState
from skws.jobs.standing_queries import StandingQueries
from skws.queries.operator import LoggedBatch, QueryPlan
from skws.queries.session import Session
from skws.results.result import Result
from skws.sources.feed import Offset
from skws.sources.partitions import stream_time
from skws.spec.job import Job
from skws.spec.query_spec import Query
from skws_purging.lifespans import ALWAYS


@dataclass(frozen=True, slots=True)
class BatchOutcome:
    """The results of a micro-batch, and its late records.

    ``earlier_queries``: the standing queries before its commands; None if it has no commands.
    """

    results: list[Result]
    late: list[Late]
    earlier_queries: tuple[Query, ...] | None = None


class BatchWorker:
    """Processes micro-batches in order.

    ``past``: the log before an entry, by its number, for queries added later. ``plans``: of queries
    that will be added.
    """

    def __init__(
        self,
        request: Job,
        past: Callable[[int], Iterable[LoggedBatch]] = lambda _: (),
        plans: Mapping[str, QueryPlan] | None = None,
    ) -> None:
        self._request = request
        self._late: list[Late] = []
        self._number = 0
        self.live = Session(
            request.stream,
            on_late=self._on_late,
            keywords=request.asks_keywords,
            past=lambda: past(self._number),
        )
        self.standing_queries = StandingQueries(request, self.live, plans)

    @property
    def prior_state(self) -> PriorState:
        """The state before the next entry."""
        queries = self.standing_queries
        return PriorState(self.live.position, self.live.now, queries.all_queries(), queries.leading_schemas)

    def load_tables(self, batches: Iterable[RecordBatch]) -> None:
        """Load static tables, before anything else; snapshots of queries include them."""
        self.live.load_tables(batches)

    def sort_out(self, records: RecordBatch) -> tuple[RecordBatch, list[Late]]:
        """The records in time, and the late ones, which are not logged."""
        records = self.live.sort_out(records)
        late, self._late = self._late, []
        return records, late

    def work(self, entry: JournalEntry) -> BatchOutcome:
        """Apply the commands of an entry, then process its records."""
        earlier_queries = self.standing_queries.all_queries() if entry.commands else None
        results = self._apply(entry)
        results += self.live.take(entry.records.whole, ended=entry.ended, settled=stream_time(entry.end))
        late, self._late = self._late, []
        return BatchOutcome(results, late, earlier_queries)

    def alive(self, name: str) -> list[Result]:
        """The live results of a standing query, as a new query would get them."""
        self._number += 1  # the log up to and including the last entry
        try:
            return self.live.alive(name)
        finally:
            self._number -= 1

    def replay(self, entry: JournalEntry) -> None:
        """Rebuild the state after an entry whose results an earlier process wrote."""
        self._apply(entry)
        final = stream_time(entry.end)
        recent = list(self.as_logged(entry.recent))
        if recent:
            recent[-1] = replace(recent[-1], final=final)
        self.live.replay(
            entry.records,
            entry.begins,
            ended=entry.ended,
            live=entry.reached is not None,
            reached=entry.reached,
            settled=final,
            recent=recent,
        )
        self._late.clear()

    def as_logged(self, log: Iterable[LoggedBatch]) -> Iterator[LoggedBatch]:
        """Parts of a log. Logged records are never late, even where partitions were out of step."""
        for batch in log:
            in_step = self.live.final is None
            yield (
                batch if in_step else replace(batch, final=ALWAYS, recent=tuple(self.as_logged(batch.recent)))
            )

    def with_recent(self, log: Iterable[LoggedBatch]) -> Iterator[LoggedBatch]:
        """Parts of a log with the stream time before them; their recent records stay as logged."""
        for batch in log:
            yield replace(batch, recent=tuple(self.as_logged(batch.recent))) if batch.recent else batch

    def log_replacement(
        self, last_entry: JournalEntry, log: Callable[[], Iterable[LoggedBatch]]
    ) -> LogReplacement | None:
        """An entry that replaces the whole log. None if some query needs all of the log.

        ``log``: returns its records as they came.
        """
        live_records = self.live.live_records()
        if live_records is None:
            return None
        begins, prior_state = self.live.all_begins(), self.prior_state
        entry = replace(
            last_entry,
            commands=(),
            letters=(),
            bad=0,
            reached=self.live.now,
            begins=begins,
            recent=self.live.recent(self.as_logged(log())),
        )
        old_state = replace(prior_state, position=prior_state.position - live_records.insertions, now=ALWAYS)
        return LogReplacement(entry, old_state, live_records)

    def _apply(self, entry: JournalEntry) -> list[Result]:
        self._number = entry.number
        return self.standing_queries.apply_all(entry.commands)

    def _on_late(self, record: Record, tick: int) -> None:
        self._late.append(Late(record, tick))


@dataclass(frozen=True, slots=True)
class RunStart:
    """The state of a run before its first new micro-batch.

    ``number``: that of the last micro-batch. ``control``: the offset in the control folder; None if there was
    no folder. ``query_names``: the names of the queries at the last start.
    """

    offset: Offset
    number: int = 0
    control: int | None = None
    query_names: tuple[str, ...] = ()


def load_standing_queries(checkpoint: Checkpoint, request: Job) -> StandingQueries:
    """The queries and the schema at the end of the run, without results. Raises StateError."""
    queries = StandingQueries(request)
    journal = Journal(checkpoint.journal.folder, checkpoint.id)
    journal.open(checkpoint.journal_start())
    _apply_schemas(queries, journal)
    _add_queries(queries, journal)
    for entry in journal.entries():
        for command in entry.commands:
            queries.apply(command)
    return queries


def resume(
    worker: BatchWorker,
    checkpoint: Checkpoint,
    write: Callable[[JournalEntry, BatchOutcome], None],
    last_written: int,
) -> RunStart:
    """Rebuild the session at the end of the run, and ``write`` uncommitted results. Raises StateError.

    ``last_written``: the last micro-batch that any sink has written.
    """
    committed = checkpoint.committed_batch()
    journal = checkpoint.journal
    journal.open(checkpoint.journal_start())
    if journal.last < max(committed, last_written):
        raise damaged(
            journal.folder, f" (it has {journal.last:,} of {max(committed, last_written):,} micro-batches)"
        )
    journal.repair()
    states = checkpoint.states()
    worker.live.expect(states)
    _apply_schemas(worker.standing_queries, journal)
    worker.load_tables(checkpoint.tables())
    if journal.segments:
        prior_state, first_entry = journal.segments[0].prior_state, journal.first_entry()
        out_of_step = first_entry is not None and stream_time(first_entry.end) is not None
        worker.live.seek(prior_state.position, prior_state.now, ALWAYS if out_of_step else None)
    _add_queries(worker.standing_queries, journal)
    start = RunStart(checkpoint.start(), committed, query_names=checkpoint.query_names())
    for entry in journal.entries():
        if entry.number <= committed:
            worker.replay(entry)
        else:
            worker.live.restore(states)
            states = {}
            write(entry, worker.work(entry))
        start = RunStart(entry.end, max(entry.number, committed), entry.control, start.query_names)
    journal.release_pages()
    position = checkpoint.position()
    if position is not None and start.number == committed:
        start = replace(start, offset=position.source, control=position.control)
    worker.live.restore(states)
    journal.append_begins(worker.live.begins())
    return start


def _apply_schemas(queries: StandingQueries, journal: Journal) -> None:
    for text in journal.segments[0].prior_state.schemas if journal.segments else ():
        queries.apply(JobCommand("schema", "", schema=text))


def _add_queries(queries: StandingQueries, journal: Journal) -> None:
    queries.add_all(journal.segments[0].prior_state.standing_queries if journal.segments else ())
