"""The protocol of sinks: batches of results by number, each written once.

A run that resumes after a failure repeats some batches with the same numbers.
A sink reads the last batch that it made durable from the folder of the run, and
skips all batches up to it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from hashlib import blake2b
from pathlib import Path
from typing import Any, Final, Protocol, TypeVar

from skws.durable import keep, kept, missing, outdated
from skws.results.model import LiveResult
from skws.sources.feed import SystemClock
from skws.sources.retry import retry
from skws_schema.errors import SkwsError, SourceError
from skws_schema.model import Schema

T = TypeVar("T")


class Marks:
    """The progress of one sink, kept in the run's folder, if it has one. Raises StateError."""

    def __init__(self, run: Run, address: str) -> None:
        self._run = run
        self._name = f"{blake2b(address.encode(), digest_size=8).hexdigest()}.json"
        self._path = None if run.folder is None else run.folder / self._name
        self._of = f"{run.id}/{self._name}"

    def read(self) -> dict[str, Any]:
        """The last progress; empty if there is none."""
        if self._path is None:
            return {}
        if not self._path.exists():
            if self._name in self._run.least:
                raise missing(self._path)
            return {}
        found: dict[str, Any] = kept(self._path, self._of)
        if found["batch"] < self._run.least.get(self._name, NONE):
            raise outdated(self._path)
        self._run.hold(found["batch"])
        return found

    def keep(self, batch: int, **more: Any) -> None:
        if self._path is not None:
            keep(self._path, {"batch": batch, **more}, self._of)
            self._run.least[self._name] = batch


NONE: Final = -1
"""Before all batches."""


class SinkError(SkwsError):
    """Results cannot be written."""


@dataclass(slots=True)
class Run:
    """A run, as its sinks see it.

    ``id`` stays the same when a run resumes. ``folder`` holds the progress of
    sinks; None if the run cannot resume. ``wait`` sleeps for some seconds, and
    returns False if the run should end. ``tell`` takes lines for the user.
    ``schema`` is that of the next results; it may change. ``least``: the batch
    that each file in ``folder`` must have reached, by the checkpoint. ``held``:
    the last batch that some sink has written.
    """

    id: str
    folder: Path | None
    schema: Schema
    match_names: bool
    wait: Callable[[float], bool]
    tell: Callable[[str], None]
    least: dict[str, int] = field(default_factory=dict)
    held: int = NONE

    def hold(self, batch: int) -> None:
        """Note that a sink has written a batch already."""
        self.held = max(self.held, batch)


def persistently(run: Run, name: str, call: Callable[[], T]) -> T:
    """The result of ``call``, tried again while it raises NotYetError, as sources do. Raises SinkError."""
    try:
        done = retry(lambda: (call(),), SystemClock(), run.wait, run.tell)
    except SourceError as error:
        raise SinkError(str(error)) from None
    if done is None:
        raise SinkError(f"{name}: the run ended while the server was away")
    return done[0]


class Sink(Protocol):
    """Takes results, from one thread at a time; all methods may raise SinkError.

    ``name`` has no password in it. ``every``: the seconds between two flushes
    that suit the sink.
    """

    @property
    def name(self) -> str: ...

    @property
    def every(self) -> float: ...

    def open(self, run: Run) -> None:
        """Called once, first. Removes what a broken run left half written."""

    def write(self, batch: int, results: Sequence[LiveResult]) -> None:
        """Results of one batch, in order; numbers of batches grow. Readers see them at once, if the sink can.

        A retraction is a result too (``op`` is ``-``). A slow write delays the
        caller, and so the source.
        """

    def flush(self) -> None:
        """Make all written batches durable; the sink skips them from now on."""

    def close(self) -> None:
        """Close files and connections. Results that were not flushed may be lost."""


class BatchSink(ABC):
    """A sink that skips the batches that are durable already."""

    every = 1.0

    def __init__(self) -> None:
        self._last = self._done = NONE

    @property
    @abstractmethod
    def name(self) -> str: ...

    def open(self, run: Run) -> None:
        self._run = run
        self._done = self._opened(run)
        run.hold(self._done)

    def write(self, batch: int, results: Sequence[LiveResult]) -> None:
        if batch > self._done:
            if results:
                self._put(batch, results)
            self._last = batch

    def flush(self) -> None:
        if self._last > self._done:
            self._keep(self._last)
            self._done = self._last

    @abstractmethod
    def close(self) -> None: ...

    @abstractmethod
    def _opened(self, run: Run) -> int:
        """Open files and connections; gives the last durable batch."""

    @abstractmethod
    def _put(self, batch: int, results: Sequence[LiveResult]) -> None:
        """Write the results of a batch, at least one."""

    @abstractmethod
    def _keep(self, batch: int) -> None:
        """Make all batches up to ``batch`` durable."""


class WholeSink:
    """A sink that is flushed only after whole batches.

    After a call that an error or a second Ctrl-C broke off, it refuses further
    calls: a flush could mark half a batch as durable.
    """

    def __init__(self, sink: Sink) -> None:
        self._sink = sink
        self._broken = False

    @property
    def name(self) -> str:
        return self._sink.name

    @property
    def every(self) -> float:
        return self._sink.every

    def open(self, run: Run) -> None:
        self._sink.open(run)

    def write(self, batch: int, results: Sequence[LiveResult]) -> None:
        with self._whole():
            self._sink.write(batch, results)

    def flush(self) -> None:
        with self._whole():
            self._sink.flush()

    def close(self) -> None:
        self._sink.close()

    @contextmanager
    def _whole(self) -> Iterator[None]:
        if self._broken:
            raise SinkError(f"{self.name}: an earlier write was interrupted")
        self._broken = True
        yield
        self._broken = False
