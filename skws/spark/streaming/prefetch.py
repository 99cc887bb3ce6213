"""Polling a feed while Spark works on what came before: that and packing cost as much as all that follows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from time import perf_counter

from skws.data.batch import Chunk, RecordBatch
from skws.sources.feed import Batch, Feed, Offset
from skws_schema.model import Schema


@dataclass(frozen=True, slots=True)
class Polled:
    """A batch, and its records as micro-batches hold them, if that was done ahead; how long all that took."""

    batch: Batch
    packed: Sequence[Sequence[bytes]] | None = None
    seconds: float = 0.0


class Prefetch:
    """A feed that is polled in a thread, ahead of the question, as long as it has full batches to give.

    ``pack``: makes what micro-batches hold of the records.
    """

    def __init__(self, feed: Feed, pack: Callable[[RecordBatch], Sequence[Sequence[bytes]]]) -> None:
        self._feed = feed
        self._pack = pack
        self._thread = ThreadPoolExecutor(1, "poll")
        self._next: tuple[Offset, int] | None = None
        self._ahead: tuple[Offset, Future[Polled]] | None = None
        self._committed: Future[None] | None = None

    def poll(self, start: Offset, limit: int) -> Polled:
        """As ``Feed.poll``."""
        began = perf_counter()
        taken = self._taken(start)
        self._raise_late()
        polled = taken or Polled(self._feed.poll(start, limit))
        batch = polled.batch
        if len(batch.read) < limit and not batch.ended:
            batch = _joined(batch, self._feed.poll(batch.end, limit - len(batch.read)))
            polled = polled if batch is polled.batch else Polled(batch)
        self._next = (batch.end, limit) if len(batch.read) >= limit and not batch.ended else None
        return polled if polled.seconds else replace(polled, seconds=perf_counter() - began)

    def read_on(self) -> None:
        """After a poll that was full: the next one begins."""
        if self._next is not None:
            (start, limit), self._next = self._next, None
            self._ahead = start, self._thread.submit(self._poll, start, limit)

    def commit(self, end: Offset) -> None:
        """As ``Feed.commit``; behind a poll that goes on, in its thread, since Spark waits for this call.

        What it raises then comes with the next call.
        """
        self._raise_late()
        if self._ahead is None:
            self._feed.commit(end)
        else:
            self._committed = self._thread.submit(self._feed.commit, end)

    def change_schema(self, schema: Schema) -> None:
        """As ``Feed.change_schema``; what was polled ahead is polled again."""
        self.settled().change_schema(schema)
        self._ahead = None

    def settled(self) -> Feed:
        """The feed, with no poll going on: it is for one thread at a time."""
        if self._ahead is not None:
            self._ahead[1].exception()  # which is for who polls
        self._raise_late()
        return self._feed

    def _raise_late(self) -> None:
        """What a commit in the thread has raised; waits for it."""
        if self._committed is not None:
            committed, self._committed = self._committed, None
            committed.result()

    def _poll(self, start: Offset, limit: int) -> Polled:
        began = perf_counter()
        batch = self._feed.poll(start, limit)
        records = self._pack(batch.read.records)
        return Polled(batch, records, perf_counter() - began)

    def _taken(self, start: Offset) -> Polled | None:
        if self._ahead is None:
            return None
        (known, future), self._ahead = self._ahead, None
        future.exception()
        return future.result() if known == start else None


def _joined(first: Batch, second: Batch) -> Batch:
    if not len(second.read) and (second.end, second.notices, second.ended) == (first.end, (), first.ended):
        return first
    read = Chunk.together([first.read, second.read])
    return Batch(read, second.end, (*first.notices, *second.notices), second.ended)
