"""The live job on Spark under simulation, without Spark: its reader, shards, state, outbox and commands.

The class ``Spark`` stands in for Spark: it writes down offsets before a micro-batch runs, runs a task for
each shard, commits their states, delivers their output, and marks the micro-batch as done. A kill may come
between any two of these steps; after it, the micro-batch is repeated from the same offsets.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from copy import deepcopy
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any, Final
from unittest.mock import patch

import orjson
from pyspark.sql.streaming.datasource import ReadAllAvailable

from skws.data import batch
from skws.formats.dead_letters import dead_letter, malformed
from skws.jobs.checkpoint import Checkpoint
from skws.jobs.control import JobCommand, RunControl
from skws.jobs.fanout import SinkFanout
from skws.jobs.journal import JournalEntry
from skws.jobs.metrics import Gauges
from skws.jobs.standing_queries import CommandQueue, StandingQueries
from skws.queries.session import Session
from skws.sinks.base import SinkRun
from skws.sources.retry import retry
from skws.spark.streaming import processor, reader, run_directory, shard_server
from skws.spark.streaming.layout import Blob, Layout, LayoutRequest, divide_chunks, plan_move
from skws.spark.streaming.messages import Chunk, ShardFailure
from skws.spark.streaming.output_merger import OutputCommitter, OutputMerger
from skws.spark.streaming.processor import MeshProcessor
from skws.spark.streaming.reader import FeedReader, PlanningReader, PolledBatch, Reading, beginning
from skws.spark.streaming.run_directory import (
    CommandLog,
    Output,
    OutputLog,
    ReplayControl,
    RunDirectory,
    in_order,
)
from skws.spark.streaming.shard_server import FEW_BYTES, ShardServer, _answer
from skws.spark.streaming.sharded_job import reads_in_tasks
from skws.spec.enums import EngineName
from skws.spec.job import Job
from skws.spec.query_spec import Query
from skws_schema import errors
from skws_schema.errors import NotYetError, SourceError
from tests.sim.local import LocalSimulation
from tests.sim.model import check
from tests.sim.plan import Options
from tests.sim.world import SimClock, World

Key = tuple[str, str]
Blobs = dict[Key, tuple[bytes, bytes]]
_TRIES: Final = 4  # of a task
_FIRST: Final = 6
_MOST: Final = 12
_READING_TASKS: Final = 3
_SEGMENT_BYTES: Final = 600
_LAYOUTS: Final = (1, 2, 3, 3)
_MOST_CHUNKS: Final = 18
_MOST_OF_PATTERNS: Final = 100  # in addition to the live ones
_FEW_BYTES: Final = 9_000
_LOGGED: Final = ("chunk", "live")


class TaskError(Exception):
    """The query ends with a temporary error, and is started again."""


@dataclass(slots=True)
class Generation:
    """Spark's checkpoint of one layout, which outlives processes. ``states``: of shards after a batch."""

    offsets: dict[int, tuple[dict[str, Any], dict[str, Any]]] = field(default_factory=dict)
    states: dict[int, dict[int, Blobs]] = field(default_factory=dict)
    done: set[int] = field(default_factory=set)


class MapState:
    """A variable of Spark's state, for one shard in one micro-batch."""

    def __init__(self, blobs: Blobs) -> None:
        self.blobs = dict(blobs)

    def getMapState(self, *_: object) -> MapState:  # noqa: N802 - Spark's name
        return self

    def updateValue(self, key: Key, value: tuple[bytes, bytes]) -> None:  # noqa: N802 - Spark's name
        self.blobs[key] = value

    def getValue(self, key: Key) -> tuple[bytes, bytes] | None:  # noqa: N802 - Spark's name
        return self.blobs.get(key)

    def removeKey(self, key: Key) -> None:  # noqa: N802 - Spark's name
        self.blobs.pop(key, None)

    def keys(self) -> Iterator[Key]:
        return iter(sorted(self.blobs))


