"""Polling a feed while Spark works on what it gave before: decoding costs as much as all that follows."""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor

from schema.model import Schema
from skws.sources.feed import Batch, Feed, Offset


class PolledAhead:
    """A feed that is polled in a thread, ahead of the question, as long as it has full batches to give."""

    def __init__(self, feed: Feed) -> None:
        self._feed = feed
        self._thread = ThreadPoolExecutor(1, "poll")
        self._ahead: tuple[Offset, Future[Batch]] | None = None

    def poll(self, start: Offset, limit: int) -> Batch:
        """As ``Feed.poll``."""
        polled = self._taken(start) or self._feed.poll(start, limit)
        if len(polled.items) < limit and not polled.ended:
            polled = _joined(polled, self._feed.poll(polled.end, limit - len(polled.items)))
        if len(polled.items) >= limit and not polled.ended:
            self._ahead = polled.end, self._thread.submit(self._feed.poll, polled.end, limit)
        return polled

    def adopt(self, schema: Schema) -> None:
        """As ``Feed.adopt``; what was polled ahead is polled again."""
        self.settled().adopt(schema)
        self._ahead = None

    def settled(self) -> Feed:
        """The feed, with no poll going on: it is for one thread at a time."""
        if self._ahead is not None:
            self._ahead[1].exception()  # which is for who polls
        return self._feed

    def _taken(self, start: Offset) -> Batch | None:
        if self._ahead is None:
            return None
        (known, future), self._ahead = self._ahead, None
        future.exception()
        return future.result() if known == start else None


def _joined(first: Batch, second: Batch) -> Batch:
    if not second.items:
        return Batch(first.items, second.end, (*first.notices, *second.notices), second.ended)
    items = [*first.items, *second.items]
    return Batch(items, second.end, (*first.notices, *second.notices), second.ended)
