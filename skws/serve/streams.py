"""Event streams (server-sent events): a snapshot, then the changes, resumable by the id of the last event.

A stream stores no events: it reads the log from the last event that it has sent. A stream whose next event is
no longer stored, or whose client receives nothing for too long, is ended; its client may resume it.

event: snapshot    begins: the client's knowledge of the search is no longer valid
event: result      a live result (without id), or a change (with id)
event: ready       the snapshot is complete; changes begin at its id
event: digest      the results of an interval
event: added       the search was saved again under this name; its results follow, as in a snapshot
event: removed     the search was removed, and the stream ends; streams of its owner also get it
                   when the search of another owner replaces it
event: behind      the stream ends, and can be resumed
event: end         the server ends, and the stream can be resumed
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, TypeAlias, TypeVar

import orjson
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from skws.serve.event_publisher import EventPublisher
from skws.serve.events import START, EventPosition, SearchEvent
from skws.serve.server_options import StreamLimits

T = TypeVar("T")
RunInThread: TypeAlias = Callable[[Callable[[], bytes]], Awaitable[bytes]]
_AT_ONCE: Final = 256
"""The most events in one piece of the response."""
_PIECE_BYTES: Final = 1 << 20
"""The bytes from which a piece is sent: a client has ``stalled`` seconds for each piece."""
_READ: Final = 10_000
"""The most events that a stream reads from the log at once; each read visits all later events."""


@dataclass(slots=True, eq=False)
class Subscription:
    """A stream of one search (``name``), or of an owner's searches. ``at``: the last event that was sent."""

    name: str | None
    owner: str | None = None
    at: EventPosition = field(default_factory=lambda: EventPosition(*START))
    wake_event: asyncio.Event = field(default_factory=asyncio.Event)


class EventStreams:
    """All open streams; only for the thread of the server, except for ``wake``."""

    def __init__(self, limits: StreamLimits) -> None:
        self.limits = limits
        self.slow = 0
        """The number of streams ended because they fell behind or their clients received nothing."""
        self.opened_count = 0
        self._by_name: dict[str, set[Subscription]] = {}
        self._of_owners: set[Subscription] = set()
        self._open = 0
        self._closing = asyncio.Event()
        self._loop: asyncio.AbstractEventLoop | None = None

    def __len__(self) -> int:
        return self._open

    @property
    def full(self) -> bool:
        return self._open >= self.limits.most

    @property
    def closing(self) -> bool:
        return self._closing.is_set()

    def begin(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop

    def wake(self, names: Iterable[str]) -> None:
        """Notify streams that some searches have new events; any thread may call it."""
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._wake, tuple(names))

    def close(self) -> None:
        """End all streams, once they have sent the stored events."""
        self._closing.set()
        for subscription in [
            *self._of_owners,
            *(subscription for subscriptions in self._by_name.values() for subscription in subscriptions),
        ]:
            subscription.wake_event.set()

    def add(self, subscription: Subscription) -> None:
        self._open += 1
        self.opened_count += 1
        if subscription.name is None:
            self._of_owners.add(subscription)
        else:
            self._by_name.setdefault(subscription.name, set()).add(subscription)

    def remove(self, subscription: Subscription) -> None:
        self._open -= 1
        if subscription.name is None:
            self._of_owners.discard(subscription)
            return
        of_name = self._by_name[subscription.name]
        of_name.discard(subscription)
        if not of_name:
            del self._by_name[subscription.name]

    def _wake(self, names: Sequence[str]) -> None:
        for name in names:
            for subscription in self._by_name.get(name, ()):
                subscription.wake_event.set()
        for subscription in self._of_owners:
            subscription.wake_event.set()


