"""Messages between a task and the server of its shard: a JSON head and blobs, over a socket."""

from __future__ import annotations

import socket
from collections.abc import Sequence
from struct import Struct
from typing import Any, Final, NamedTuple

import orjson

_LENGTH: Final = Struct("<Q")


class Message(NamedTuple):
    """``head`` says what it is; ``blobs`` go with it."""

    head: dict[str, Any]
    blobs: list[bytes]


def send(to: socket.socket, head: dict[str, Any], blobs: Sequence[bytes] = ()) -> None:
    """Raises OSError."""
    told = orjson.dumps({**head, "lengths": [len(blob) for blob in blobs]})
    to.sendall(b"".join((_LENGTH.pack(len(told)), told, *blobs)))


def receive(of: socket.socket) -> Message:
    """Raises EOFError if the other side has gone, OSError."""
    (length,) = _LENGTH.unpack(_exactly(of, _LENGTH.size))
    head = orjson.loads(_exactly(of, length))
    return Message(head, [_exactly(of, size) for size in head.pop("lengths")])


def _exactly(of: socket.socket, length: int) -> bytes:
    buffer = bytearray(length)
    view = memoryview(buffer)
    got = 0
    while got < length:
        count = of.recv_into(view[got:])
        if not count:
            raise EOFError
        got += count
    return bytes(buffer)
