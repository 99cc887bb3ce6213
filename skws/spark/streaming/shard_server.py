"""The process that keeps the mesh of one shard between micro-batches.

Spark gives a shard's task to any idle Python worker of an executor, in turn,
so a mesh in a worker's memory is there for half of the batches only (two
shards on two cores), and would have to be built anew for the others. Tasks
therefore ask this process, over a Unix socket that no other user can reach.
It answers for no epoch but its own: after a failed or repeated task, or on an
executor that is new to the shard, it is told the log again.

It ends when the executor's Python daemon is gone, its socket is, or nobody
has asked for an hour.
"""

from __future__ import annotations

import os
import pickle
import socket
import sys
import time
import traceback
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

import orjson

from skws.memory import use
from skws.queries.keywords.collector import expect_long_lived_objects
from skws.queries.partitioning import Part
from skws.queries.results import written
from skws.spark.streaming.compressed import compressed
from skws.spark.streaming.frames import Message, receive, send
from skws.spark.streaming.micro_batch import MicroBatch
from skws.spark.streaming.record_log import Chunk
from skws.spark.streaming.setup import Setup
from skws.spark.streaming.shard import Shard, Worked
from skws.spec.job import Job
from skws.spec.query import Query
from skws_schema.errors import SkwsError
from skws_schema.memory import explain_refusals

IDLE: Final = 3600.0  # seconds
RESULTS_A_BLOB: Final = 5_000


class ShardServer:
    """Answers the messages of tasks; ``epoch`` is that of the mesh, -1 without one."""

    def __init__(self, request: Job, share: Part) -> None:
        self._request = request
        self._share = share
        self._shard = Shard(request, share)
        self._next = 0
        self.epoch = -1

    def answer(self, message: Message) -> Message:
        """What a task is told. Raises SkwsError."""
        match message.head["op"]:
            case "work":
                if message.head["epoch"] != self.epoch:
                    return Message({"op": "behind"}, [])
                return self._work(message)
            case "past":
                self._shard.replay_silently(Chunk(**message.head["chunk"]), message.blobs[0])
            case "begin":
                self.epoch = -1
                self._shard = Shard(self._request, self._share)
                queries = [Query.from_dict(one) for one in message.head["queries"]]
                names, blobs = message.head["states"], message.blobs
                states = dict(zip(names, blobs, strict=False))
                self._shard.begin(blobs[len(names) :], queries, message.head["schemas"], states)
            case "chunk":
                self._shard.replay(Chunk(**message.head["chunk"]), message.blobs[0])
            case "stand":
                self._shard.seek(message.head["position"], message.head["now"])
                self.epoch = message.head["epoch"]
        return Message({"op": "ok"}, [])

    def _work(self, message: Message) -> Message:
        parcel = MicroBatch.from_bytes(message.blobs[0])
        if not message.head["past"] and self._shard.asks_past(parcel):
            return Message({"op": "past"}, [])
        epoch, self.epoch = self.epoch, -1  # until all is done, the mesh belongs to no epoch
        worked = self._shard.work(parcel)
        self.epoch = epoch + 1
        head = {
            "op": "done",
            "chunk": asdict(worked.chunk) if worked.chunk else None,
            "dropped": worked.dropped,
            "added": [one.to_dict() for one in worked.added],
            "removed": worked.removed,
            "schemas": worked.schemas,
            "position": self._shard.position,
            "now": self._shard.now,
            "states": list(worked.states),
        }
        return Message(head, [*worked.states.values(), *blobs_of(worked)])


def blobs_of(worked: Worked) -> list[bytes]:
    """Lines: in the first blob what is told, then results, so many to a blob, compressed."""
    lines = [written(result) for result in worked.results]
    parts = [lines[at : at + RESULTS_A_BLOB] for at in range(0, len(lines), RESULTS_A_BLOB)]
    return [orjson.dumps(worked.told), *(compressed(b"\n".join(part)) for part in parts)]


def serve(setup: Setup) -> None:
    """Until there is no reason to; in a process that nobody has to wait for, once the socket is there."""
    expect_long_lived_objects()
    request = setup.request.read()
    use(request.memory, lambda _: None, setup.share.shards)
    server = ShardServer(request, setup.share)
    here = setup.socket.with_suffix(f".{os.getpid()}")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(here))
        here.chmod(0o600)
        listener.listen()
        listener.settimeout(1.0)
        here.rename(setup.socket)
        own = setup.socket.stat().st_ino
        if os.fork():
            return
        asked = time.monotonic()
        while _wanted(setup, own, asked):
            with suppress(TimeoutError):
                connection, _ = listener.accept()
                _converse(connection, server)
                asked = time.monotonic()
        _leave(setup.socket, own)


def _leave(path: Path, own: int) -> None:
    """Nothing behind, unless another server is there by now."""
    with suppress(OSError):
        if path.stat().st_ino == own:
            path.unlink()
            path.with_suffix(".log").unlink()
            path.parent.rmdir()


def _wanted(setup: Setup, own: int, asked: float) -> bool:
    try:
        os.kill(setup.daemon, 0)
        return setup.socket.stat().st_ino == own and time.monotonic() - asked < IDLE
    except OSError:
        return False


def _converse(connection: socket.socket, server: ShardServer) -> None:
    """With one task, until it goes."""
    with connection, suppress(EOFError, OSError):
        connection.settimeout(None)
        while True:
            message = receive(connection)
            send(connection, *_answered(server, message))


def _answered(server: ShardServer, message: Message) -> Message:
    try:
        with explain_refusals():
            return server.answer(message)
    except SkwsError as error:
        told: dict[str, Any] = {"op": "error", "kind": type(error).__name__, "message": str(error)}
    except Exception:
        told = {"op": "error", "kind": "", "message": traceback.format_exc()}
    server.epoch = -1
    return Message(told, [])


if __name__ == "__main__":
    # From the parent process, through a pipe: nobody else can write there.
    serve(pickle.load(sys.stdin.buffer))  # noqa: S301
