"""The protocol of sinks: numbered batches of results, each written once.

A run that resumes after a failure repeats some batches with the same numbers. A sink reads the number of its
last durable batch from the state of the run, and skips all batches up to it.

A file is written under a temporary name in its folder and renamed at the end. Readers never see an incomplete
file, and a failed run does not touch the earlier output.
"""

from __future__ import annotations

import csv
import io
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from select import POLLERR, POLLHUP, poll
from shutil import get_terminal_size
from typing import IO, Any, Final, Generic, Protocol, TypeVar

import orjson

from skws.data.batch import BadRecord
from skws.durable import as_unicode, explained
from skws.results.result import LiveResult
from skws.sinks.text import DEFAULT_WIDTH, escaped
from skws.sources.feed import SystemClock
from skws.sources.retry import retry
from skws.state_database import StateDatabase, StateKind
from skws_schema.errors import SkwsError, SourceError
from skws_schema.model import Schema

T = TypeVar("T")


def digest(address: str) -> str:
    """Stands for an address, which may contain a password, in the state of a run."""
    return sha256(address.encode(errors="surrogatepass")).hexdigest()[:16]


class SinkProgress:
    """The progress of one sink, in the state of the run, if it can resume. Raises StateError.

    ``address``: the sink's, without a password.
    """

    def __init__(self, run: SinkRun, address: str) -> None:
        self._run = run
        self._address = as_unicode(address)

    def read(self) -> dict[str, Any]:
        """The last progress; empty if there is none."""
        state = self._run.state
        progress: dict[str, Any] | None = (
            None if state is None else state.get_json(StateKind.SINKS, self._address)
        )
        if progress is None:
            return {}
        self._run.hold(progress["batch"])
        return progress

    def keep(self, batch: int, **more: Any) -> None:
        """Record the progress: durably, unless the run gathers the progress of all sinks for a commit."""
        if self._run.state is not None:
            self._run.state.put_json(StateKind.SINKS, self._address, {"batch": batch, **more})


NONE: Final = -1
"""Stands for the number of the last batch before the first one."""


class SinkError(SkwsError):
    """Results cannot be written."""


@dataclass(slots=True)
class SinkRun:
    """The context of sinks: the run that they belong to.

    ``id`` does not change when a run resumes. ``state`` holds the progress of sinks; None if the run cannot
    resume. ``wait`` sleeps for a number of seconds, and returns False if the run should end. ``tell`` shows a
    line to the user. ``schema``: the schema of the next results, which may change. ``held``: the last batch
    that any sink has written. ``repeating``: True while an earlier process may have written the current
    batches. ``repeats``: their results as lines. ``end_callbacks``: callbacks for the end of the repetition.
    ``refused``: results that a sink leaves out of the current batch, as bad records.
    """

    id: str
    state: StateDatabase | None
    schema: Schema
    match_names: bool
    wait: Callable[[float], bool]
    tell: Callable[[str], None]
    held: int = NONE
    repeating: bool = False
    repeats: list[bytes] = field(default_factory=list)
    end_callbacks: list[Callable[[], None]] = field(default_factory=list)
    refused: list[BadRecord] = field(default_factory=list)

    def hold(self, batch: int) -> None:
        """Record that a sink has already written a batch."""
        self.held = max(self.held, batch)

    def end_repetition(self) -> None:
        """End the repetition of batches that an earlier process may have written. Raises SinkError."""
        self.repeating = False
        while self.end_callbacks:
            self.end_callbacks.pop(0)()
        self.repeats.clear()


def persistently(run: SinkRun, name: str, call: Callable[[], T]) -> T:
    """The result of ``call``, which is retried while it raises NotYetError. Raises SinkError."""
    try:
        result = retry(lambda: (call(),), SystemClock(), run.wait, run.tell)
    except SourceError as error:
        raise SinkError(str(error)) from None
    if result is None:
        raise SinkError(f"{name}: the run ended while the server was unavailable")
    return result[0]


class Sink(Protocol):
    """Writes results, from one thread at a time; all methods may raise SinkError.

    ``name`` contains no password. ``every``: the preferred seconds between two flushes.
    """

    @property
    def name(self) -> str: ...

    @property
    def every(self) -> float: ...

    def open(self, run: SinkRun) -> None:
        """Called once, first. Removes incomplete output of an interrupted run."""

    def write(self, batch: int, results: Sequence[LiveResult]) -> None:
        """Write the results of one batch, in order; batch numbers increase.

        Readers see them at once if possible. A retraction is a result too (``op`` is ``-``). A slow write
        delays the caller, and so the source.
        """

    def flush(self) -> None:
        """Make all written batches durable; afterwards the sink skips them."""

    def close(self) -> None:
        """Close files and connections. Results since the last flush may be lost."""


