"""The local host: a job in this process, as one loop of poll, log, process, write and commit."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from time import perf_counter
from typing import TYPE_CHECKING, Any, Final
from uuid import uuid4

import orjson

from skws.data.batch import NO_RECORDS, NOTHING, BadRecord, RecordBatch, concat_batches, large_batches
from skws.data.value_conversion import EARLIEST
from skws.durable import as_unicode
from skws.formats.dead_letters import Late, late_letters, late_notice, malformed, unwritable_notice
from skws.index import tell_missing
from skws.jobs.checkpoint import Checkpoint, Position
from skws.jobs.clock import Rest, Turns, ending_on_signals, name_at_rate, name_with_pace
from skws.jobs.control import Answer, BatchListener, ControlFolder, JobCommand, JobListener, Move, RunControl
from skws.jobs.fanout import SinkFanout
from skws.jobs.intake import BadRecordPolicy, BatchSizer, Input, StaticTables
from skws.jobs.journal import Journal, JournalEntry, Recent
from skws.jobs.log import Log
from skws.jobs.metrics import Gauges, Metrics, State
from skws.jobs.publishing import Publishing
from skws.jobs.standing_queries import CommandQueue
from skws.jobs.worker import BatchOutcome, BatchWorker, RunStart, load_standing_queries, resume
from skws.memory import expect_long_lived_objects, return_large_arrays, warn_by
from skws.queries.kinds import plans_of
from skws.queries.operator import LoggedBatch, QueryPlan, changed, record_count
from skws.sinks.base import NONE, Sink, SinkRun
from skws.sources.addresses import parse_source
from skws.sources.feed import Batch, Offset, Source
from skws.sources.partitions import stream_time
from skws.sources.replays import ReplayFeed
from skws.spec.job import Job
from skws.spec.query_spec import Query
from skws_mesh.backend import OperatorState, states_of
from skws_mesh.candidate_networks import Prefix
from skws_purging.retention import LogPart, Retention
from skws_schema.budgets import explain_refusals
from skws_schema.errors import SourceError, StateError, UsageError
from skws_schema.model import Schema
from skws_windows.window import MICROSECOND, TimeWindow, Unbounded

if TYPE_CHECKING:
    from skws.queries.keywords.diagnosis import EmptyResult
    from skws.queries.windowed.stream_windows import WindowSpan

FEW_RECORDS: Final = 50_000
"""A log with at most this number of records is not checked."""
TAIL_BYTES: Final = 4 << 20
"""Bytes of the log that are not in row files: they add some tenths of a second to a start. Their rows move to
a file in one step, so with more bytes results would wait longer."""


class LocalWatch:
    """Runs a job in this process, results to ``sinks``.

    ``each_step`` is called after each step; ``job_listener`` gets the records and ``listener`` the
    micro-batches, all in the job's thread. Another thread may read or search ``worker`` inside ``turns``.
    ``source`` replaces the request's address. With ``keep_alive``, the job answers commands after its source
    ends. ``plans``: existing plans of the queries.

    Raises QueryError, UsageError, SourceError before anything is opened.
    """

    def __init__(
        self,
        request: Job,
        sinks: Sequence[Sink],
        log: Log,
        *,
        control: RunControl | None = None,
        each_step: Callable[[], None] = lambda: None,
        job_listener: JobListener | None = None,
        listener: BatchListener | None = None,
        source: Source | None = None,
        keep_alive: bool = False,
        plans: Mapping[str, QueryPlan] | None = None,
    ) -> None:
        self.request = request
        self.control = control or RunControl(request)
        self.clock = self.control.clock
        self._plans = plans_of(request) if plans is None else plans
        self._start_queries = {name: plan.query for name, plan in self._plans.items()}
        self._given_names: Collection[str] = self._start_queries
        warn_by(partial(log.warning, "memory"))
        self._sinks = sinks
        self._log = log
        self._command_queue = CommandQueue(log, self.control)
        self._each_step = each_step
        self._job_listener = job_listener
        self._listener = listener
        self.turns = Turns()
        self._keep_alive = keep_alive
        folder = None if request.checkpoint is None else request.checkpoint / "source"
        source = source or parse_source(
            request.source,
            folder=folder,
            clock=self.control.pace,
            resumable=folder is not None,
            ahead=request.ahead,
        )
        self._input = Input(source, self.control, log, request)
        if request.checkpoint is not None and source.local_only:
            raise UsageError("--checkpoint needs a source that can be read again, and standard input cannot")
        self._checkpoint: Checkpoint | None = None
        self._control_folder: ControlFolder | None = None
        self._recent: Recent | None = None
        self._run: SinkRun | None = None
        self._fanout: SinkFanout | None = None
        self._prepare(request)
        self._state: State = "starting"
        self._limit_reached = False  # the limit of results is reached
        self._start: RunStart | None = None  # while the static tables have not all arrived
        self._tables: list[RecordBatch] = []
        self._table_dead_letters: tuple[str, ...] = ()  # of static tables, for the first micro-batch
        self._first_late: Late | None = None
        self._late_warned = self._unwritable_warned = False
        self._offset: Offset = {}
        self._last: JournalEntry | None = None  # the last entry, without its records
        self._checked_records = 0  # records of the log that may be alive
        self._checked_tail = 0  # bytes of the log when it could not be replaced by its live records
        self._number = self._written_number = self._committed_number = 0
        self._committed_position: Position | None = None
        self._committed_at = self.clock.now()

    def _prepare(self, request: Job) -> None:
        self.worker = BatchWorker(request, self._log_before, self._plans)
        self.gauges = Gauges(request, self.clock.now())
        self.intake = BadRecordPolicy(request.on_error)
        self.sizer = BatchSizer()
        if request.keeps_past and self._checkpoint is None:
            self._recent = Recent(self._is_over)

    @property
    def source_name(self) -> str:
        """The source without its password; a replay with its speed."""
        return as_unicode(name_at_rate(self._input.source.name, self.control.pace.rate))

    @property
    def event_time(self) -> int | None:
        return self.gauges.event_time

    @property
    def schema(self) -> Schema:
        return self.worker.standing_queries.stream.schema

    @property
    def standing_queries(self) -> tuple[Query, ...]:
        return self.worker.standing_queries.all_queries()

    @property
    def ready(self) -> bool:
        """True once the static tables are loaded and the initial queries are answered."""
        return self._state != "starting" and self._start is None

    @property
    def ended(self) -> bool:
        """True if the source ended, or the limit is reached."""
        return self._state == "ended"

    def run(self) -> None:
        """Run until the source ends, the limit is reached or the control stops it.

        Raises SkwsError; KeyboardInterrupt if a signal ended it.
        """
        start = perf_counter()
        publishing = Publishing(self.request, self._log, self.control)
        with publishing, ending_on_signals(self.control.stop) as signals:
            try:
                self._loop(publishing)
            finally:
                bad = self.intake.bad
                if bad.count:
                    self._log.warning("bad records", bad.summary(), bad=bad.count)
                publishing.publish(self.metrics)
            metrics = self.metrics()
        self._log.info("ended", metrics.summary(perf_counter() - start), **metrics.totals())
        if signals:
            raise KeyboardInterrupt

    def _loop(self, publishing: Publishing) -> None:
        failed = True
        with explain_refusals():
            try:
                self.open()
                rest = Rest(self.clock)
                while not (self.control.stopping or (self.ended and not self._keep_alive)):
                    rest.after(busy=self.step())
                    publishing.each_second(self.clock.now(), self.metrics)
                failed = False
            finally:
                self.close(failed=failed)

    def open(self) -> None:
        """Prepare everything, and answer the initial queries. Waits while the source is unavailable."""
        expect_long_lived_objects()
        return_large_arrays()
        request = self.request
        if request.checkpoint is not None:
            self._checkpoint = Checkpoint(request.checkpoint, request)
            request = self._first_request(self._checkpoint, request)
            self._prepare(request)
        if request.control is not None:
            self._control_folder = ControlFolder(request.control)
            self._control_folder.take()
        self._run = self._new_run(request)
        with nullcontext() if self._checkpoint is None else self._checkpoint.committing():
            self._fanout = SinkFanout(self._sinks, request.dead_letters, self._run)
        if self._listener is not None:
            self._listener.open(self._run)
        start = self._starting_point(request)
        if start is None:
            return
        tell_missing(self.schema, self.intake.bad, partial(self._log.warning, "source"))
        self._command_queue.open(self._control_folder, start.control)
        if self._input.tables_pending:
            self._start = start
        else:
            self._begin(start)
        self._state = "ended" if self._limit_reached else "running"
        self._log.info(
            "started",
            f"watching {name_with_pace(self.source_name, self.request)}",
            source=self.source_name,
            batch=start.number,
        )

    def step(self) -> bool:
        """Take one micro-batch through all stages; False if there was nothing to do."""
        if self._start is not None:
            return self._poll_tables(self._start)
        if (move := self.control.take_move()) is not None:
            self._move(move)
        commands, batch = self._poll()
        time_advances = stream_time(batch.end) != stream_time(self._offset)
        busy = bool(commands or len(batch.read) or time_advances or (batch.ended and self.worker.live.waits))
        with self.turns.turn():
            if busy:
                self._take(commands, batch)
            self._offset = batch.end
            if self.clock.now() - self._committed_at >= self._open_fanout.every * MICROSECOND:
                self.commit()
        self._warn_of_late()
        if batch.ended or self._limit_reached:
            self._end()
        self.gauges.sample(self.clock.now())
        self._each_step()
        return busy

    def _poll(self) -> tuple[list[JobCommand], Batch]:
        """New commands and records. A change of the schema comes without records."""
        commands = self._fitting_commands(self._command_queue.commands(self.worker.standing_queries))
        if any(command.op == "schema" for command in commands):
            return commands, Batch(NOTHING, self._offset)
        start = perf_counter()
        batch = self._input.poll(self._offset, self.sizer.limit)
        self.gauges.count_seconds("read", perf_counter() - start)
        feed = self._input.feed
        self.control.times = feed.times if isinstance(feed, ReplayFeed) else None
        return commands, batch

    def _take(self, commands: list[JobCommand], batch: Batch) -> None:
        """Log, process and write a micro-batch. Raises BadRecordsError, SinkError, StateError."""
        arrival = self.clock.now()
        start = perf_counter()
        records, late = self.worker.sort_out(batch.read.records)
        entry = self._log_batch(commands, batch, records, self._late_dead_letters(late))
        log_end = perf_counter()
        outcome = self.worker.work(entry)
        outcome = replace(outcome, late=[*late, *outcome.late])
        self._log_begins()
        self.gauges.count_seconds("journal", log_end - start)
        self.gauges.count_seconds("engine", perf_counter() - log_end)
        self._write(entry, outcome)
        self._show_schema()
        seconds = (self.clock.now() - arrival) / MICROSECOND
        # Snapshots belong to commands: fewer records would not make them smaller.
        result_count = sum(not result.snapshot for result in outcome.results)
        self.sizer.adapt(len(entry.records), seconds, result_count)
        self.gauges.count_batch(seconds)
        if commands:
            self._command_queue.finish(commands, self.worker.standing_queries)

    def _move(self, move: Move) -> None:
        """Move a replay to an instant, after the current micro-batch is complete."""
        feed, now = self._input.feed, self.event_time
        times = feed.times if isinstance(feed, ReplayFeed) else None
        if (
            not isinstance(feed, ReplayFeed)
            or self._checkpoint is not None
            or self._listener is not None
            or times is None
            or times.first is None
            or times.last is None
        ):
            self._log.warning("source", "this job cannot move in time: only replays without a checkpoint can")
            return
        if isinstance(move, str):
            target = feed.next_time if move == "next" else None if now is None else now - 1
            if target is None:
                return
            move = target
        time = min(max(move, times.first), times.last)
        # Event time does not pass in a gap between records: tuples that were alive before it still are.
        start = self._history_start(times.before(time))
        with self.turns.turn():
            self._state = "running"
            if now is None or time < now or start > now:
                self._rebuild(feed, start, time)
            else:
                self._take_until(feed, None, time)

    def _take_until(self, feed: ReplayFeed, start: int | None, time: int) -> None:
        for batch in feed.seek(start, time):
            self._take([], batch)
            self._offset = batch.end
            if self.control.moving or self.control.stopping:
                return  # another move adds the queries in any case

    def _history_start(self, time: int) -> int:
        """The time of the first records that the state at ``time`` depends on."""
        operators = self.worker.live.operators.values()
        windows = {self.request.plan_window, *self.worker.live.keeps}
        lengths = [window.length for window in windows if isinstance(window, TimeWindow)]
        if len(lengths) < len(windows) or any(operator.keeps is None for operator in operators):
            return EARLIEST
        # As in logs, since the number of a tuple among equal tuples depends on those alive at its start.
        return time - 2 * max(lengths) - self.request.stream.lateness

    def _rebuild(self, feed: ReplayFeed, start: int, time: int) -> None:
        """Start again from the records since ``start``; queries then return the results alive at ``time``."""
        queries = self.standing_queries
        self._prepare(replace(self.request, schema=self.schema, queries={}))
        self.worker.load_tables(self._tables)
        if self._job_listener is not None:
            self._job_listener.moved()
            self._job_listener.load_tables(self._tables)
        self._take_until(feed, start, time)
        self._take([JobCommand.add(query) for query in queries], Batch(NOTHING, self._offset))

    def _log_batch(
        self, commands: list[JobCommand], batch: Batch, records: RecordBatch, late_letters: tuple[str, ...]
    ) -> JournalEntry:
        """The micro-batch, appended to the log. ``late_letters``: the dead letters of late records."""
        bad = batch.read.bad
        dead_letters = (*self._table_dead_letters, *self.intake.refuse(bad), *late_letters)
        self._table_dead_letters = ()
        self._warn_of_bad()
        self._number += 1
        entry = JournalEntry(
            self._number,
            batch.end,
            self._command_queue.read_to,
            tuple(commands),
            records,
            dead_letters,
            len(malformed(bad)),
            batch.ended,
        )
        log = self._recent if self._checkpoint is None else self._checkpoint.journal
        if log is not None:
            entry = log.append(entry, self.worker.prior_state)
        self._last = replace(entry, commands=(), records=NO_RECORDS, letters=())
        return entry

    def _log_begins(self) -> None:
        """Log the begins of the results that the last micro-batch updated."""
        begins = self.worker.live.begins()
        if self._checkpoint is not None:
            self._checkpoint.journal.append_begins(begins)
        elif self._recent is not None:
            self._rewrite_log(self._recent)

    def _rewrite_log(self, log: Journal | Recent) -> int | None:
        """The first entry to keep if the log was replaced by its live records; otherwise None.

        The log is replaced if most of its records are dead. This is checked whenever it has twice as many
        records as were alive at the last check, so on average each record is checked and rewritten at most
        twice. Records that live long also move to row files once the log would delay a start. A log that is
        mostly without records is replaced, too.
        """
        if self._last is None:
            return None
        is_long = log.tail > max(TAIL_BYTES, 2 * self._checked_tail) and (self._is_unbounded or log.is_idle)
        if not (is_long or self._is_mostly_dead(log)) or not log.replaceable(self._last.number):
            return None
        replacement = self.worker.log_replacement(self._last, log.recent)
        if replacement is None:
            self._checked_records, self._checked_tail = log.records, log.tail
            return None
        self._checked_records, self._checked_tail = replacement.size, 0
        if not is_long and 2 * replacement.size > log.records:
            return None
        recent = replacement.entry.recent
        log_part = LogPart(replacement.live.latest, self.worker.live.position)
        self.worker.live.log_replaced(log_part, recent[0].position if record_count(recent) else None)
        first = log.rewrite(replacement)
        self._checked_tail = log.tail
        return first

    def _is_mostly_dead(self, log: Journal | Recent) -> bool:
        """True if a log has grown since the last check, and at least half of its records are dead."""
        if log.records <= 2 * self._checked_records + FEW_RECORDS:
            return False
        live_count = self.worker.live.living
        if 2 * live_count > log.records:  # as when a database is loaded
            self._checked_records = live_count
            return False
        return True

    @property
    def _is_unbounded(self) -> bool:
        return isinstance(self.request.plan_window, Unbounded)

    def _repeat(self, entry: JournalEntry, outcome: BatchOutcome) -> None:
        """Write a micro-batch that an earlier process logged, and count its late records."""
        self.gauges.counters["late"] += sum(
            orjson.loads(letter)["source"] == "late" for letter in entry.letters
        )
        self._write(entry, outcome)

    def _write(self, entry: JournalEntry, outcome: BatchOutcome) -> None:
        """Write the results of a micro-batch, up to the limit."""
        results, unwritable = self.intake.writable(outcome.results)
        self._warn_of_unwritable(unwritable)
        results, self._limit_reached = self.gauges.up_to_limit(results, self.request.limit)
        dead_letters = (*entry.letters, *self._dead_letters(unwritable))
        if self._checkpoint is not None and (results or dead_letters or entry.commands):
            # No written result may come again in another batch, and no answered command may be lost.
            self._checkpoint.journal.sync()
        if self._listener is not None:
            earlier = outcome.earlier_queries
            queries = self.worker.standing_queries.all_queries if earlier is None else lambda: earlier
            self._listener.take(entry.number, entry.commands, results, queries)
        start = perf_counter()
        for bad in self._open_fanout.write(entry.number, results, dead_letters):
            self.intake.bad.note(bad)
        self.gauges.count_seconds("sinks", perf_counter() - start)
        self._written_number = entry.number
        late_records = [late.record for late in outcome.late]
        records = entry.records.whole
        all_records = concat_batches([records, RecordBatch.of(late_records)]) if late_records else records
        self.gauges.count_output(all_records, results, late_records)
        self._first_late = self._first_late or next(iter(outcome.late), None)
        if self._job_listener is not None:
            self._job_listener.add(records)

    def commit(self) -> None:
        """Make everything written durable in the sinks, then in the checkpoint, then in the source."""
        checkpoint = self._checkpoint
        if checkpoint is not None:
            checkpoint.journal.sync()
        if self._listener is not None:
            self._listener.flush()
        if checkpoint is None:
            self._flush_sinks()
        else:
            # The source may have skipped records of other tables, which it may then forget, too.
            position = Position(self._offset, self._command_queue.read_to)
            with checkpoint.committing():
                self._flush_sinks()
                first = self._commit_batch(checkpoint, position)
            self._committed_number, self._committed_position = self._written_number, position
            checkpoint.journal.trim(first)
        self._input.commit(self._offset)
        self._committed_at = self.clock.now()

    def _flush_sinks(self) -> None:
        start = perf_counter()
        self._open_fanout.flush()
        self.gauges.count_seconds("sinks", perf_counter() - start)

    def _commit_batch(self, checkpoint: Checkpoint, position: Position) -> int:
        """Commit everything written or skipped, if anything; returns the first journal entry to keep."""
        if self._committed_number == self._written_number and self._committed_position == position:
            return checkpoint.journal_start()
        first = checkpoint.journal.first_to_keep(lambda part: self._is_over(part.log_part))
        first = self._rewrite_log(checkpoint.journal) or first
        checkpoint.commit(self._written_number, self.worker.live.snapshot(), first, position)
        return first

    def close(self, *, failed: bool = False) -> None:
        """Commit unless the run ``failed``, and release everything."""
        try:
            if not failed and self._state != "starting":
                self.commit()
        except BaseException:
            failed = True
            raise
        finally:
            self._state = "ended"
            self.control.end("the job has ended: restart it to change queries")
            if self._fanout is not None:
                # After a failure, only results of durable journal entries are flushed.
                self._fanout.close(failed=failed and self._journal_synced())
            if self._listener is not None:
                self._listener.close()
            self._input.close(resumable=self._checkpoint is not None)
            if self._control_folder is not None:
                self._control_folder.release()
            if self._checkpoint is not None:
                self._checkpoint.close()

    def metrics(self) -> Metrics:
        now = self.clock.now()
        return self.gauges.metrics(
            now,
            state="paused" if self.control.pace.paused and self._state == "running" else self._state,
            source=self.source_name,
            backlog=self._input.backlog(self._offset, now, ended=self.ended),
            bad=self.intake.bad.count,
            load=self.worker.live.load(),
            queries=self.standing_queries,
            log_bytes=0 if self._checkpoint is None else self._checkpoint.journal.size,
        )

    @property
    def silent_queries(self) -> list[Query]:
        return self.gauges.silent_queries(self.standing_queries)

    def windows_of(self, name: str) -> Sequence[WindowSpan]:
        return self.worker.live.window_spans(name)

    def operators(self, name: str) -> Mapping[Prefix, OperatorState]:
        return states_of(self.worker.live.used(name))

    def why_nothing(self, name: str) -> EmptyResult | None:
        return self.worker.live.why_nothing(name)

    def bad_reason(self) -> str:
        bad = self.intake.bad
        return bad.summary().splitlines()[-1].strip() if bad.first else ""

    def forget(self, name: str) -> None:
        self.gauges.forget(name)

    def record_queries(self, names: Collection[str]) -> None:
        self._given_names = {*self._start_queries, *names}
        if self._checkpoint is not None and self._start is None:
            self._checkpoint.record_start(self._given_names)

    @property
    def _open_fanout(self) -> SinkFanout:
        assert self._fanout is not None  # noqa: S101 - open comes first
        return self._fanout

    def _first_request(self, checkpoint: Checkpoint, request: Job) -> Job:
        """The request with the run's first schema.

        Raises SchemaError if the run cannot change to this one.
        """
        if checkpoint.fresh:
            return request
        first_request = replace(request, schema=checkpoint.first_schema())
        if checkpoint.new_schema() is not None:
            first_queries = load_standing_queries(checkpoint, first_request)
            first_queries.restart_commands(
                self._start_queries, checkpoint.query_names(), checkpoint.new_schema()
            )
        return first_request

    def _new_run(self, request: Job) -> SinkRun:
        """The description of the run for its sinks."""
        checkpoint = self._checkpoint
        options: dict[str, Any] = (
            {"id": uuid4().hex, "state": None} if checkpoint is None else checkpoint.run_fields()
        )
        return SinkRun(
            **options,
            schema=request.schema,
            match_names=request.match_names,
            wait=self.control.wait,
            tell=lambda line: self._log.warning("sink", line),
            repeating=checkpoint is not None and not checkpoint.fresh,
        )

    def _starting_point(self, request: Job) -> RunStart | None:
        """None if the job was stopped before its source was available."""
        checkpoint = self._checkpoint
        if checkpoint is None or checkpoint.fresh:
            return self._first_start(request)
        start = resume(self.worker, checkpoint, self._repeat, NONE if self._run is None else self._run.held)
        if self._run is not None:
            self._run.end_repetition()
        self._show_schema()
        schema = checkpoint.new_schema()
        # With the schema that this start changes to: the source may no longer fit the old one.
        next_schema = (
            self.schema if schema is None else changed(self.worker.standing_queries.stream, schema).schema
        )
        if not self._input.resume(next_schema):
            return None
        self._log.info("resumed", f"resuming after micro-batch {start.number}", batch=start.number)
        return start

    def _first_start(self, request: Job) -> RunStart | None:
        start = self._input.begin(request.schema)
        if start is None:
            return None
        offset, tables = start
        if not self._input.tables_pending:
            self._tables = list(self._good_rows(tables))
            if self._checkpoint is not None:
                self._checkpoint.begin(self._tables, offset)
            self.worker.load_tables(self._tables)
        return RunStart(offset)

    def _begin(self, start: RunStart) -> None:
        """Continue from ``start``, with the queries of this process."""
        self._offset = start.offset
        self._number = self._written_number = start.number
        checkpoint = self._checkpoint
        schema = None if checkpoint is None else checkpoint.new_schema()
        commands = self.worker.standing_queries.restart_commands(
            self._start_queries, start.query_names, schema
        )
        self._change_source_schema(commands)
        if checkpoint is not None and start.control is None:
            # Commands that are older than the run are not carried out later either.
            checkpoint.commit(0, {}, position=Position(self._offset, self._command_queue.read_to))
        if commands:
            self._take(commands, Batch(NOTHING, self._offset))
        else:
            self._command_queue.finish((), self.worker.standing_queries)
        if checkpoint is not None:
            checkpoint.record_start(self._given_names)

    def _poll_tables(self, start: RunStart) -> bool:
        """Read static tables, which come before the stream and all queries. False if no row came."""
        tables = self._input.poll_tables()
        self._tables += self._good_rows(tables)
        if not self._input.tables_pending:
            self._tables = large_batches(self._tables)
            self.worker.load_tables(self._tables)
            self._begin(replace(start, offset=self._input.feed.start()))
            self._start = None  # last, since other threads read the session of a job that is ``ready``
        self._each_step()
        return any(tables) or self._start is None

    def _good_rows(self, tables: StaticTables) -> Sequence[RecordBatch]:
        """The good rows of static tables. Raises BadRecordsError for a bad row if the policy is to fail."""
        self._table_dead_letters += self.intake.refuse(tables.bad)
        if self._job_listener is not None:
            self._job_listener.load_tables(tables.batches)
        return tables.batches

    def _fitting_commands(self, commands: list[JobCommand]) -> list[JobCommand]:
        """The commands, without schema changes that the source refuses; these are answered here."""
        try:
            self._change_source_schema(commands)
        except SourceError as error:
            self._command_queue.answer(
                [Answer(command.id, str(error)) for command in commands if command.op == "schema"]
            )
            good, refusals = self.worker.standing_queries.validate(
                [command for command in commands if command.op != "schema"]
            )
            self._command_queue.answer(refusals)
            return good
        return commands

    def _change_source_schema(self, commands: list[JobCommand]) -> None:
        """Make the source read with the schema that commands change to. Raises SourceError."""
        current = stream = self.worker.standing_queries.stream
        for command in commands:
            stream = changed(stream, command.schema) if command.op == "schema" else stream
        if stream != current:
            self._input.change_schema(stream.schema)

    def _show_schema(self) -> None:
        """Show the current schema to metrics and sinks."""
        self.gauges.schema = self.schema
        if self._run is not None:
            self._run.schema = self.schema

    def _end(self) -> None:
        if self._keep_alive and not self.ended:
            self._log.info("source", "the source has ended; its last window is still searched")
        self._state = "ended"

    def _late_dead_letters(self, late: Sequence[Late]) -> tuple[str, ...]:
        return self._dead_letters(late_letters(late, self.schema, self.request.stream.lateness))

    def _dead_letters(self, bad: Sequence[BadRecord]) -> tuple[str, ...]:
        return () if self.request.dead_letters is None else self.intake.dead_letter_lines(bad)

    def _warn_of_unwritable(self, unwritable: Sequence[BadRecord]) -> None:
        """Warn of the first result that cannot be written, once."""
        if unwritable and not self._unwritable_warned:
            self._unwritable_warned = True
            self._log.warning("result", unwritable_notice(unwritable[0]))

    def _warn_of_bad(self) -> None:
        for line in self.intake.news():
            self._log.warning("source", line)

    def _warn_of_late(self) -> None:
        """Warn of the first late record, once."""
        if self._first_late is not None and not self._late_warned:
            self._late_warned = True
            notice = late_notice(self._first_late, self.schema, self.request.stream.lateness)
            self._log.warning("late", notice)

    def _log_before(self, number: int) -> Iterable[LoggedBatch]:
        log = self._recent if self._checkpoint is None else self._checkpoint.journal
        return () if log is None else self.worker.with_recent(log.before(number))

    def _is_over(self, part: LogPart) -> bool:
        """True if nothing alive depends on a part of the log."""
        live = self.worker.live
        return Retention(live.keeps).is_obsolete(part, live.settled, live.position)

    def _journal_synced(self) -> bool:
        try:
            if self._checkpoint is not None:
                self._checkpoint.journal.sync()
        except StateError:
            return False
        return True
