"""Files in order of time, answered by parallel tasks that read what they search.

    look at times, a task a split -> plan slices -> read and search, a task a slice -> driver

No record moves, and Spark plans no SQL: every task is a job by itself. So the driver has the results of the
first slices while tasks search later ones, and Java loads a third less until the first of them.

Docs: ``docs/architecture/spark.md``.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from threading import Event, Thread
from typing import Final, TypeVar
from uuid import uuid4

from pyspark import RDD, SparkContext

from skws.formats.files import Split
from skws.formats.jsonl_order import TimedBlock, timed_blocks
from skws.memory import MemoryShare
from skws.queries.keywords.collector import freeze_loaded_objects
from skws.queries.slice_tasks import Blocks, Emitted, SlicedRun, SliceRanges, blocks_of, search_range
from skws.queries.slices import Slicing
from skws.spec.query import Query
from skws.spec.stream import Stream

_AHEAD: Final = 2  # jobs for each task that runs at a time; their results are in memory

A = TypeVar("A")
M = TypeVar("M")


class RangesRun(SlicedRun):
    """Keywords over files in order of time: each slice is read where it is searched."""

    def __init__(
        self,
        context: SparkContext,
        queries: Sequence[Query],
        stream: Stream,
        memory: MemoryShare,
        slicing: Slicing,
        blocks: Blocks,
        read: Callable[[int], None],
    ) -> None:
        super().__init__(read)
        self.slicing = slicing
        self._context = context
        self._parts = [SliceRanges.of(one, blocks) for one in slicing.slices]
        self._asked = tuple(queries), stream
        self._memory = memory

    def _searched(self, *, counting: bool) -> Iterator[list[Emitted]]:
        assert not counting  # noqa: S101 - patterns are searched in pieces
        asked = self._asked

        def search(part: SliceRanges) -> Iterator[Emitted]:
            return search_range(part, *asked)

        return in_turn(_tasks(self._context, search, self._parts, self._memory))


@contextmanager
def looked_at(splits: Sequence[Split]) -> Iterator[list[list[TimedBlock] | None]]:
    """Inside, a thread looks at one split after another; the list has what it found."""
    found: list[list[TimedBlock] | None] = []
    over = Event()

    def look() -> None:
        with suppress(Exception):  # the task that looks at it next says why
            for split in splits:
                found.append(timed_blocks(split))
                if found[-1] is None or over.is_set():
                    return

    thread = Thread(target=look, name="look")
    thread.start()
    try:
        yield found
    finally:
        over.set()
        thread.join()


def blocks_in_order(
    context: SparkContext,
    splits: Sequence[Split],
    memory: MemoryShare,
    known: Sequence[list[TimedBlock] | None] = (),
) -> Blocks | None:
    """The blocks of files of JSON lines, looked at by a task a split; None unless they are in order.

    ``known``: those of the first splits.
    """

    def look(split: Split) -> Iterator[list[TimedBlock] | None]:
        yield timed_blocks(split)

    found, rest = list(known), splits[len(known) :]
    if rest and None not in found:
        found += _tasks(context, look, rest, memory).collect()
    return blocks_of(zip(splits, found, strict=False))


def in_turn(tasks: RDD[M]) -> Iterator[list[M]]:
    """What each task gives, in their order, while others run: a job of Spark each."""
    context, tag = tasks.context, f"skws-{uuid4().hex}"
    with ThreadPoolExecutor(context.defaultParallelism, "jobs", context.addJobTag, (tag,)) as pool:
        jobs: deque[Future[list[M]]] = deque()
        try:
            for number in range(tasks.getNumPartitions()):
                jobs.append(pool.submit(context.runJob, tasks, iter, [number]))
                if len(jobs) > _AHEAD * context.defaultParallelism:
                    yield jobs.popleft().result()
            while jobs:
                yield jobs.popleft().result()
        except BaseException:  # of a job, an interrupt, or who takes no more of it
            pool.shutdown(wait=False, cancel_futures=True)
            context.cancelJobsWithTag(tag)
            raise


def _tasks(
    context: SparkContext, task: Callable[[A], Iterator[M]], arguments: Sequence[A], memory: MemoryShare
) -> RDD[M]:
    """A task for each argument."""

    def run(given: Iterable[A]) -> Iterator[M]:
        with memory.kept():
            for one in given:
                yield from task(one)
        freeze_loaded_objects()

    return context.parallelize(arguments, len(arguments)).mapPartitions(run)