class Spark:
    """One start of the streaming query. ``planned``: called once the offsets of a micro-batch are stored.

    ``few_bytes``: as for ``ShardServer``.
    """

    def __init__(
        self,
        world: World,
        generation: Generation,
        reading: Reading,
        planned: Callable[[], None],
        few_bytes: int,
    ) -> None:
        self._few_bytes = few_bytes
        self._world = world
        self._generation = generation
        self._reading = reading
        self._planned = planned
        self._servers: dict[int, ShardServer] = {}
        # Most batches of Spark consist of several micro-batches, or of parts that tasks read.
        self._reader = PlanningReader(FeedReader(reading, first=_FIRST, most=_MOST, part=3))

    def batch(self, put: Callable[[Output], None]) -> None:
        """One micro-batch, if there is one. Raises TaskError, SkwsError."""
        try:
            self._batch(put)
        except NotYetError:  # the query is started again until the server is there
            self._world.pass_time(1_000_000)
            raise TaskError from None
        except OSError as error:  # errors of the source's process, which Spark reports
            raise SourceError(f"the source's process has failed: {error}") from error

    def _batch(self, put: Callable[[Output], None]) -> None:
        generation, source, world = self._generation, self._reader, self._world
        number = max(generation.offsets, default=-1)
        if number >= 0 and number not in generation.done:
            start, end = generation.offsets[number]
        else:
            if number >= 0:
                source.commit(generation.offsets[number][1])
            start = generation.offsets[number][1] if number >= 0 else source.initialOffset()
            end = source.latestOffset(start, ReadAllAvailable())
            if end == start:
                return
            number += 1
            world.effect("offsets", "spark")
            generation.offsets[number] = start, end
            self._planned()
        parts = pickle.loads(pickle.dumps(list(source.partitions(start, end))))
        rows = [row for part in parts for row in part.rows()]
        outputs = []
        states: dict[int, Blobs] = {}
        for group in self._reading.layout.groups:
            shard_rows = [
                SimpleNamespace(sequence=sequence, place=place, blob=blob)
                for target, sequence, place, blob in rows
                if target == group
            ]
            output, states[group] = self._task(
                group, shard_rows, generation.states.get(number - 1, {}).get(group, {})
            )
            outputs += output
        marks = [orjson.loads(blobs["mark", ""][1]) for blobs in states.values()]
        check(len({(mark["epoch"], mark["now"]) for mark in marks}) == 1, "shards have diverged", marks)
        world.effect("state", "spark")
        generation.states[number] = states
        generation.states.pop(number - 2, None)
        put(Output(self._reading.layout.before + number + 1, in_order(outputs)))
        world.effect("done", "spark")
        generation.done.add(number)

    def _task(self, group: int, rows: list[Any], before: Blobs) -> tuple[list[tuple[int, int, bytes]], Blobs]:
        """The output of a shard, and its state; a task that fails is repeated from the same state."""
        reading = self._reading
        for _ in range(_TRIES):
            state = MapState(before)
            worker = MeshProcessor(reading.start, reading.request, reading.layout.shares)
            worker.init(state)  # type: ignore[arg-type]  # all that the processor uses of it
            try:
                output_rows = list(worker.handleInputRows((group,), iter(rows), None)) if rows else []  # type: ignore[arg-type]
            except RuntimeError:
                continue  # its server has gone
            return [(row.shard, row.part, bytes(row.output)) for row in output_rows], state.blobs
        raise TaskError

    def client(self, _run: str, request: Any, share: Any) -> Client:
        if share.number not in self._servers:
            server = ShardServer(pickle.loads(request), share, few_bytes=self._few_bytes)
            self._servers[share.number] = server
        return Client(self._world, self._servers, share.number)

    def close(self) -> None:
        pass


