"""Stalled connections are closed; others are not, however long their requests take."""

from __future__ import annotations

import asyncio
import os
import socket
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager

import orjson
import pytest
from starlette.types import Message, Receive, Scope, Send

from skws.serve.event_publisher import EventPublisher
from skws.serve.events import START, EventLog, EventPosition, SearchEvent
from skws.serve.saved import SavedSearch
from skws.serve.server import HttpServer, connections, listening_socket
from skws.serve.server_options import StreamLimits
from skws.serve.streams import EventStream, EventStreams, Subscription
from skws.spec.query_spec import Query
from tests.waiting import until

STALL_SECONDS = 0.3
LARGE = 64 << 20  # more than the buffers of both ends can hold
HEAD = b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"


async def app(scope: Scope, _: Receive, send: Send) -> None:
    """Answers with many bytes, or late."""
    if scope["path"] == "/late":
        await asyncio.sleep(5 * STALL_SECONDS)
    size = LARGE if scope["path"] == "/large" else 2
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"%d" % size)]})
    await send({"type": "http.response.body", "body": b"x" * size})


@contextmanager
def server(streams: int = 10, beside: int = 1_000) -> Iterator[int]:
    listener = listening_socket("127.0.0.1", 0)
    http_server = HttpServer(app, EventStreams(StreamLimits(most=streams)), listener, STALL_SECONDS, beside)
    http_server.start()
    try:
        yield listener.getsockname()[1]
    finally:
        http_server.close()


def connect(port: int) -> socket.socket:
    return socket.create_connection(("127.0.0.1", port), 30)


def open_files() -> int:
    return len(os.listdir("/dev/fd"))


def size_until_end(connection: socket.socket) -> int:
    """The bytes that the server sends before it ends the connection."""
    size = 0
    try:
        while piece := connection.recv(1 << 20):
            size += len(piece)
    except ConnectionError:
        pass
    return size


@pytest.mark.parametrize("head", [b"", b"GET / HT", b"GET / HTTP/1.1\r\nHost: localhost\r\nX: "])
def test_a_connection_with_an_incomplete_head_is_closed(head: bytes) -> None:
    with server() as port, connect(port) as incomplete, connect(port) as complete:
        incomplete.sendall(head)
        assert not size_until_end(incomplete)
        complete.close()
        with connect(port) as next_connection:
            next_connection.sendall(HEAD)
            assert next_connection.recv(100).startswith(b"HTTP/1.1 200")


def test_an_unread_answer_is_abandoned() -> None:
    with server() as port:
        before = open_files()
        with connect(port) as connection:
            connection.sendall(HEAD.replace(b"/ ", b"/large ", 1))
            assert connection.recv(1)
            until(lambda: open_files() == before + 1)  # the server, in this process, has closed its end
            assert size_until_end(connection) < LARGE


def test_an_answer_that_is_read_slowly_is_completed() -> None:
    with server() as port, connect(port) as connection:
        connection.sendall(HEAD.replace(b"/ ", b"/large ", 1))
        size, start = 0, time.monotonic()
        while size < LARGE:
            piece = connection.recv(1 << 20)
            assert piece
            size += len(piece)
            if time.monotonic() - start < 5 * STALL_SECONDS:
                time.sleep(STALL_SECONDS / 10)


def test_a_slow_request_is_completed() -> None:
    with server() as port, connect(port) as connection:
        connection.sendall(HEAD.replace(b"/ ", b"/late ", 1))
        assert connection.recv(100).startswith(b"HTTP/1.1 200")


def test_connections_beyond_the_limit_are_refused() -> None:
    with server(streams=1, beside=2) as port:
        open_connections = [connect(port) for _ in range(3)]
        for connection in open_connections:
            connection.sendall(HEAD)
            assert connection.recv(100).startswith(b"HTTP/1.1 200")
        with connect(port) as extra:
            assert not size_until_end(extra)
        for connection in open_connections:
            connection.close()


def test_connections_are_limited_by_open_files() -> None:
    resource = pytest.importorskip("resource")
    soft_limit, hard_limit = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(soft_limit, 1024), hard_limit))
        assert connections(3_000).most == 4_000
        assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] > 4_000
        assert connections(10 * hard_limit).most < hard_limit
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft_limit, hard_limit))


