"""Merges the output of the shards: results go to the sinks in order, counts to the metrics.

Spark continues once a batch is in the outbox, so a slow sink delays it only if ``AHEAD`` batches are
waiting.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import suppress
from heapq import merge
from itertools import repeat
from queue import Empty, Full, Queue
from threading import Event
from typing import Any, Final

import orjson
from msgspec import convert

from skws.data.batch import NO_RECORDS, RecordBatch
from skws.data.packing import decompress, rejoin, unpack
from skws.durable import damaged
from skws.formats.dead_letters import IGNORED, place
from skws.jobs.clock import StoppableClock
from skws.jobs.control import JobCommand, JobListener
from skws.jobs.fanout import SinkFanout
from skws.jobs.log import Log
from skws.jobs.metrics import Gauges
from skws.queries.keywords.updates import ShardUpdates
from skws.queries.kinds import moment
from skws.results.result import EncodedResult, LiveResult
from skws.sources.feed import Backlog
from skws.spark.streaming.messages import RECORDS, BatchHeader
from skws.spark.streaming.run_directory import Output, RunDirectory
from skws.spark.streaming.shard_server import ShardStats
from skws.spec.enums import ToldUpdates
from skws.spec.job import Job
from skws_windows.window import MICROSECOND

_KEPT_REASONS: Final = 5


class OutputMerger:
    """Takes batches in order. ``done`` is called with the commands that were carried out.

    ``full``: the limit of results is reached. ``ended``: the source has ended. ``job_listener``: gets the
    records after their results, and internal figures (``shard_stats``). ``updates``: makes updates of the
    results of shards; its state is in each commit.
    """

    def __init__(
        self,
        request: Job,
        log: Log,
        gauges: Gauges,
        done: Callable[[tuple[JobCommand, ...]], None],
        job_listener: JobListener | None = None,
    ) -> None:
        self._request = request
        self._log = log
        self._gauges = gauges
        self._done = done
        self._job_listener = job_listener
        self._delivery: SinkFanout | None = None
        self.table_dead_letters: tuple[str, ...] = ()
        self.full = self.ended = False
        self.delivered = 0
        self.bad = 0
        self.updates = ShardUpdates(replaces=request.updates is ToldUpdates.REPLACE)
        self._late_reported = False  # a warning about late records was given
        self._unwritable_reported = False
        self._task_notices: set[str] = set()
        self.reasons: list[str] = []
        self.backlog = Backlog()
        self.live = self.operators = self.waiting = self.log_bytes = 0
        self.shard_stats = ShardStats()

    @property
    def delivery(self) -> SinkFanout:
        assert self._delivery is not None  # noqa: S101 - deliver_to comes first
        return self._delivery

    def deliver_to(self, delivery: SinkFanout) -> None:
        self._delivery = delivery

    def take(self, output: Output, *, again: bool = False) -> None:
        """Deliver one batch. ``again``: an earlier process put it into the outbox. Raises SinkError."""
        shard_stats = [(shard, orjson.loads(blob)) for shard, part, blob in output.rows if part == 0]
        stats = [entry for _, entry in shard_stats]
        heads = [convert(entry["head"], BatchHeader) for entry in stats if "head" in entry]
        for command in (command for head in heads for command in head.commands if command.op == "remove"):
            self.updates.remove(command.name)
        results = self.updates.take(results_of(output))
        results, self.full = self._gauges.up_to_limit(results, self._request.limit)
        dead_letters = tuple(letter for head in heads for letter in head.letters)
        for entry in stats:
            dead_letters += tuple(entry.get("late_letters", ()))
            if "unwritable" in entry:
                dead_letters += self._unwritable(entry["unwritable"])
        for head in heads:
            self._apply_header(head, again=again)
        if self.table_dead_letters and not again:
            dead_letters, self.table_dead_letters = (*self.table_dead_letters, *dead_letters), ()
        start = time.perf_counter()
        bad_records = self.delivery.write(output.number, results, dead_letters)
        self.bad += len(bad_records)
        self.reasons = [*self.reasons, *(f"{place(record)}: {record.reason}" for record in bad_records)][
            :_KEPT_REASONS
        ]
        sinks = time.perf_counter() - start
        self.delivered = output.number
        self._count(shard_stats, results)
        if self._job_listener is not None:
            for records in records_of(output):
                self._job_listener.add(records)
        if heads and not again:
            engine: defaultdict[int, float] = defaultdict(float)
            for shard, entry in shard_stats:
                engine[shard] += entry["seconds"]
            self._record_times(heads[0], max(engine.values()), sinks)

    def _record_times(self, head: BatchHeader, engine: float, sinks: float) -> None:
        """Record that a batch is complete. ``engine``: the seconds of the slowest shard."""
        seconds = time.time() - head.read
        self._gauges.count_batch(seconds)
        for stage, stage_seconds in (
            ("read", head.reading),
            ("engine", engine),
            ("sinks", sinks),
            ("spark", max(0.0, seconds - engine - sinks)),
        ):
            self._gauges.count_seconds(stage, stage_seconds)

    def _apply_header(self, head: BatchHeader, *, again: bool) -> None:
        """Handles the parts of a batch that do not depend on its results."""
        for notice in (*head.notices, *filter(self._is_new, head.task_notices)):
            self._log.warning("source", notice)
        if head.commands:
            self._done(head.commands)
        self.ended = self.ended or (head.ended and not again)
        self.backlog = head.backlog or self.backlog
        self.bad += head.bad
        self.reasons = [*self.reasons, *head.reasons][:_KEPT_REASONS]

    def _is_new(self, notice: str) -> bool:
        """True for the first notice of a task on a bad record, and on each reason to ignore values."""
        subject = notice if notice.startswith(IGNORED) else notice.partition(":")[0]
        is_new = subject not in self._task_notices
        self._task_notices.add(subject)
        return is_new

    def _unwritable(self, report: dict[str, Any]) -> tuple[str, ...]:
        """Count the results of a shard that cannot be written; returns their dead letters."""
        if not self._unwritable_reported:
            self._unwritable_reported = True
            self._log.warning("result", report["notice"])
        self.bad += len(report["letters"])
        self.reasons = [*self.reasons, *report["reasons"]][:_KEPT_REASONS]
        return tuple(report["letters"])

    def _count(self, shard_stats: list[tuple[int, dict[str, Any]]], results: list[LiveResult]) -> None:
        """Count results, and the records in stats: of all shards if they divide them, else of the first."""
        self._gauges.count_output(NO_RECORDS, results)
        counters = self._gauges.counters
        for stats in (stats for _, stats in shard_stats if "relations" in stats):
            if stats["late_notice"] and not self._late_reported:
                self._late_reported = True
                self._log.warning("late", stats["late_notice"])
            for relation, count in enumerate(stats["relations"]):
                if count:
                    counters["relation", relation] += count
                    counters["tuples"] += count
            counters["deletions"] += stats["deletions"]
            counters["late"] += stats["late"]
            if stats["latest"] is not None:
                self._gauges.event_time = max(stats["latest"], self._gauges.event_time or stats["latest"])
        latest_stats = dict(shard_stats).values()  # the latest of each shard
        if latest_stats:
            self.live = sum(stats.get("live", 0) for stats in latest_stats)
            self.log_bytes = sum(stats.get("log_bytes", 0) for stats in latest_stats)
            self.operators = max(stats["operators"] for stats in latest_stats)
            self.waiting = sum(stats["waiting"] for stats in latest_stats)
            self.shard_stats = ShardStats.of(latest_stats) or self.shard_stats

    def bad_summary(self) -> str:
        """One line with the count, then a line for each of the first few reasons."""
        lines = [f"{self.bad} bad record{'' if self.bad == 1 else 's'}"]
        return "\n".join([*lines, *(f"  {reason}" for reason in self.reasons)])


def results_of(output: Output) -> list[tuple[int, LiveResult]]:
    """The results in the order of one engine, each with its shard: by time, retractions first, then by id.

    The results of a shard keep their order: a result that ends before it begins, since its tuples had ended,
    is retracted after it is reported.
    """
    results: defaultdict[int, list[LiveResult]] = defaultdict(list)
    for shard, part, blob in output.rows:
        if 0 < part < RECORDS:
            results[shard] += map(EncodedResult, decompress(blob).split(b"\n"))
    return list(merge(*(zip(repeat(shard), own) for shard, own in results.items()), key=_order_key))


def _order_key(pair: tuple[int, LiveResult]) -> tuple[bool, float, bool, str]:
    """Sorts snapshots before the results of the batch's records; otherwise the order is kept."""
    _, result = pair
    return not result.snapshot, moment(result) * MICROSECOND, result.op != "-", result.id


