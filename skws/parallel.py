"""A search of replay files by several processes: the stages of the Spark batch job on one machine.

    in order of time:  look at times, a task per split -> plan slices -> read and search, a task per slice
    any other replay:  read and pack, a task per split -> plan slices -> search, a task per slice
    divided by a key:  read and pack, a task per split -> divide -> search, a task per part of the key

A slice of a replay in order of time is a range of bytes and the window before it, so its records stay in
the process that reads them. Results go through temporary files, as JSON lines.

A task is a function of a module and its arguments. It runs in a worker and emits messages, which the
command receives in order of tasks, while other tasks run.
"""

from __future__ import annotations

import gc
import os
import pickle
import signal
import sys
import threading
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from multiprocessing import connection, get_context, parent_process
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from typing import Any, Final, Self, TypeAlias

import numpy as np
import numpy.typing as npt

from skws.data.batch import RecordBatch
from skws.data.packing import pack, unpack
from skws.formats import BadRecordLog, Replay
from skws.formats.files import Split, Spool
from skws.formats.jsonl_order import timed_blocks
from skws.formats.splits import Holds, PackedPiece, read_pieces, unpack_bad
from skws.memory import MemoryShare, expect_long_lived_objects, share
from skws.queries.kinds import plan_of
from skws.queries.partitioning.parts import plan_keys
from skws.queries.partitioning.slice_tasks import (
    Blocks,
    Emitted,
    SlicedRun,
    SliceRanges,
    Timed,
    TimedLines,
    blocks_of,
    has_ranges,
    search_pieces,
    search_range,
)
from skws.queries.partitioning.slices import (
    Slice,
    SliceRun,
    Slicing,
    in_order,
    plan_parts,
    plan_slices,
    why_whole,
)
from skws.results.result import LiveResult
from skws.spec.query_spec import Query, Stream
from skws_schema.budgets import check
from skws_schema.errors import SkwsError
from skws_schema.model import Schema

Task: TypeAlias = tuple[Callable[..., None], tuple[Any, ...]]

# Loaded by the process that forks workers, once for all of them.
_LOADED: Final = ["skws.parallel", "skws.queries.keywords.engine"]


@dataclass(frozen=True, slots=True)
class _End:
    """The last message of a task."""

    error: BaseException | None = None


class ProcessWorker:
    """A worker as its tasks see it. ``number``: among all workers. ``spools``: the spools of the run."""

    def __init__(self, number: int, spools: Sequence[Spool], channel: Connection) -> None:
        self.number = number
        self.spools = spools
        self._channel = channel

    def emit(self, message: object) -> None:
        """Send a message to the command."""
        self._channel.send(message)


class Workers:
    """``number`` worker processes, started at once, which share ``spools`` and the memory of a run.

    They end with the ``with``, or with this process if it is killed.
    """

    def __init__(self, number: int, spools: int = 0) -> None:
        self.number = number
        self.spools = [Spool() for _ in range(spools)]
        self._idle: list[Connection] = []
        self._busy: dict[Connection, int] = {}  # the numbers of tasks
        self._queue: deque[tuple[int, Task]] = deque()
        self._inbox: dict[int, deque[Any]] = {}
        self._max_busy = number
        self._processes: list[BaseProcess] = []
        with _interrupts_held():
            self._start(number)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _start(self, number: int) -> None:
        memory = share(number)
        context: Any = get_context("fork" if _forks() else "forkserver")
        if not _forks():
            context.set_forkserver_preload(_LOADED)
        for worker_number in range(number):
            ours, theirs = context.Pipe()
            process = context.Process(
                target=_serve,
                args=(worker_number, self.spools, theirs, memory),
                name=f"skws-{worker_number}",
                daemon=True,
            )
            process.start()
            theirs.close()
            self._processes.append(process)
            self._idle.append(ours)

    def close(self) -> None:
        """End the workers, even busy ones."""
        for process in self._processes:
            process.kill()
        for process in self._processes:
            process.join()
            process.close()
        for channel in (*self._idle, *self._busy):
            channel.close()
        for spool in self.spools:
            spool.close()
        self._processes, self._idle, self._busy, self.spools = [], [], {}, []

    def run(self, tasks: Sequence[Task], most: int | None = None) -> Iterator[Generator[Any, None, None]]:
        """The messages of each task, in order of tasks; at most ``most`` tasks run at a time.

        Raises the error of a task in place of its next message; SkwsError if a worker was killed.
        """
        self._queue.clear()
        while self._busy:  # tasks whose messages are no longer needed
            self._receive(wait=True)
        self._queue = deque(enumerate(tasks))
        self._inbox = {number: deque() for number in range(len(tasks))}
        self._max_busy = self.number if most is None else most
        self._assign()
        for number in range(len(tasks)):
            yield self._messages(number)

    def _messages(self, number: int) -> Generator[Any, None, None]:
        inbox = self._inbox[number]
        while True:
            self._receive(wait=not inbox)
            while inbox:
                message = inbox.popleft()
                if not isinstance(message, _End):
                    yield message
                elif message.error is not None:
                    raise message.error
                else:
                    return

    def _assign(self) -> None:
        while self._idle and self._queue and len(self._busy) < self._max_busy:
            channel = self._idle.pop()
            number, task = self._queue.popleft()
            channel.send(task)
            self._busy[channel] = number

    def _receive(self, *, wait: bool) -> None:
        """Store the messages that have arrived. ``wait``: for at least one."""
        for channel in connection.wait(list(self._busy), None if wait else 0):
            assert isinstance(channel, Connection)  # noqa: S101 - only channels are waited for
            try:
                message = channel.recv()
            except (EOFError, OSError):
                raise SkwsError(
                    "a process of the search was killed, perhaps because memory ran short:"
                    " see --memory and --jobs"
                ) from None
            number = self._busy[channel]
            self._inbox[number].append(message)
            if isinstance(message, _End):
                del self._busy[channel]
                self._idle.append(channel)
        self._assign()