class Client:
    """Reads up to ``most`` pieces of a stream."""

    def __init__(self, most: int) -> None:
        self.text = ""
        self.sizes: list[int] = []
        self._left = most

    async def send(self, message: Message) -> None:
        if message["type"] != "http.response.body":
            return
        if not self._left:
            await asyncio.Event().wait()
        self._left -= 1
        self.sizes.append(len(message["body"]))
        self.text += message["body"].decode()

    async def receive(self) -> Message:
        await asyncio.Event().wait()
        raise AssertionError

    @property
    def ids(self) -> list[str]:
        return [line.removeprefix("id: ") for line in self.text.splitlines() if line.startswith("id: ")]

    @property
    def numbers(self) -> list[int]:
        lines = [line for line in self.text.splitlines() if line.startswith("data: {")]
        return [int(line.rpartition(":")[2].rstrip("}")) for line in lines if '"n"' in line]


def events(first: int, last: int) -> list[SearchEvent]:
    return [SearchEvent(EventPosition(n, 1), "result", "x", b'{"n":%d}' % n) for n in range(first, last + 1)]


def open_stream(
    publisher: EventPublisher, streams: EventStreams, client: Client, subscription: Subscription | None = None
) -> asyncio.Task[None]:
    async def snapshot() -> AsyncIterator[bytes]:
        yield b"event: ready\n\n"

    def show(event: SearchEvent) -> bytes:
        assert event.name == "x"
        if event.data == b"bad":
            raise ValueError(event)
        return event.data

    subscribed = subscription or Subscription("x", at=EventPosition(*START))
    stream = EventStream(publisher, streams, subscribed, snapshot, show)
    return asyncio.create_task(stream({}, client.receive, client.send))


async def until_received(client: Client, number: int) -> None:
    async with asyncio.timeout(20):
        while number not in client.numbers:
            await asyncio.sleep(0.01)


def test_a_stream_whose_next_event_is_no_longer_stored_is_ended() -> None:
    async def scenario() -> None:
        streams = EventStreams(StreamLimits())
        streams.begin(asyncio.get_running_loop())
        publisher = EventPublisher(None, 20, lambda: 0, streams.wake)
        publisher.log.append(events(1, 5))
        client = Client(99)
        await asyncio.wait_for(open_stream(publisher, streams, client), 20)
        assert "event: behind" in client.text
        assert client.numbers == []
        assert (streams.slow, len(streams)) == (1, 0)

    asyncio.run(scenario())


@pytest.mark.parametrize("of", ["search", "all"])
def test_a_stream_resumes_however_many_events_are_stored(of: str) -> None:
    """Otherwise it would end as behind each time its client resumes it."""

    async def scenario() -> None:
        streams = EventStreams(StreamLimits())
        streams.begin(asyncio.get_running_loop())
        publisher = EventPublisher(None, 1 << 24, lambda: 0, streams.wake)
        publisher.saved["x"] = SavedSearch(Query("ada", name="x"))
        publisher.log.append(events(1, 11_000))
        client = Client(999)
        stream = open_stream(publisher, streams, client, Subscription("x" if of == "search" else None))
        await until_received(client, 11_000)
        assert client.numbers == list(range(1, 11_001))
        streams.close()
        await asyncio.wait_for(stream, 20)
        assert "behind" not in client.text

    asyncio.run(scenario())


def test_a_client_that_reads_nothing_is_disconnected() -> None:
    async def scenario() -> None:
        streams = EventStreams(StreamLimits(stalled=0.5))
        streams.begin(asyncio.get_running_loop())
        publisher = EventPublisher(None, 1 << 20, lambda: 0, streams.wake)
        stalled, active = Client(2), Client(99)
        stalled_stream, active_stream = (
            open_stream(publisher, streams, stalled),
            open_stream(publisher, streams, active),
        )
        for number in range(1, 9):
            publisher.log.append(events(number, number))
            streams.wake(["x"])
            await until_received(active, number)
        await asyncio.wait_for(stalled_stream, 20)
        assert stalled.numbers == [1]
        assert (streams.slow, len(streams)) == (1, 1)
        publisher.log.append(events(9, 9))
        streams.wake(["x"])
        await until_received(active, 9)
        assert active.numbers == list(range(1, 10))
        streams.close()
        await asyncio.wait_for(active_stream, 20)
        assert "event: end" in active.text

    asyncio.run(scenario())


def test_the_stream_of_a_removed_search_ends_also_if_it_was_saved_again() -> None:
    async def scenario() -> None:
        streams = EventStreams(StreamLimits())
        streams.begin(asyncio.get_running_loop())
        publisher = EventPublisher(None, 1 << 20, lambda: 0, streams.wake)
        publisher.saved["x"] = SavedSearch(Query("ada", name="x"))
        data = orjson.dumps(publisher.saved["x"].to_dict())
        removed = SearchEvent(EventPosition(2, 1), "removed", "x", data)
        added = SearchEvent(EventPosition(2, 2), "added", "x", data)
        publisher.log.append([*events(1, 1), removed, added, *events(3, 3)])
        client = Client(99)
        await asyncio.wait_for(open_stream(publisher, streams, client), 20)
        assert "event: removed" in client.text
        assert (client.numbers, len(streams)) == ([1], 0)

    asyncio.run(scenario())


