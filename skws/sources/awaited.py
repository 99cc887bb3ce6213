"""A feed whose server may be away at first: opened when it is there, and empty until then."""

from __future__ import annotations

from collections.abc import Iterator

from schema.errors import NotYetError
from schema.model import Schema
from skws.sources.clock import Clock
from skws.sources.feed import Batch, Feed, Item, Offset, Source
from skws.sources.outage import Outage


class AwaitedFeed:
    """The feed of a run that goes on at an offset, as of ``Source.open``. Methods raise what feeds raise."""

    def __init__(self, source: Source, schema: Schema, clock: Clock) -> None:
        self._source = source
        self._schema = schema
        self._outage = Outage(source.name, clock)
        self._feed: Feed | None = None
        self._open()

    def start(self) -> Offset:
        return self._waited().start()

    @property
    def tables_come(self) -> bool:
        return self._feed is not None and self._feed.tables_come

    def tables(self) -> Iterator[Item]:
        return self._waited().tables()

    def poll(self, start: Offset, limit: int) -> Batch:
        """While the server is away, empty, with a notice of each try."""
        feed = self._feed or self._open()
        notices = self._outage.told()
        if feed is None:
            return Batch((), start, notices)
        batch = feed.poll(start, limit)
        return Batch(batch.items, batch.end, (*notices, *batch.notices), batch.ended) if notices else batch

    def again(self, start: Offset, end: Offset) -> Iterator[Item]:
        """Waits for the server if it is away."""
        return self._waited().again(start, end)

    def commit(self, end: Offset) -> None:
        """Nothing was read while the server is away; what was before it is confirmed with what comes then."""
        if self._feed is not None:
            self._feed.commit(end)

    def behind(self, offset: Offset) -> str:
        return "" if self._feed is None else self._feed.behind(offset)

    def adopt(self, schema: Schema) -> None:
        """While the server is away, whether it fits is told when it is there."""
        if self._feed is not None:
            self._feed.adopt(schema)
        self._schema = schema

    def close(self) -> None:
        if self._feed is not None:
            self._feed.close()

    def _waited(self) -> Feed:
        while (feed := self._feed or self._open()) is None:
            self._outage.wait()
        return feed

    def _open(self) -> Feed | None:
        """None while the server is away, or it is too early to try again."""
        if self._outage.too_early:
            return None
        try:
            self._feed = self._source.open(self._schema)
        except NotYetError as failure:
            self._outage.failed(failure)
        else:
            self._outage.over()
        return self._feed