@contextmanager
def _interrupts_held() -> Iterator[None]:
    """Defer Ctrl-C: Python drops it in calls around a fork, and workers must ignore it from the start."""
    former_mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, former_mask)


def _forks() -> bool:
    """True if this process can be forked: it has no other threads, whose locks a copy would never get."""
    return sys.platform == "linux" and threading.active_count() == 1


def _serve(number: int, spools: Sequence[Spool], channel: Connection, memory: MemoryShare | None) -> None:
    """Run tasks until the command ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the command handles it and ends its workers
    threading.Thread(target=_end_with_parent, daemon=True).start()
    gc.freeze()
    worker = ProcessWorker(number, spools, channel)
    while True:
        try:
            task, arguments = channel.recv()
        except EOFError:
            return
        worker.emit(_run_task(worker, task, arguments, memory))


def _run_task(
    worker: ProcessWorker, task: Any, arguments: tuple[Any, ...], memory: MemoryShare | None
) -> _End:
    try:
        if memory is None:
            task(worker, *arguments)
        else:
            with memory.apply():
                task(worker, *arguments)
    except BrokenPipeError:
        os._exit(1)  # the command has ended
    except Exception as error:
        return _End(_sendable(error))
    return _End()


def _sendable(error: Exception) -> Exception:
    try:
        copy = pickle.loads(pickle.dumps(error))  # noqa: S301 - its own
    except Exception:
        return RuntimeError(f"{type(error).__name__}: {error}")
    return error if str(copy) == str(error) else RuntimeError(f"{type(error).__name__}: {error}")


def _end_with_parent() -> None:
    parent = parent_process()
    assert parent is not None  # noqa: S101 - a worker has one
    connection.wait([parent.sentinel])
    os._exit(1)


_EVENING: Final = 0.03  # processes of one machine are about as quick as each other


@dataclass(frozen=True, slots=True)
class SpooledBytes:
    """Bytes in one of the spools of a run."""

    spool: int
    offset: int
    size: int

    def read(self, spools: Sequence[Spool]) -> bytes:
        return spools[self.spool].read(self.offset, self.size)


@dataclass(frozen=True, slots=True)
class _SpooledLines:
    """Results of a slice as lines, and the time of each. ``spools``: set in the process of the command."""

    lines: SpooledBytes
    times: npt.NDArray[np.float64]
    spools: Sequence[Spool] = ()

    def timed(self) -> Iterator[tuple[float, bytes]]:
        return TimedLines(self.lines.read(self.spools), self.times).timed()


_Pieces: TypeAlias = list[tuple[PackedPiece, SpooledBytes]]


class ParallelSearch(SlicedRun):
    """One query over replay files, by ``jobs`` processes. ``divide`` it, then read the results.

    ``min_slice`` and ``max_held``: as in ``Cuts``.
    """

    def __init__(
        self,
        query: Query,
        stream: Stream,
        replay: Replay,
        jobs: int,
        on_read: Callable[[int], None],
        min_slice: int,
        max_held: int,
    ) -> None:
        super().__init__(on_read)
        self._min_slice = min_slice
        self._max_held = max_held
        self.slicing = Slicing()
        self._queries = (query,)
        self._stream = stream
        self._replay = replay
        self._jobs = jobs
        self._window = plan_of(query, stream).window
        self._workers: Workers | None = None
        self._blocks: Blocks | None = None
        self._pieces: _Pieces = []
        self._parts: list[_Pieces] = []
        self._at_a_time = jobs

    def close(self) -> None:
        if self._workers is not None:
            self._workers.close()

    def divide(self, bad: BadRecordLog) -> str:
        """Start the processes and cut the stream; returns the reason if one process must search it.

        A replay out of order is read, and ``bad`` receives its bad records. Raises the errors of ``results``.
        """
        reason = why_whole(self._queries, self._window)
        keyed = not isinstance(plan_keys(self._queries, self._stream, self._window), str)
        if len(self._replay.splits) < 2:
            return "the replay is one piece"
        if reason and self._replay.in_order and not keyed:
            return reason
        self._workers = Workers(self._jobs, 5 * self._jobs)
        splits = self._replay.splits
        ranges = not reason and has_ranges(splits, self._queries, self._stream, self._window)
        self._blocks = self._time_blocks(self._workers) if ranges else None
        if self._blocks is not None:
            self.slicing = self._plan_slices([piece for piece, _ in self._blocks])
            if not self.slicing.reason or not keyed:
                return self.slicing.reason
            self._blocks = None
        self._pieces = self._pack_pieces(self._workers, bad)
        pieces = [piece for piece, _ in self._pieces]
        self.slicing = self._plan_slices(pieces)
        if self.slicing.reason and (part_slicing := self._plan_parts(pieces)):
            self.slicing, self._parts = part_slicing, self._divide_pieces(self._workers, part_slicing)
        self._at_a_time = min(self._jobs, self._max_held // max(overlap(pieces), 1))
        return "" if self._at_a_time else "too many parts of it overlap in time"

    def results(self, bad: BadRecordLog) -> Iterator[LiveResult]:
        """The results; also raises SkwsError if a process was killed."""
        return self._search_alone() if self.slicing.reason else super().results(bad)

    @property
    def has_read(self) -> bool:
        """True if the bad records of the replay have been reported."""
        return bool(self._pieces)

    @property
    def _started_workers(self) -> Workers:
        assert self._workers is not None  # noqa: S101 - they were started to divide
        return self._workers

    @property
    def _spools(self) -> Sequence[Spool]:
        return self._started_workers.spools

    def _tasks(self, *, counting: bool) -> list[Task]:
        tasks: list[Task] = []
        for number, stream_slice in enumerate(self.slicing.slices):
            spool, query_stream = self._jobs + number, (self._queries, self._stream)
            if self._blocks is not None:
                tasks.append(
                    (_search_range, (spool, SliceRanges.of(stream_slice, self._blocks), *query_stream))
                )
            else:
                pieces = _pieces_of(stream_slice, self._parts[number] if self._parts else self._pieces)
                tasks.append((_search_pieces, (spool, stream_slice, *query_stream, pieces, counting)))
        return tasks

    def _plan_slices(self, pieces: Sequence[PackedPiece]) -> Slicing:
        return plan_slices(
            pieces, self._queries, self._stream, self._window, self._jobs, self._min_slice, _EVENING
        )

    def _plan_parts(self, pieces: Sequence[PackedPiece]) -> Slicing | None:
        return plan_parts(pieces, self._queries, self._stream, self._window, self._jobs, self._min_slice)

    def _divide_pieces(self, workers: Workers, slicing: Slicing) -> list[_Pieces]:
        """The pieces of each part of the keys."""
        pieces_by_part: list[_Pieces] = [[] for _ in slicing.slices]
        for messages in workers.run([(_divide, (slicing, stored_piece)) for stored_piece in self._pieces]):
            for part, piece, spooled in messages:
                pieces_by_part[part].append((piece, spooled))
        return pieces_by_part

    def _searched(self, *, counting: bool) -> Iterator[Iterable[Emitted | Timed]]:
        tasks = self._tasks(counting=counting)
        for number, messages in enumerate(self._started_workers.run(tasks, self._at_a_time)):
            yield map(self._with_spools, messages)
            if self.slicing.keys is None:
                self._spools[self._jobs + number].empty()

    def _with_spools(self, message: Any) -> Emitted | Timed:
        return replace(message, spools=self._spools) if isinstance(message, _SpooledLines) else message

    def _time_blocks(self, workers: Workers) -> Blocks | None:
        """The blocks of the files in order of time; None if they are, or may be, out of order."""
        splits = self._replay.splits
        timed_splits = workers.run([(_read_times, (split,)) for split in splits])
        return blocks_of((split, blocks) for split, (blocks,) in zip(splits, timed_splits, strict=True))

    def _pack_pieces(self, workers: Workers, bad: BadRecordLog) -> _Pieces:
        """The pieces of the replay, stored, in order of arrival. Bad records of tables come first."""
        tables = [n for n, relation in enumerate(self._stream.schema.relations) if relation.table]
        splits = sorted(self._replay.splits, key=lambda split: split.relation not in tables)
        pieces: _Pieces = []
        tasks: list[Task] = [(_read_and_pack, (split, self._stream.schema)) for split in splits]
        for split, messages in zip(splits, workers.run(tasks), strict=True):
            for piece, spooled in messages:
                if piece.holds is Holds.BAD:
                    bad.take(unpack_bad(spooled.read(workers.spools)))
                else:
                    pieces.append((piece, spooled))
            self._read(split.size)
        return sorted(pieces, key=lambda each: each[0].place)

    def _search_alone(self) -> Iterator[LiveResult]:
        """The results of a stream that cannot be cut, found by this process."""
        expect_long_lived_objects()
        run = SliceRun(self._queries, self._stream, Slice())
        try:
            yield from run.results(*in_order(_unpack_pieces(_pieces_of(Slice(), self._pieces), self._spools)))
        finally:
            self.counts = run.counts


def overlap(pieces: Sequence[PackedPiece]) -> int:
    """The most records in pieces that overlap in time: a merge holds them at once."""
    streamed = [piece for piece in pieces if piece.holds is Holds.RECORDS]
    begins, ends = np.array([p.first for p in streamed]), np.array([p.last for p in streamed])
    sizes = np.array([p.size for p in streamed], dtype=np.int64)
    begun_records = np.cumsum(sizes[np.argsort(begins)])
    ended_records = np.concatenate([[0], np.cumsum(sizes[np.argsort(ends)])])
    ended_pieces = np.searchsorted(np.sort(ends), np.sort(begins))  # the number of pieces that have ended
    return int((begun_records - ended_records[ended_pieces]).max(initial=0))


def _pieces_of(stream_slice: Slice, pieces: _Pieces) -> _Pieces:
    """The pieces that a slice reads, in order."""
    slice_pieces = [each for each in pieces if each[0].holds is Holds.TABLE or stream_slice.reads(each[0])]
    return sorted(slice_pieces, key=lambda each: (each[0].holds, each[0].first, each[0].place))


def _unpack_pieces(pieces: _Pieces, spools: Sequence[Spool]) -> Iterator[tuple[PackedPiece, RecordBatch]]:
    for piece, spooled in pieces:
        check()
        yield piece, unpack(spooled.read(spools))


def _read_times(worker: ProcessWorker, split: Split) -> None:
    """A task: the times of a split."""
    worker.emit(timed_blocks(split))


def _read_and_pack(worker: ProcessWorker, split: Split, schema: Schema) -> None:
    """A task: the pieces of a split."""
    for piece, blob in read_pieces(split, schema):
        offset = worker.spools[worker.number].append(blob)
        worker.emit((piece, SpooledBytes(worker.number, offset, len(blob))))


def _divide(worker: ProcessWorker, slicing: Slicing, stored_piece: tuple[PackedPiece, SpooledBytes]) -> None:
    """A task: the records of a piece for each part of the keys."""
    for piece, batch in _unpack_pieces([stored_piece], worker.spools):
        for part, part_piece, records in slicing.parts_of(piece, batch):
            blob = pack(records)
            offset = worker.spools[worker.number].append(blob)
            worker.emit((part, part_piece, SpooledBytes(worker.number, offset, len(blob))))


def _search_range(
    worker: ProcessWorker, spool: int, ranges: SliceRanges, queries: Sequence[Query], stream: Stream
) -> None:
    """A task: the results of a slice of a replay in order of time."""
    _emit(worker, spool, search_range(ranges, queries, stream))


def _search_pieces(
    worker: ProcessWorker,
    spool: int,
    stream_slice: Slice,
    queries: Sequence[Query],
    stream: Stream,
    pieces: _Pieces,
    counting: bool,
) -> None:
    """A task: the results of a slice of packed pieces, or their number."""
    batches = _unpack_pieces(pieces, worker.spools)
    _emit(worker, spool, search_pieces(stream_slice, queries, stream, batches, counting=counting))


def _emit(worker: ProcessWorker, spool: int, messages: Iterable[Emitted]) -> None:
    """Send messages to the command; results go to a spool."""
    for message in messages:
        if isinstance(message, TimedLines):
            offset = worker.spools[spool].append(message.text)
            worker.emit(_SpooledLines(SpooledBytes(spool, offset, len(message.text)), message.times))
        else:
            worker.emit(message)