class BatchSink(ABC):
    """A sink that skips durable batches.

    Opening it does not interrupt another process: the checkpoint may be an old copy of a run that continues
    elsewhere, which is detected once all sinks are open.
    """

    every = 1.0
    place: Hashable = None
    """Where it writes, if only one sink of a run can write there: two would skip each other's batches."""

    def __init__(self) -> None:
        self._last = self._done = NONE
        self._took_over = False

    @property
    @abstractmethod
    def name(self) -> str: ...

    def open(self, run: SinkRun) -> None:
        self._run = run
        self._done = self._opened(run)
        run.hold(self._done)

    def write(self, batch: int, results: Sequence[LiveResult]) -> None:
        if batch > self._done:
            if results:
                self._begin()
                self._put(batch, results)
            self._last = batch

    def flush(self) -> None:
        self._begin()
        if self._last > self._done:
            self._keep(self._last)
            self._done = self._last

    @abstractmethod
    def close(self) -> None: ...

    def _begin(self) -> None:
        if not self._took_over:
            self._take_over()
            self._took_over = True

    @abstractmethod
    def _opened(self, run: SinkRun) -> int:
        """Open files and connections; returns the number of the last durable batch."""

    def _take_over(self) -> None:
        """Clean up after an earlier process of the run, before the first results or the first flush."""
        return

    @abstractmethod
    def _put(self, batch: int, results: Sequence[LiveResult]) -> None:
        """Write the results of a batch, at least one."""

    @abstractmethod
    def _keep(self, batch: int) -> None:
        """Make all batches up to ``batch`` durable."""


class PostingSink(BatchSink):
    """A sink that notifies people or programs of each result.

    Updates are not posted, except for alerts that ask for them.
    """


class WholeSink:
    """A sink that is flushed only after whole batches.

    After a call that an error or a second Ctrl-C interrupted, it refuses further calls: a flush could mark
    half a batch as durable.
    """

    def __init__(self, sink: Sink) -> None:
        self._sink = sink
        self._broken = False
        self.posts = isinstance(sink, PostingSink)
        self.place = sink.place if isinstance(sink, BatchSink) else None

    @property
    def name(self) -> str:
        return self._sink.name

    @property
    def every(self) -> float:
        return self._sink.every

    def open(self, run: SinkRun) -> None:
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


# Opening these names would truncate the file behind standard output.
_STDOUT: Final = frozenset({"-", "/dev/stdout", "/dev/fd/1"})


class OutputError(SkwsError):
    """Output cannot be written."""


class OutputClosedError(SkwsError):
    """The reader of the output, such as ``head``, has closed it: an end, not a failure."""

    exit_code = 0


class Destination:
    """An open output. ``live``: it is a terminal, so every write is flushed.

    A terminal gets no control characters except those of ``verbatim`` bytes, whose encoders escape the data.
    Files and pipes get all bytes unchanged.
    """

    def __init__(self, file: IO[bytes], name: str) -> None:
        self.file = file
        self.name = name
        self.live = file.isatty()

    @property
    def width(self) -> int | None:
        """The columns of the terminal; None if the output is not a terminal."""
        return get_terminal_size((DEFAULT_WIDTH, 0)).columns if self.live else None

    def write(self, data: bytes, *, verbatim: bool = False) -> None:
        """Raises OutputError, OutputClosedError."""
        try:  # like `guarded`, which takes longer than the write
            self.file.write(escaped(data) if self.live and not verbatim else data)
            if self.live:
                self.file.flush()
        except OSError as error:
            raise self._output_error(error) from None

    def sync(self) -> None:
        """Make the bytes of a file durable. Raises OutputError."""
        with self.guarded():
            self.file.flush()
            os.fsync(self.file.fileno())

    def check_reader(self) -> None:
        """Raises OutputClosedError if the reader has closed the output; a write may be a long time off."""
        with suppress(io.UnsupportedOperation):  # not a file of the system
            poller = poll()
            poller.register(self.file.fileno(), 0)
            if any(event & (POLLERR | POLLHUP) for _, event in poller.poll(0)):
                raise self._output_error(BrokenPipeError())

    @contextmanager
    def guarded(self) -> Iterator[None]:
        """Turns failed writes into OutputError and OutputClosedError."""
        try:
            yield
        except OSError as error:
            raise self._output_error(error) from None

    def _output_error(self, error: OSError) -> OutputError | OutputClosedError:
        if isinstance(error, BrokenPipeError):
            return OutputClosedError(f"{self.name}: closed by its reader")
        return OutputError(f"cannot write to {self.name}: {error.strerror or error}")