def records_of(output: Output) -> Iterator[RecordBatch]:
    """The records of each micro-batch, if there was a listener; merged if shards divide them."""
    shard_blobs: defaultdict[int, list[bytes]] = defaultdict(list)
    for shard, part, blob in output.rows:
        if part == RECORDS:
            shard_blobs[shard].append(blob)
    for parts in zip(*shard_blobs.values(), strict=True):
        yield unpack(parts[0]) if len(parts) == 1 else rejoin(parts)


_UPDATES: Final = "updates of shards"
AHEAD: Final = 16
"""The most batches that wait for the sinks; then the job waits, too."""
TICK: Final = 0.1  # seconds


class OutputCommitter:
    """Passes the batches of an earlier process to the sinks at once. Raises SinkError, StateError.

    ``last_written``: the last batch that a sink had when it was opened, or that Spark considers done. If the
    outbox has lost it, Spark does not repeat it, or repeats it with shards of another layout for sinks that
    may have it. No thread waits for space in the queue once ``clock`` is stopping.
    """

    def __init__(
        self, run_directory: RunDirectory, merger: OutputMerger, clock: StoppableClock, last_written: int
    ) -> None:
        self._checkpoint: Final = run_directory.checkpoint
        self._merger = merger
        self._clock = clock
        self._outbox = run_directory.outbox()
        self._queue: Queue[Output] = Queue(AHEAD)
        self._closing = Event()
        self._flush_time = clock.now()
        committed = merger.delivered = self._checkpoint.committed_batch()
        merger.updates.restore(self._checkpoint.states().get(_UPDATES, b""))
        for output in self._undelivered(committed):
            merger.take(output, again=True)
        if self.last < last_written:
            raise damaged(self._outbox.folder, f" (it has {self.last:,} of {last_written:,} micro-batches)")

    @property
    def last(self) -> int:
        """The number of the last batch from the job; 0 before the first."""
        return self._outbox.last

    def put(self, output: Output) -> None:
        """Takes the output of a batch from the job's thread. Raises StateError, also for a gap."""
        if output.number == self._outbox.last:
            return  # Spark repeats it, as it was not recorded as done
        self._outbox.put(output)
        while not (self._closing.is_set() or self._clock.stopping.is_set()):
            with suppress(Full):
                self._queue.put(output, timeout=TICK)
                return

    def deliver(self) -> bool:
        """Delivers one batch, if one arrives within a tick."""
        with suppress(Empty):
            self._merger.take(self._queue.get(timeout=TICK))
            return True
        return False

    def deliver_rest(self) -> None:
        """Delivers all waiting batches, up to the limit of results."""
        with suppress(Empty):
            while not self._merger.full:
                self._merger.take(self._queue.get_nowait())

    def commit_if_due(self) -> None:
        """Commits at the intervals of the sinks."""
        if self._clock.now() - self._flush_time >= self._merger.delivery.every * MICROSECOND:
            self.commit()

    def commit(self) -> None:
        """Makes the delivered results durable in all sinks."""
        updates = self._merger.updates.snapshot()
        with self._checkpoint.committing():
            self._merger.delivery.flush()
            self._checkpoint.commit(self._merger.delivered, {_UPDATES: updates} if updates else {})
        self._outbox.trim(self._merger.delivered)
        self._flush_time = self._clock.now()

    def stop_waiting(self) -> None:
        """Stop the job's thread from waiting for the sinks."""
        self._closing.set()

    def close(self) -> None:
        self._outbox.close()

    def _undelivered(self, committed: int) -> Iterator[Output]:
        """The batches that an earlier process left for the sinks; read them all before all other calls."""
        first = committed + 1
        for output in self._outbox.open():
            if output.number > first:
                raise damaged(self._outbox.folder, f" (micro-batch {first:,} is missing)")
            if output.number == first:
                first += 1
                yield output
        self._outbox.last = max(self._outbox.last, committed)
