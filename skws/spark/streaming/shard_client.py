"""Client of a shard server; starts the server if needed."""

from __future__ import annotations

import os
import pickle
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from multiprocessing.connection import Connection
from pathlib import Path
from struct import Struct
from typing import Any, Final

from skws.queries.partitioning.parts import Part
from skws.spark.sockets import temporary_folder
from skws.spark.streaming.messages import WORKING, Setup, ShardFailure
from skws_schema import errors
from skws_schema.errors import SkwsError

START_SECONDS: Final = 60.0  # seconds for the start of a server
SILENCE: Final = 60.0
"""Seconds in which a server must take a message or send a heartbeat; otherwise it is given up."""
_TIMEVAL: Final = Struct("@ll")


def socket_dir(run: str) -> Path:
    """The folder for the sockets of a run's servers on this machine."""
    return temporary_folder() / f"skws-{os.getuid()}-{run}"


def shut_down(run: str) -> None:
    """End the servers of a run on this machine by removing their sockets."""
    folder = socket_dir(run)
    if folder.is_dir():
        for path in folder.iterdir():
            path.unlink(missing_ok=True)
        with suppress(OSError):
            folder.rmdir()


def _daemon() -> int:
    """The Python daemon of this worker, which leads its process group; otherwise the worker itself.

    If the executor is killed before its worker calls this, the parent is an unrelated process, with which a
    server would live on.
    """
    parent = os.getppid()
    return parent if parent == os.getpgrp() else os.getpid()


class ShardClient:
    """A connection to a shard's server. Raises the server's SkwsError, OSError, RuntimeError.

    ``python``: the program to start a server. ``daemon``: a server that is started here ends with this
    process. For a worker it is the parent, which forked it and lives as long as the executor. ``silence``:
    see ``SILENCE``; the socket of a server that does not answer is removed, so that the next client starts
    another one. ``tabular``: see ``Setup``.
    """

    def __init__(
        self,
        run: str,
        request: bytes,
        share: Part,
        daemon: int | None = None,
        python: str = sys.executable,
        silence: float = SILENCE,
        *,
        tabular: bool = False,
    ) -> None:
        self._python = python
        self._silence = silence
        self._path = socket_dir(run) / f"{share.number}.socket"
        setup = Setup(request, share, self._path, daemon or _daemon(), tabular)
        try:
            self._connection = self._connect(setup)
        except FileNotFoundError:
            if self._path.parent.exists():
                raise
            raise RuntimeError("the server of a shard has ended and removed its folder") from None

    def ask(self, operation: str, *arguments: Any) -> Any:
        """Call an operation of the server (``ShardServer.answer``)."""
        self.send(operation, *arguments)
        return self.answer()

    def send(self, operation: str, *arguments: Any) -> None:
        """As ``ask``, without waiting for the answer."""
        with self._server_errors():
            self._connection.send((operation, *arguments))

    def answer(self) -> Any:
        """The answer to the message sent last."""
        answer: Any = WORKING
        with self._server_errors():
            while answer == WORKING:
                answer = self._connection.recv()
        if not isinstance(answer, ShardFailure):
            return answer
        kind = getattr(errors, answer.kind, None)
        if isinstance(kind, type) and issubclass(kind, SkwsError):
            raise kind(answer.message)
        raise RuntimeError(answer.message)

    def close(self) -> None:
        self._connection.close()

    def _connect(self, setup: Setup) -> Connection:
        folder = self._path.parent
        folder.mkdir(mode=0o700, exist_ok=True)
        if folder.stat().st_uid != os.getuid():
            raise PermissionError(f"{folder} belongs to another user")
        return self._try_connect() or self._start_server(setup)

    def _try_connect(self) -> Connection | None:
        """A connection for objects, over a socket that no other user can reach.

        It raises BlockingIOError after a silence.
        """
        limit = _TIMEVAL.pack(int(self._silence), int(self._silence % 1 * 1e6))
        with suppress(OSError), socket.socket(socket.AF_UNIX) as unix_socket:
            for option in (socket.SO_SNDTIMEO, socket.SO_RCVTIMEO):
                unix_socket.setsockopt(socket.SOL_SOCKET, option, limit)
            self._inode = self._path.stat().st_ino
            unix_socket.connect(str(self._path))
            return Connection(unix_socket.detach())
        return None

    @contextmanager
    def _server_errors(self) -> Iterator[None]:
        try:
            yield
        except (EOFError, ConnectionError):
            raise RuntimeError("the server of a shard has gone") from None
        except BlockingIOError:
            with suppress(OSError):
                if self._path.stat().st_ino == self._inode:
                    self._path.unlink()
            raise RuntimeError(f"the server of a shard does not answer ({self._silence:g} s)") from None

    def _start_server(self, setup: Setup) -> Connection:
        log = self._path.with_suffix(".log")
        with log.open("wb") as errors, suppress(subprocess.TimeoutExpired):
            subprocess.run(  # noqa: S603 - this Python, or that of Spark's workers
                [self._python, "-m", "skws.spark.streaming.shard_server"],
                input=pickle.dumps(setup),
                stdout=errors,
                stderr=errors,
                timeout=START_SECONDS,
                check=False,
                start_new_session=True,
                env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
            )
        # The program has ended; its fork listens.
        connection = self._try_connect()
        if connection is None:
            raise RuntimeError(f"the server of a shard did not start:\n{log.read_text()[-2000:]}")
        return connection