class EventStream(Response):
    """The response to a subscriber.

    ``snapshot`` makes the first pieces, and sets the position from which the subscription continues. ``show``
    makes the data of an event that belongs to some searches of this stream; a thread runs it if there is a
    ``run``, since it may take long.
    """

    def __init__(
        self,
        hub: EventPublisher,
        streams: EventStreams,
        subscription: Subscription,
        snapshot: Callable[[], AsyncIterator[bytes]],
        show: Callable[[SearchEvent], bytes],
        run: RunInThread | None = None,
    ) -> None:
        super().__init__()
        self._hub = hub
        self._streams = streams
        self._subscription = subscription
        self._snapshot = snapshot
        self._show = show
        self._run = run

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002 - of ASGI
        headers = [(b"content-type", b"text/event-stream; charset=utf-8"), (b"cache-control", b"no-store")]
        headers.append((b"x-accel-buffering", b"no"))
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        self._streams.add(self._subscription)
        send_task = asyncio.ensure_future(self._send_all(send))
        disconnect_task = asyncio.ensure_future(_wait_for_disconnect(receive))
        try:
            await asyncio.wait((send_task, disconnect_task), return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (send_task, disconnect_task):
                task.cancel()
            outcome, _ = await asyncio.gather(send_task, disconnect_task, return_exceptions=True)
            self._streams.remove(self._subscription)
        if isinstance(outcome, Exception):
            raise outcome

    async def _send_all(self, send: Send) -> None:
        async for piece in self._pieces():
            try:
                await asyncio.wait_for(
                    send({"type": "http.response.body", "body": piece, "more_body": True}),
                    self._streams.limits.stalled,
                )
            except TimeoutError:
                self._streams.slow += 1
                return  # without an end: the connection is closed
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _pieces(self) -> AsyncIterator[bytes]:
        subscription, log, limits = self._subscription, self._hub.log, self._streams.limits
        loop = asyncio.get_running_loop()
        async for piece in self._snapshot():
            yield piece
        id_due = loop.time() + limits.heartbeat
        while True:
            subscription.wake_event.clear()
            last_position = log.last
            events = self._events()
            if subscription.at < log.floor_of(subscription.name):
                self._streams.slow += 1
                yield message("behind", orjson.dumps({"behind": len(events)}))
                return
            async for last_event, piece in in_pieces(events, self._text, self._run):
                subscription.at = last_event.at
                if piece:
                    yield piece
                    id_due = loop.time() + limits.heartbeat
            if subscription.name is not None and events and events[-1].kind == "removed":
                return
            if events:
                continue
            if self._streams.closing:
                yield message("end", b"{}")
                return
            # Events of others wake the stream of an owner, and may be the only ones for a long time.
            subscription.at = max(subscription.at, last_position)
            with suppress(TimeoutError):
                async with asyncio.timeout_at(id_due):
                    await subscription.wake_event.wait()
            if loop.time() >= id_due:
                yield b"id: %b\n\n" % subscription.at.text(self._hub.run).encode()
                id_due = loop.time() + limits.heartbeat

    def _events(self) -> list[SearchEvent]:
        """The next events; those of a search up to its removal, also if it was saved again at once."""
        subscription = self._subscription
        if subscription.name is not None:
            events = self._hub.log.after(subscription.at, subscription.name, _READ)
            end = next((number for number, event in enumerate(events, 1) if event.kind == "removed"), None)
            return events[:end]
        return self._hub.log.all_after(subscription.at, self._is_for_stream, _READ)

    def _is_for_stream(self, event: SearchEvent) -> bool:
        """True if an event is for this stream, unless it is a result of a search with digests."""
        subscription = self._subscription
        if event.kind == "replaced" and subscription.owner in {None, orjson.loads(event.data)["by"]}:
            return False  # like clients that follow a name, its owner only gets the new search
        saved_search = self._hub.saved_at(event.name, event.at)
        if saved_search is None:
            return subscription.name is not None
        return subscription.owner in {None, saved_search.owner} and not (
            event.kind == "result" and saved_search.every
        )

    def _text(self, event: SearchEvent) -> bytes:
        if not self._is_for_stream(event):
            return b""
        kind = "removed" if event.kind == "replaced" else event.kind
        return message(kind, self._show(event), event.at.text(self._hub.run))


async def in_pieces(
    items: Sequence[T], text: Callable[[T], bytes], run: RunInThread | None
) -> AsyncIterator[tuple[T, bytes]]:
    """The bytes of items in pieces, each with its last item; ``run`` makes those of one item at a time."""
    texts: list[bytes] = []
    size = 0
    for number, item in enumerate(items, 1):
        texts.append(text(item) if run is None else await run(partial(text, item)))
        size += len(texts[-1])
        if number == len(items) or len(texts) == _AT_ONCE or size >= _PIECE_BYTES:
            yield item, b"".join(texts)
            texts, size = [], 0


async def _wait_for_disconnect(receive: Receive) -> None:
    """Wait until the client has disconnected."""
    while (await receive())["type"] != "http.disconnect":
        pass


def message(event: str, data: bytes, identity: str = "") -> bytes:
    """A server-sent event; ``data`` is JSON, which has no line ends."""
    head = f"event: {event}\n" + (f"id: {identity}\n" if identity else "")
    return head.encode() + b"data: " + data + b"\n\n"


def enveloped(search: dict[str, Any], key: str, data: bytes) -> bytes:
    """JSON under a key after the search to which it belongs, in a list: name, owner, metadata."""
    return b'{"searches":%b,"%b":%b}' % (orjson.dumps([search]), key.encode(), data)