class Client:
    """Stands in for ``ShardClient``: the server may be killed before or after it has answered."""

    def __init__(self, world: World, servers: dict[int, ShardServer], shard: int) -> None:
        self._world, self._servers, self._shard = world, servers, shard
        self._sent: tuple[Any, ...] = ()

    def ask(self, *message: Any) -> Any:
        self._meet(is_gone=True)
        server = self._servers.get(self._shard)
        if server is None:
            raise RuntimeError("the server of a shard has gone")
        answer = pickle.loads(pickle.dumps(_answer(server, pickle.loads(pickle.dumps(message)))))
        self._meet(is_gone=False)
        if isinstance(answer, ShardFailure):
            raise getattr(errors, answer.kind, RuntimeError)(answer.message)
        return answer

    def send(self, *message: Any) -> None:
        self._sent = message

    def answer(self) -> Any:
        return self.ask(*self._sent)

    def close(self) -> None:
        pass

    def _meet(self, *, is_gone: bool) -> None:
        """End the server, or only the task: its server has done the work, and survives."""
        try:
            self._world.effect("task", "server")
        except OSError:
            self._world.failed = False  # Spark repeats the task
            if is_gone:
                self._servers.pop(self._shard, None)
            raise RuntimeError("the server of a shard has gone") from None


class Polling:
    """Stands in for ``Prefetch``: polls on demand, in the same thread."""

    def __init__(self, feed: Any, pack: Any) -> None:
        self._feed = feed
        del pack

    def poll(self, start: dict[str, Any], limit: int) -> Any:
        batch = self._feed.poll(start, limit)
        return PolledBatch(batch, full=len(batch.read) >= limit and not batch.ended)

    def read_on(self) -> None:
        pass

    def commit(self, end: dict[str, Any]) -> None:
        self._feed.commit(end)

    def change_schema(self, schema: Any) -> None:
        self._feed.change_schema(schema)

    def idle_feed(self) -> Any:
        return self._feed