def test_large_events_are_sent_in_small_pieces() -> None:
    """The time limit for a slow client applies to each piece."""

    async def scenario() -> None:
        streams = EventStreams(StreamLimits())
        streams.begin(asyncio.get_running_loop())
        publisher = EventPublisher(None, 1 << 26, lambda: 0, streams.wake)
        large = b'{"text":"%b","n":%%d}' % (b"x" * 300_000)
        publisher.log.append([event._replace(data=large % event.at.batch) for event in events(1, 20)])
        client = Client(99)
        stream = open_stream(publisher, streams, client)
        await until_received(client, 20)
        assert client.numbers == list(range(1, 21))
        assert max(client.sizes) < 2_000_000
        streams.close()
        await asyncio.wait_for(stream, 20)

    asyncio.run(scenario())


@pytest.mark.parametrize("of", ["owner", "digest"])
def test_a_stream_without_events_of_its_own_gets_ids(of: str) -> None:
    """Even while another owner's searches, or a digest that is being collected, have events continuously."""

    async def scenario() -> None:
        streams = EventStreams(StreamLimits(heartbeat=0.1))
        streams.begin(asyncio.get_running_loop())
        publisher = EventPublisher(None, 100, lambda: 0, streams.wake)
        publisher.saved["x"] = SavedSearch(
            Query("ada", name="x"), "ann", every="1 day" if of == "digest" else ""
        )
        client = Client(99)
        subscription = Subscription(None, "bob") if of == "owner" else Subscription("x")
        stream = open_stream(publisher, streams, client, subscription)
        number = 0
        async with asyncio.timeout(20):
            while len(client.ids) < 3:
                number += 1
                publisher.log.append(events(number, number))
                streams.wake(["x"])
                await asyncio.sleep(0.01)
                assert not stream.done(), client.text
        assert publisher.log.floor > EventPosition(*START), "the first of these events is no longer stored"
        positions = [position for text in client.ids if (position := EventPosition.of(text, publisher.run))]
        assert len(positions) >= 3
        assert positions == sorted(set(positions))
        assert client.numbers == []
        assert "behind" not in client.text
        streams.close()
        await asyncio.wait_for(stream, 20)

    asyncio.run(scenario())


def test_a_stream_is_not_behind_because_of_other_searches() -> None:
    async def scenario() -> None:
        streams = EventStreams(StreamLimits())
        streams.begin(asyncio.get_running_loop())
        publisher = EventPublisher(None, 100, lambda: 0, streams.wake)
        publisher.saved["x"] = SavedSearch(Query("ada", name="x"))
        client = Client(99)
        stream = open_stream(publisher, streams, client)
        await asyncio.sleep(0)
        for number in range(1, 100):
            publisher.log.append([SearchEvent(EventPosition(number, 1), "result", "y", b'{"other":1}')])
        publisher.log.append(events(100, 100))
        streams.wake(["x", "y"])
        await until_received(client, 100)
        assert "behind" not in client.text
        for first in (101, 201):
            publisher.log.append(events(first, first + 99))
        streams.wake(["x"])
        await asyncio.wait_for(stream, 20)
        assert "event: behind" in client.text

    asyncio.run(scenario())


@pytest.mark.parametrize("most", [1, 1 << 17])
def test_no_dropped_event_is_after_the_floor_of_its_search(most: int) -> None:
    log = EventLog(100, most)
    names = "xyz"
    appended: list[SearchEvent] = []
    for number in range(1, 200):
        name = names[number * number % 7 % 3]
        appended.append(SearchEvent(EventPosition(number, 1), "result", name, b"." * (number % 40)))
        log.append(appended[-1:])
        for one in names:
            floor = log.floor_of(one)
            assert floor <= log.floor
            later = [event for event in appended if event.name == one and event.at > floor]
            assert log.after(floor, one, 1_000) == later
    assert log.floor_of(None) == log.floor


def test_an_error_in_a_stream_reaches_the_server() -> None:
    async def scenario() -> None:
        streams = EventStreams(StreamLimits())
        streams.begin(asyncio.get_running_loop())
        publisher = EventPublisher(None, 1 << 20, lambda: 0, streams.wake)
        stream = open_stream(publisher, streams, Client(99))
        await asyncio.sleep(0)
        publisher.log.append([SearchEvent(EventPosition(1, 1), "result", "x", b"bad")])
        streams.wake(["x"])
        with pytest.raises(ValueError, match="bad"):
            await asyncio.wait_for(stream, 20)
        assert len(streams) == 0

    asyncio.run(scenario())
