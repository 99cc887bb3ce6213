"""Connections that do not go on are cut off; others are left alone, however long their requests take."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from starlette.types import Receive, Scope, Send

from skws.serve.connections import connections
from skws.serve.server import Server, listening
from skws.serve.streams import StreamLimits, Streams

PATIENCE = 0.3
LARGE = 64 << 20  # more than the buffers of both ends hold
HEAD = b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"


async def app(scope: Scope, _: Receive, send: Send) -> None:
    """Answers with many bytes, or late."""
    if scope["path"] == "/late":
        await asyncio.sleep(5 * PATIENCE)
    size = LARGE if scope["path"] == "/large" else 2
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"%d" % size)]})
    await send({"type": "http.response.body", "body": b"x" * size})


@contextmanager
def server(streams: int = 10) -> Iterator[int]:
    at = listening("127.0.0.1", 0)
    running = Server(app, Streams(StreamLimits(most=streams)), at, PATIENCE)
    running.start()
    try:
        yield at.getsockname()[1]
    finally:
        running.close()


def connected(port: int) -> socket.socket:
    return socket.create_connection(("127.0.0.1", port), 30)


def taken_until_the_end(opened: socket.socket) -> int:
    """The bytes that the server sends before it ends the connection."""
    taken = 0
    try:
        while piece := opened.recv(1 << 20):
            taken += len(piece)
    except ConnectionError:
        pass
    return taken


@pytest.mark.parametrize("head", [b"", b"GET / HT", b"GET / HTTP/1.1\r\nHost: localhost\r\nX: "])
def test_a_head_that_does_not_end(head: bytes) -> None:
    with server() as port, connected(port) as slow, connected(port) as other:
        slow.sendall(head)
        assert not taken_until_the_end(slow)
        other.close()
        with connected(port) as later:
            later.sendall(HEAD)
            assert later.recv(100).startswith(b"HTTP/1.1 200")


def test_an_answer_that_nobody_takes() -> None:
    with server() as port, connected(port) as stuck:
        stuck.sendall(HEAD.replace(b"/ ", b"/large ", 1))
        time.sleep(4 * PATIENCE)
        assert taken_until_the_end(stuck) < LARGE


def test_an_answer_that_is_taken_slowly() -> None:
    with server() as port, connected(port) as slow:
        slow.sendall(HEAD.replace(b"/ ", b"/large ", 1))
        taken, begun = 0, time.monotonic()
        while taken < LARGE:
            piece = slow.recv(1 << 20)
            assert piece
            taken += len(piece)
            if time.monotonic() - begun < 5 * PATIENCE:
                time.sleep(PATIENCE / 10)


def test_a_request_that_takes_long() -> None:
    with server() as port, connected(port) as waiting:
        waiting.sendall(HEAD.replace(b"/ ", b"/late ", 1))
        assert waiting.recv(100).startswith(b"HTTP/1.1 200")


def test_more_than_there_may_be(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("skws.serve.connections._BESIDE_STREAMS", 2)
    with server(streams=1) as port:
        kept = [connected(port) for _ in range(3)]
        for one in kept:
            one.sendall(HEAD)
            assert one.recv(100).startswith(b"HTTP/1.1 200")
        with connected(port) as more:
            assert not taken_until_the_end(more)
        for one in kept:
            one.close()


def test_as_many_connections_as_files_allow() -> None:
    resource = pytest.importorskip("resource")
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(soft, 1024), hard))
        assert connections(3_000).most == 4_000
        assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] > 4_000
        assert connections(10 * hard).most < hard
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