class Driver:
    """``SparkWatch`` without Spark's part, in one thread; names are those of ``LocalWatch``."""

    def __init__(self, simulation: SparkSimulation, sinks: list[Any], control: RunControl) -> None:
        self.control = control
        self._simulation = simulation
        self._world = simulation.world
        self._sinks = sinks
        self._job: Job = simulation.job
        self._log = simulation.notes.log
        self._held: ReplayControl | None = None
        self._place: RunDirectory | None = None
        self._delivery: SinkFanout | None = None
        self._committer: OutputCommitter | None = None
        self.spark: Spark | None = None

    @property
    def standing_queries(self) -> tuple[Query, ...]:
        return self._command_log.queries()

    @property
    def _written_number(self) -> int:
        return self._merger.delivered

    @property
    def bad(self) -> int:
        return self._merger.bad

    @property
    def place(self) -> RunDirectory:
        assert self._place is not None
        return self._place

    @property
    def _checkpoint(self) -> Checkpoint:
        return self.place.checkpoint

    @property
    def _committed_number(self) -> int:
        return self._checkpoint.committed_batch()

    def open(self) -> None:
        job, control = self._job, self.control
        directory = self._place = RunDirectory(job)
        self._wanted = LayoutRequest(_LAYOUTS[self._simulation.opens % len(_LAYOUTS)])
        self._simulation.opens += 1
        queries = list(directory.request.named().values())
        stream, window = directory.request.stream, directory.request.plan_window
        self.layout = directory.layout or self._wanted.layout(queries, stream, window)
        retry(lambda: directory.first_offset(self.layout), control.clock, control.wait, lambda _line: None)
        gauges = self.gauges = Gauges(job, control.clock.now())
        command_queue = CommandQueue(self._log, control)
        self._merger = OutputMerger(job, self._log, gauges, self._done)
        directory.expect_commands(self._planned())
        self._command_log = CommandLog(job, directory, command_queue, job.named())
        run = SinkRun(
            **directory.checkpoint.run_fields(),
            schema=self._command_log.stream.schema,
            match_names=False,
            wait=control.wait,
            tell=lambda _line: None,
            repeating=True,
        )
        with directory.checkpoint.committing():
            self._delivery = SinkFanout(self._sinks, job.dead_letters, run)
        self._merger.deliver_to(self._delivery)
        self._merger.table_dead_letters = directory.dead_letters
        self._committer = OutputCommitter(
            directory, self._merger, control.clock, max(run.held, self._done_by_spark())
        )
        run.end_repetition()
        self._moved()  # by a process that ended before it noticed
        self._start()
        self._command_log.begin(self._make_ready)

    def _done(self, commands: tuple[JobCommand, ...]) -> None:
        self._command_log.finish(commands)

    def step(self) -> None:
        """Micro-batch, delivery, commands, commit."""
        self.go_on()
        assert self._committer is not None
        if self._committer.last % 3 == 0:  # Spark is ahead of the delivering thread
            self._batch()
            self._committer.commit_if_due()
        self._committer.deliver_rest()
        self._committer.commit_if_due()

    def go_on(self) -> None:
        """Commands, and a micro-batch whose output waits."""
        self._command_log.take(self._make_ready)
        self._batch()

    def commit(self) -> None:
        assert self._committer is not None
        self._committer.deliver_rest()
        self._committer.commit()

    def close(self, *, failed: bool = False) -> None:
        try:
            if not failed and self._committer is not None:
                self.commit()
        except BaseException:
            failed = True
            raise
        finally:
            if self._delivery is not None:
                self._delivery.close(failed=failed)
            if self._committer is not None:
                self._committer.close()
            if self._place is not None:
                self._place.close()

    def _batch(self) -> None:
        """Run one batch of Spark, first the unfinished one; a query whose tasks fail is started again."""
        assert self._committer is not None
        control = ReplayControl(self.control.pace.paused, self.control.pace.rate)
        if control != self._held:
            control.put(self.place.folder)
            self._held = control
        while True:
            assert self.spark is not None
            try:
                self.spark.batch(self._committer.put)
            except TaskError:
                self._start()
            else:
                return

    def _make_ready(self, standing_queries: StandingQueries) -> bool:
        """Like ``ShardedJob.make_ready``: another layout, once the state can be read for it."""
        assert self._committer is not None
        queries, window = list(standing_queries.all_queries()), self.place.request.plan_window
        layout_wanted = self._wanted.layout(
            queries, standing_queries.stream, window, self.layout, self._committer.last
        )
        if layout_wanted is self.layout:
            return True
        generation = self._simulation.generations[self.layout.generation]
        last = self._committer.last - self.layout.before - 1
        if last >= 0 and last not in generation.done:
            self._batch()
        self._committer.deliver_rest()
        layout = self._wanted.layout(
            queries, standing_queries.stream, window, self.layout, self._committer.last
        )
        self.place.change_layout(layout)
        self.layout = layout
        self._moved()
        self._start()
        return True

    def _planned(self) -> dict[str, Any] | None:
        """Like ``ShardedJob.planned_end``."""
        generations, previous = self._simulation.generations, self.layout.previous
        generation = generations.get(self.layout.generation, Generation())
        if not generation.offsets and previous is not None:
            generation, last = generations[previous.generation], self.layout.before - previous.before - 1
        else:
            last = max(generation.offsets, default=-1)
        return generation.offsets[last][1] if last >= 0 else None

    def _done_by_spark(self) -> int:
        """Like ``ShardedJob.last_batch``."""
        generation = self._simulation.generations.get(self.layout.generation, Generation())
        return self.layout.before + max(generation.done, default=-1) + 1

    def _moved(self) -> None:
        """If there is another layout, a micro-batch whose results were not delivered is planned again."""
        assert self._committer is not None
        simulation = self._simulation
        if self.layout.generation > simulation.generation:
            simulation.model.undo(self._committer.last, seen=simulation.damaged)
        simulation.generation = self.layout.generation

    def _start(self) -> None:
        """Like ``ShardedJob._start``, with the state of the layout before if Spark has none for this one."""
        assert self._committer is not None
        directory, layout, previous = self.place, self.layout, self.layout.previous
        generations, last = self._simulation.generations, self._committer.last
        generation = generations.setdefault(layout.generation, Generation())
        first = beginning(directory.checkpoint.start())
        if previous is not None and last < layout.before + 2:
            earlier, batches = generations[previous.generation], layout.before - previous.before
            assert batches - 1 in earlier.done  # otherwise Spark returns no state
            first = earlier.offsets[batches - 1][1]
            state = earlier.states[batches - 1]
            generation.states.setdefault(
                -1, moved(state, previous, layout, directory.request.stream.lateness)
            )
        self._simulation.starts += 1
        name = f"start {self._simulation.starts}"
        request, run = directory.request, directory.checkpoint.id
        tasks = _READING_TASKS if reads_in_tasks(request, layout) else 0
        reading = Reading(request, directory.folder, name, layout, first, run, tasks=tasks)
        # A pattern that is added to a log of live tuples has seen less than one with the whole log.
        options = self._simulation.options
        few_bytes = _FEW_BYTES if options.asks == "keywords" or options.window == "none" else FEW_BYTES
        self.spark = Spark(self._world, generation, reading, self._simulation.planned, few_bytes)


