"""Retries while a server is unreachable: after a delay that doubles each time, and for a limited time.

Methods do not block unless they say so: a feed asks whether it is time to
retry, and passes a notice of each try to the user.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Final, TypeVar

from skws.data.batch import NOTHING, Chunk
from skws.sources.feed import Backlog, Batch, BatchPlan, Clock, Feed, FeedPart, Offset, Source
from skws_schema.errors import NotYetError, SourceError
from skws_schema.model import Schema

FIRST_WAIT: Final = 100_000
LONGEST_WAIT: Final = 10_000_000
GIVE_UP: Final = 300_000_000
"""Microseconds."""

T = TypeVar("T")


class Retry:
    """The state of the server ``shown``: unreachable or not, and the time of the next try."""

    def __init__(self, shown: str, clock: Clock) -> None:
        self._notices: list[str] = []
        self._shown = shown
        self._clock = clock
        self._failing_since: int | None = None
        self._next_try = 0
        self._wait = FIRST_WAIT

    @property
    def away(self) -> bool:
        return self._failing_since is not None

    @property
    def too_early(self) -> bool:
        """True while it is not yet time to try again."""
        return self._failing_since is not None and self._clock.now() < self._next_try

    @property
    def wait_micros(self) -> int:
        """Microseconds until it is time to try again."""
        return max(0, self._next_try - self._clock.now()) if self.away else 0

    def attempt(self, call: Callable[[], T]) -> T | None:
        """The result of ``call``; None if it raises NotYetError, or if it is too early to try again.

        Raises SourceError if retrying is useless, or has lasted too long.
        """
        if self.too_early:
            return None
        try:
            result = call()
        except NotYetError as failure:
            self.record_failure(failure)
            return None
        self.record_success()
        return result

    def record_failure(self, failure: SourceError) -> None:
        """Record a failed try. Raises SourceError if the server has been unreachable for too long."""
        now = self._clock.now()
        if self._failing_since is None:
            self._failing_since = now
        if now - self._failing_since > GIVE_UP:
            raise SourceError(f"{failure} (tried for {GIVE_UP // 1_000_000} seconds)")
        self._notices.append(f"{failure}; trying again in {self._wait / 1_000_000:g} s")
        self._next_try = now + self._wait
        self._wait = min(2 * self._wait, LONGEST_WAIT)

    def record_success(self) -> None:
        if self._failing_since is not None:
            self._notices.append(f"{self._shown}: connected again, continuing")
        self._failing_since, self._wait = None, FIRST_WAIT

    def wait(self) -> None:
        """Sleep until it is time to try again."""
        self._clock.sleep(self.wait_micros)

    def take_notices(self) -> tuple[str, ...]:
        """Lines for the user since the last call."""
        notices = tuple(self._notices)
        self._notices.clear()
        return notices


def retry(
    call: Callable[[], T], clock: Clock, wait: Callable[[float], bool], notify: Callable[[str], None]
) -> T | None:
    """The result of ``call``, tried again while it raises NotYetError; None if the run ends meanwhile.

    ``wait`` waits some seconds, and returns False if the run ends; ``notify`` takes lines for the
    user. Raises SourceError if retrying is useless, or has lasted too long.
    """
    server = Retry("", clock)
    while True:
        try:
            return call()
        except NotYetError as failure:
            server.record_failure(failure)
        for notice in server.take_notices():
            notify(notice)
        if not wait(server.wait_micros / 1_000_000):
            return None


class RetryingFeed(Feed):
    """A feed that opens when its server is reachable, and returns empty batches until then.

    It is for a run that resumes from an offset. The constructor raises like
    ``Source.open``, except for NotYetError.
    """

    def __init__(self, source: Source, schema: Schema, clock: Clock) -> None:
        self._source = source
        self._schema = schema
        self._retry = Retry(source.name, clock)
        self._feed: Feed | None = None
        self._open()

    def start(self) -> Offset:
        return self._wait_until_open().start()

    @property
    def tables_pending(self) -> bool:
        return self._feed is not None and self._feed.tables_pending

    def tables(self) -> Iterator[Chunk]:
        return self._wait_until_open().tables()

    def poll(self, start: Offset, limit: int) -> Batch:
        """Empty while the server is unreachable, with a notice of each try."""
        feed = self._open()
        notices = self._retry.take_notices()
        if feed is None:
            return Batch(NOTHING, start, notices, answered=False)
        batch = feed.poll(start, limit)
        return replace(batch, notices=(*notices, *batch.notices)) if notices else batch

    def replay(self, start: Offset, end: Offset) -> Chunk:
        """Raises NotYetError while the server is unreachable; the caller starts again, and reports it."""
        return self._reopened().replay(start, end)

    def plan(self, start: Offset, limit: int) -> BatchPlan | None:
        """None while the server is unreachable, which a poll reports."""
        feed = self._open()
        return None if feed is None else feed.plan(start, limit)

    def parts(self, start: Offset, end: Offset, number: int) -> Sequence[FeedPart] | None:
        """Raises NotYetError like ``replay``."""
        return self._reopened().parts(start, end, number)

    def commit(self, end: Offset) -> None:
        """While the server is unreachable, nothing is read; a later commit includes this one."""
        if self._feed is not None:
            self._feed.commit(end)

    def backlog(self, offset: Offset) -> Backlog:
        return Backlog() if self._feed is None else self._feed.backlog(offset)

    def change_schema(self, schema: Schema) -> None:
        """While the server is unreachable, the check that the source fits the schema waits."""
        if self._feed is not None:
            self._feed.change_schema(schema)
        self._schema = schema

    def close(self) -> None:
        if self._feed is not None:
            self._feed.close()

    def _reopened(self) -> Feed:
        if self._feed is None:
            self._feed = self._source.open(self._schema)
            self._retry.record_success()
        return self._feed

    def _wait_until_open(self) -> Feed:
        while (feed := self._open()) is None:
            self._retry.wait()
        return feed

    def _open(self) -> Feed | None:
        """The feed; None while the server is unreachable, or it is too early to try again."""
        if self._feed is None:
            self._feed = self._retry.attempt(lambda: self._source.open(self._schema))
        return self._feed
