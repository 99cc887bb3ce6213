"""Processes that work for one command and end with it, however it ends.

A task is a function of a module and its arguments. It runs in a worker and emits messages, which the
command gets in order of tasks, while other tasks run.
"""

from __future__ import annotations

import gc
import os
import pickle
import signal
import sys
import threading
from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing import connection, get_context, parent_process
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from typing import Any, Final, Self, TypeAlias

from skws.formats.files import Spool
from skws.memory import MemoryShare, share
from skws_schema.errors import SkwsError

Task: TypeAlias = tuple[Callable[..., None], tuple[Any, ...]]

# By the process that forks workers, once for all of them.
_LOADED: Final = ["skws.parallel.search", "skws.queries.keywords.columnar"]


@dataclass(frozen=True, slots=True)
class _End:
    """The last message of a task."""

    error: BaseException | None = None


class Worker:
    """A worker as its tasks see it: ``number`` among all; ``spools`` are those of the run."""

    def __init__(self, number: int, spools: Sequence[Spool], channel: Connection) -> None:
        self.number = number
        self.spools = spools
        self._channel = channel

    def emit(self, message: object) -> None:
        """Send a message to the command."""
        self._channel.send(message)


class Workers:
    """``number`` worker processes, started at once, which share ``spools`` and the memory of a run.

    They end with the ``with``, or with this process if it is killed.
    """

    def __init__(self, number: int, spools: int = 0) -> None:
        self.number = number
        self.spools = [Spool() for _ in range(spools)]
        self._idle: list[Connection] = []
        self._busy: dict[Connection, int] = {}  # the numbers of tasks
        self._waiting: deque[tuple[int, Task]] = deque()
        self._inbox: dict[int, deque[Any]] = {}
        self._most = number
        self._processes: list[BaseProcess] = []
        with _interrupts_held():
            self._start(number)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _start(self, number: int) -> None:
        memory = share(number)
        context: Any = get_context("fork" if _forks() else "forkserver")
        if not _forks():
            context.set_forkserver_preload(_LOADED)
        for one in range(number):
            ours, theirs = context.Pipe()
            process = context.Process(
                target=_serve, args=(one, self.spools, theirs, memory), name=f"skws-{one}", daemon=True
            )
            process.start()
            theirs.close()
            self._processes.append(process)
            self._idle.append(ours)

    def close(self) -> None:
        """End the workers, whatever they do."""
        for process in self._processes:
            process.kill()
        for process in self._processes:
            process.join()
            process.close()
        for channel in (*self._idle, *self._busy):
            channel.close()
        for spool in self.spools:
            spool.close()
        self._processes, self._idle, self._busy, self.spools = [], [], {}, []

    def run(self, tasks: Sequence[Task], most: int | None = None) -> Iterator[Generator[Any, None, None]]:
        """The messages of each task, task by task in their order; others run meanwhile, ``most`` at a time.

        Raises what a task raises, in its place; SkwsError if a worker was killed.
        """
        self._waiting.clear()
        while self._busy:  # with tasks of which nothing more is wanted
            self._receive(wait=True)
        self._waiting = deque(enumerate(tasks))
        self._inbox = {number: deque() for number in range(len(tasks))}
        self._most = self.number if most is None else most
        self._assign()
        for number in range(len(tasks)):
            yield self._messages(number)

    def _messages(self, number: int) -> Generator[Any, None, None]:
        inbox = self._inbox[number]
        while True:
            self._receive(wait=not inbox)
            while inbox:
                message = inbox.popleft()
                if not isinstance(message, _End):
                    yield message
                elif message.error is not None:
                    raise message.error
                else:
                    return

    def _assign(self) -> None:
        while self._idle and self._waiting and len(self._busy) < self._most:
            channel = self._idle.pop()
            number, task = self._waiting.popleft()
            channel.send(task)
            self._busy[channel] = number

    def _receive(self, *, wait: bool) -> None:
        """Put away the messages that are there, after waiting for one."""
        for channel in connection.wait(list(self._busy), None if wait else 0):
            assert isinstance(channel, Connection)  # noqa: S101 - only they are waited for
            try:
                message = channel.recv()
            except (EOFError, OSError):
                raise SkwsError(
                    "a process of the search was killed, perhaps because memory ran short:"
                    " see --memory and --jobs"
                ) from None
            number = self._busy[channel]
            self._inbox[number].append(message)
            if isinstance(message, _End):
                del self._busy[channel]
                self._idle.append(channel)
        self._assign()


@contextmanager
def _interrupts_held() -> Iterator[None]:
    """Ctrl-C waits: Python drops it in calls around a fork, and workers are to ignore it from the start."""
    held = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, held)


def _forks() -> bool:
    """Whether this process can be copied: it has no other threads, whose locks a copy would never get."""
    return sys.platform == "linux" and threading.active_count() == 1


def _serve(number: int, spools: Sequence[Spool], channel: Connection, memory: MemoryShare | None) -> None:
    """Run tasks until the command ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the command decides
    threading.Thread(target=_end_with_parent, daemon=True).start()
    gc.freeze()
    worker = Worker(number, spools, channel)
    while True:
        try:
            task, arguments = channel.recv()
        except EOFError:
            return
        worker.emit(_done(worker, task, arguments, memory))


def _done(worker: Worker, task: Any, arguments: tuple[Any, ...], memory: MemoryShare | None) -> _End:
    try:
        if memory is None:
            task(worker, *arguments)
        else:
            with memory.kept():
                task(worker, *arguments)
    except BrokenPipeError:
        os._exit(1)  # nobody listens
    except Exception as error:
        return _End(_sendable(error))
    return _End()


def _sendable(error: Exception) -> Exception:
    try:
        again = pickle.loads(pickle.dumps(error))  # noqa: S301 - its own
    except Exception:
        return RuntimeError(f"{type(error).__name__}: {error}")
    return error if str(again) == str(error) else RuntimeError(f"{type(error).__name__}: {error}")


def _end_with_parent() -> None:
    parent = parent_process()
    assert parent is not None  # noqa: S101 - a worker has one
    connection.wait([parent.sentinel])
    os._exit(1)