def moved(states: dict[int, Blobs], before: Layout, layout: Layout, lateness: int) -> dict[int, Blobs]:
    """Like ``layout.initial_state``, without Spark."""
    blobs_by_group = [
        (group, kind, name, head, body)
        for group, blobs in states.items()
        for (kind, name), (head, body) in blobs.items()
    ]
    other_blobs: list[Blob] = [blob for blob in blobs_by_group if blob[1] not in _LOGGED]  # type: ignore[misc]  # kinds are texts here
    chunks = [
        (group, Chunk(**orjson.loads(head)), body)
        for group, kind, _, head, body in blobs_by_group
        if kind in _LOGGED
    ]
    moved_blobs, undivided = plan_move(
        other_blobs, [(group, chunk) for group, chunk, _ in chunks], before, layout
    )
    moved_blobs += divide_chunks(
        undivided, [(chunk, body) for _, chunk, body in chunks], before, layout, lateness
    )
    states_by_group: dict[int, Blobs] = {group: {} for group in layout.groups}
    for group, kind, name, head, body in moved_blobs:
        states_by_group[group][kind, name] = head, body
    return states_by_group


class SparkSimulation(LocalSimulation):
    """``generations``: Spark's checkpoints, by layout."""

    ahead = 1

    def __init__(self, options: Options) -> None:
        super().__init__(options)
        self.job = replace(self.job, engine=EngineName.SPARK)
        self.model.job = self.job
        self.generations: dict[int, Generation] = {}
        self.starts = self.opens = self.generation = 0
        self._proposed: JournalEntry | None = None
        self._numbers: dict[int, int] = {}  # Spark's batches, by the number of their last micro-batch

    @contextmanager
    def running(self) -> Iterator[None]:
        world, original_rows, original_read_between = (
            self.world,
            FeedReader._rows,
            FeedReader.readBetweenOffsets,
        )
        again = False

        def tapped(feed: FeedReader, start: Any, end: Any, polled: Any, *arguments: Any) -> Any:
            read = polled.batch.read
            if end["tasks"] and feed._parts is not None:
                # Records of one time come in the order of the parts.
                read = batch.Chunk.concat(chunk for part in feed._parts for chunk in part.read(feed._schema))
            self._read(end, read, arguments[0], again=again)
            return original_rows(feed, start, end, polled, *arguments)

        def repeated(feed: FeedReader, start: Any, end: Any) -> Any:
            nonlocal again
            again = True
            try:
                return original_read_between(feed, start, end)
            finally:
                again = False

        def seconds() -> float:
            return world.micros / 1e6

        clocks = SimpleNamespace(monotonic=seconds, time=seconds, perf_counter=seconds)
        with super().running(), ExitStack() as stack:
            for owner, name, replacement in (
                (processor, "ShardClient", lambda *given, tabular: self._spark().client(*given)),
                (processor, "freeze_loaded_objects", lambda: None),
                (reader, "Prefetch", Polling),
                (reader, "SystemClock", lambda: SimClock(world)),
                (reader, "time", clocks),
                (shard_server, "perf_counter", seconds),  # a shard's output contains it as text
                (FeedReader, "_rows", tapped),
                (FeedReader, "readBetweenOffsets", repeated),
                (run_directory, "OutputLog", lambda folder, run: OutputLog(folder, run, _SEGMENT_BYTES)),
            ):
                stack.enter_context(patch.object(owner, name, replacement))
            yield

    def planned(self) -> None:
        """Spark has written down the offsets of a micro-batch, which fixes its content."""
        assert self._proposed is not None
        self.model.append(self._log(self._proposed))

    def _spark(self) -> Spark:
        assert isinstance(self.watch, Driver)
        assert self.watch.spark is not None
        return self.watch.spark

    def _new_host(self, sinks: list[Any], control: RunControl) -> Any:
        return Driver(self, sinks, control)

    def _read(self, end: dict[str, Any], read: Any, commands: tuple[JobCommand, ...], *, again: bool) -> None:
        """A micro-batch as the reader returns it; it must be the same if Spark repeats it."""
        bad_records = malformed(read.bad)
        dead_letters = tuple(dead_letter(record).decode().rstrip("\n") for record in bad_records)
        if not again:
            self._numbers[end["sequence"]] = len(self.model.batches) + 1
        number, feed, to = self._numbers[end["sequence"]], end["feed"], end["commands"]
        entry = JournalEntry(number, feed, to, commands, read.records, dead_letters, len(bad_records))
        if not again:
            self._proposed = entry
            return
        batch = self.model.batches[number - 1]
        before = batch.entry
        is_same = list(before.records.whole.records()) == list(entry.records.whole.records())
        check(is_same and before.commands == commands, f"micro-batch {number} differs from its first run")
        raw_texts = [
            [orjson.loads(line)["raw"] for line in lines] for lines in (before.letters, dead_letters)
        ]
        check(
            raw_texts[0] == raw_texts[1], f"micro-batch {number} has other bad records than in its first run"
        )
        if batch.lines is None:
            batch.entry = entry  # a file may have been renamed

    def _journaled(self, files: dict[str, bytes]) -> int:
        return len(self.model.batches)  # Spark's own checkpoint is durable

    def _repeat(self) -> None:
        assert isinstance(self.watch, Driver)
        self.watch.go_on()

    def _save(self) -> Callable[[], None]:
        generations, restore, generation = deepcopy(self.generations), super()._save(), self.generation

        def restored() -> None:
            self.generations, self.generation = generations, generation
            restore()

        return restored

    def _sessions(self) -> list[Session]:
        return [server._shard._live for server in self._spark()._servers.values()]

    def _check_bad(self, last: int) -> None:
        """Check the bad records of the micro-batches that this process has delivered."""
        assert isinstance(self.watch, Driver)
        bad_count = sum(batch.entry.bad for batch in self.model.batches[self._counted_from : last])
        check(self.watch.bad == bad_count, "of", bad_count, "bad records were counted", self.watch.bad)

    def _check_standing(self) -> None:
        """Check that commands are written down before the shards receive them."""

    def _check_state(self) -> None:
        """Check that the state of the shards ends with the window, or with that of patterns."""
        with_patterns = self.options.window == "none" and self.options.asks != "keywords"
        limit = _MOST_OF_PATTERNS if with_patterns else _MOST_CHUNKS
        generation = self.generations[max(self.generations)]
        for group, blobs in generation.states[max(generation.states)].items():
            chunks = sum(kind == "chunk" for kind, _ in blobs)
            check(chunks <= limit, f"shard {group} keeps", chunks, "chunks of records")
