"""The process that keeps the mesh of one shard between micro-batches.

Spark gives a shard's task to any idle Python worker of an executor, in turn,
so a mesh in a worker's memory is there for half of the batches only (two
shards on two cores), and would have to be built anew for the others. Tasks
therefore ask this process, over a Unix socket that no other user can reach.
It answers for no epoch but its own: after a failed or repeated task, or on an
executor that is new to the shard, the log is replayed to it.

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
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Final

import orjson

from skws.data.packing import compressed
from skws.memory import use
from skws.queries.keywords.collector import expect_long_lived_objects
from skws.queries.partitioning import Part
from skws.queries.results import written
from skws.spark.streaming.messages import (
    BEHIND,
    PAST,
    Failed,
    MicroBatch,
    Setup,
    Worked,
)
from skws.spark.streaming.shard import Shard
from skws.spec.job import Job
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

    def answer(self, message: Sequence[Any]) -> Any:
        """The answer to a task. Raises SkwsError."""
        operation, *given = message
        answers: dict[str, Callable[..., Any]] = {
            "begin": self._begin,
            "replay": self._shard.replay,
            "replay_silently": self._shard.replay_silently,
            "seek": self._seek,
            "work": self._work,
        }
        return answers[operation](*given)

    def _begin(self, *state: Any) -> None:
        """As ``Shard.begin``; the log comes next, then ``seek``."""
        self.epoch = -1
        self._shard = Shard(self._request, self._share)
        self._shard.begin(*state)

    def _seek(self, position: int, now: int, epoch: int) -> None:
        self._shard.seek(position, now)
        self.epoch = epoch

    def _work(self, epoch: int, blob: bytes, past: bool) -> Worked | str:
        """``past``: the log has been sent, if the batch's commands need it."""
        if epoch != self.epoch:
            return BEHIND
        micro_batch = MicroBatch.from_bytes(blob)
        if not past and self._shard.asks_past(micro_batch):
            return PAST
        self.epoch = -1  # until all is done, the mesh belongs to no epoch
        worked = self._shard.work(micro_batch)
        self.epoch = epoch + 1
        return replace(worked, results=[], stats={}, blobs=blobs_of(worked))


def blobs_of(worked: Worked) -> list[bytes]:
    """Lines: stats in the first blob, then results, so many to a blob, compressed."""
    lines = [written(result) for result in worked.results]
    parts = [lines[at : at + RESULTS_A_BLOB] for at in range(0, len(lines), RESULTS_A_BLOB)]
    return [orjson.dumps(worked.stats), *(compressed(b"\n".join(part)) for part in parts)]


def serve(setup: Setup) -> None:
    """Until there is no reason to; in a process that nobody has to wait for, once the socket is there."""
    expect_long_lived_objects()
    request: Job = pickle.loads(setup.request)  # noqa: S301 - as below
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
                connection.settimeout(None)
                _converse(Connection(connection.detach()), server)
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


def _converse(connection: Connection, server: ShardServer) -> None:
    """With one task, until it goes."""
    with connection, suppress(EOFError, OSError):
        while True:
            connection.send(_answered(server, connection.recv()))


def _answered(server: ShardServer, message: Sequence[Any]) -> Any:
    try:
        with explain_refusals():
            return server.answer(message)
    except SkwsError as error:
        failed = Failed(type(error).__name__, str(error))
    except Exception:
        failed = Failed("", traceback.format_exc())
    server.epoch = -1
    return failed


if __name__ == "__main__":
    # From the parent process, through a pipe: nobody else can write there.
    serve(pickle.load(sys.stdin.buffer))  # noqa: S301
