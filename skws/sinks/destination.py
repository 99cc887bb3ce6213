"""Destinations of output: standard output, or a file that appears whole or not at all.

A file is written under a temporary name in its folder and renamed at the end.
Readers never see half of it, and a failed run leaves the earlier output alone.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from shutil import get_terminal_size
from typing import IO, Final

from skws.durable import explained
from skws.sinks.text import DEFAULT_WIDTH, escaped
from skws_schema.errors import SkwsError

# Opened by these names, the file behind standard output would lose what is in it.
_STDOUT: Final = frozenset({"-", "/dev/stdout", "/dev/fd/1"})


class OutputError(SkwsError):
    """Output cannot be written."""


class OutputClosedError(SkwsError):
    """The reader of the output, such as ``head``, has closed it: an end, and no failure."""

    exit_code = 0


class Destination:
    """An open output. ``live``: it is a terminal, so every write is flushed.

    A terminal gets no control characters but those of ``verbatim`` bytes, whose
    encoders make data safe themselves. Files and pipes get all bytes as they are.
    """

    def __init__(self, file: IO[bytes], name: str) -> None:
        self.file = file
        self.name = name
        self.live = file.isatty()

    @property
    def width(self) -> int | None:
        """The columns of the terminal that is written to; None if it is no terminal."""
        return get_terminal_size((DEFAULT_WIDTH, 0)).columns if self.live else None

    def write(self, data: bytes, *, verbatim: bool = False) -> None:
        """Raises OutputError, OutputClosedError."""
        try:  # as `guarded`, which costs more than the write
            self.file.write(escaped(data) if self.live and not verbatim else data)
            if self.live:
                self.file.flush()
        except OSError as error:
            raise self._failed(error) from None

    def sync(self) -> None:
        """Make the bytes of a file durable. Raises OutputError."""
        with self.guarded():
            self.file.flush()
            os.fsync(self.file.fileno())

    @contextmanager
    def guarded(self) -> Iterator[None]:
        """Turns failed writes into OutputError and OutputClosedError."""
        try:
            yield
        except OSError as error:
            raise self._failed(error) from None

    def _failed(self, error: OSError) -> OutputError | OutputClosedError:
        if isinstance(error, BrokenPipeError):
            return OutputClosedError(f"{self.name}: closed by its reader")
        return OutputError(f"cannot write to {self.name}: {error.strerror or error}")


@contextmanager
def destination(output: Path | None, stdout: IO[bytes]) -> Iterator[Destination]:
    """``output``, or standard output if it is None or ``-``; opened at once, so that failures show early.

    An existing file is replaced at the end of the ``with``; if that ends with
    an exception, it stays as it was. Raises OutputError, OutputClosedError.
    """
    if output is None or str(output) in _STDOUT:
        shown = Destination(stdout, "standard output")
        yield shown
        with shown.guarded():
            stdout.flush()
    elif output.exists() and not output.is_file():
        yield from _special(output)
    else:
        yield from _whole(output)


def _special(output: Path) -> Iterator[Destination]:
    """A pipe or device, which cannot be renamed."""
    if output.is_dir():
        raise OutputError(f"cannot write to {output}: it is a directory; expected the name of a file")
    with _opened(output, output) as opened:
        yield opened
        with opened.guarded():
            opened.file.flush()


def _whole(output: Path) -> Iterator[Destination]:
    target = output.resolve()  # what a symbolic link points to is replaced, not the link
    temporary = target.with_name(f".{target.name}.{os.getpid()}.partial")
    if target.exists() and not os.access(target, os.W_OK):
        raise OutputError(f"cannot write to {output}: Permission denied")
    with _opened(temporary, output) as opened:
        try:
            yield opened
            with opened.guarded():
                opened.file.close()
                temporary.replace(target)
        except BaseException:
            with suppress(OSError):  # the reason is the first error
                temporary.unlink(missing_ok=True)
            raise


@contextmanager
def _opened(path: Path, output: Path) -> Iterator[Destination]:
    with explained(f"cannot write to {output}", OutputError):
        file = path.open("wb")
    opened = Destination(file, str(output))
    try:
        yield opened
    finally:
        with opened.guarded():
            file.close()