@contextmanager
def destination(output: Path | None, stdout: IO[bytes]) -> Iterator[Destination]:
    """``output``, or standard output if it is None or ``-``; opened at once, so that failures show early.

    An existing file is replaced at the end of the ``with``, and not touched if that ends with an exception.
    Raises OutputError, OutputClosedError.
    """
    if output is None or str(output) in _STDOUT:
        open_output = Destination(stdout, "standard output")
        yield open_output
        with open_output.guarded():
            stdout.flush()
        return
    with explained(f"cannot write to {output}", OutputError):
        is_special = output.exists() and not output.is_file()
    yield from _open_special(output) if is_special else _replace_file(output)


def _open_special(output: Path) -> Iterator[Destination]:
    """A pipe or device, which cannot be renamed."""
    if output.is_dir():
        raise OutputError(f"cannot write to {output}: it is a directory; expected the name of a file")
    with _open_file(output, output) as open_output:
        yield open_output
        with open_output.guarded():
            open_output.file.flush()


def _replace_file(output: Path) -> Iterator[Destination]:
    target = output.resolve()  # replaces the target of a symbolic link, not the link
    temporary = target.with_name(f".{target.name}.{os.getpid()}.partial")
    if target.exists() and not os.access(target, os.W_OK):
        raise OutputError(f"cannot write to {output}: Permission denied")
    with _open_file(temporary, output) as open_output:
        try:
            yield open_output
            with open_output.guarded():
                open_output.file.close()
                temporary.replace(target)
        except BaseException:
            with suppress(OSError):  # the reason is the first error
                temporary.unlink(missing_ok=True)
            raise


@contextmanager
def _open_file(path: Path, output: Path) -> Iterator[Destination]:
    with explained(f"cannot write to {output}", OutputError):
        file = path.open("wb")
    open_output = Destination(file, str(output))
    try:
        yield open_output
    finally:
        with open_output.guarded():
            file.close()


T_contra = TypeVar("T_contra", contravariant=True)

DESCRIBED: Final = ("name", "query", "id", "start", "end", "network", "tuples", "joins", "snapshot")
"""The common columns of files and tables of databases."""
COLUMNS: Final = ("op", *DESCRIBED, "changed", "at")
RANKED: Final = ("score", "explanation", "event", "rank", "reason", "group", "folded")
"""Further columns of results that have a score."""
FURTHER: Final = (*RANKED, "count", "held_back")


def further_columns(results: Iterable[LiveResult], known: Collection[str] = ()) -> tuple[str, ...]:
    """The columns of FURTHER that some result needs, or that are ``known`` to be needed, in order."""
    needed = set(known)
    for result in (item.parsed for item in results):
        needed.update(RANKED if result.score is not None else ())
        needed.update(["count"] if result.count is not None else ())
        needed.update(["held_back"] if result.held_back else ())
    return tuple(column for column in FURTHER if column in needed)


class Encoder(ABC, Generic[T_contra]):
    """Encodes one output as the bytes of ``begin``, of each result, and of ``end``.

    ``verbatim``: a terminal gets the bytes unchanged, as data in them is escaped.
    """

    verbatim = False

    def begin(self) -> bytes:
        """Called once, before all results."""
        return b""

    @abstractmethod
    def encode(self, result: T_contra) -> bytes:
        """The bytes of a result; empty if the format buffers it."""

    def end(self) -> bytes:
        """Called once, after the last result of a successful run."""
        return b""


class JsonLinesEncoder(Encoder[LiveResult]):
    """One JSON object per line: the form that consumers depend on."""

    def encode(self, result: LiveResult) -> bytes:
        return result.to_json() + b"\n"


class CsvEncoder(Encoder[LiveResult]):
    """A header, then one result per record; nested parts are JSON.

    The encoding is UTF-8, with a line feed after each record. Missing values are empty; ``snapshot`` is true
    or false. ``further``: columns of FURTHER.
    """

    def __init__(self, further: Sequence[str] = ()) -> None:
        self._columns = (*COLUMNS, *further)
        self._line = io.StringIO()
        self._csv = csv.writer(self._line, lineterminator="\n")

    def begin(self) -> bytes:
        return self._record(self._columns)

    def encode(self, result: LiveResult) -> bytes:
        fields = result.to_dict()
        fields["tuples"] = orjson.dumps(fields["tuples"]).decode()
        fields["joins"] = orjson.dumps(fields.get("joins", [])).decode()
        fields["snapshot"] = "true" if result.snapshot else "false"
        if "changed" in fields:
            fields["changed"] = orjson.dumps(fields["changed"]).decode()
        if "explanation" in fields:
            fields["explanation"] = orjson.dumps(fields["explanation"]).decode()
        return self._record(fields.get(column) for column in self._columns)

    def _record(self, fields: Iterable[object]) -> bytes:
        self._csv.writerow(fields)
        line = self._line.getvalue().encode()
        self._line.seek(0)
        self._line.truncate()
        return line
