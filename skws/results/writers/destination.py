"""Where output goes: standard output, or a file that appears whole or not at all.

A file is written beside its place under a temporary name and renamed when all
is done, so that who waits for it never reads half of it, and a failed run
leaves the output of the run before alone.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Final

from schema.errors import SkwsError
from skws.results.writers.text import escaped

# Opened by these names, the file behind standard output would lose what is in it.
_STDOUT: Final = frozenset({"-", "/dev/stdout", "/dev/fd/1"})


class OutputError(SkwsError):
    """Output cannot be written."""


class OutputClosedError(SkwsError):
    """Who read the output (such as ``head``) has had enough: an end, and no failure."""

    exit_code = 0


class Destination:
    """Bytes on their way out; ``live``: somebody watches, so every write is shown at once.

    A terminal gets no control characters but those of ``styled`` texts, whose
    writers make data visible themselves. Files and pipes get what is written.
    """

    def __init__(self, file: IO[bytes], name: str) -> None:
        self.file = file
        self.name = name
        self.live = file.isatty()

    def write(self, data: bytes, *, styled: bool = False) -> None:
        """Raises OutputError, OutputClosedError."""
        with self.guarded():
            self.file.write(escaped(data) if self.live and not styled else data)
            if self.live:
                self.file.flush()

    @contextmanager
    def guarded(self) -> Iterator[None]:
        """Failures to write inside are told as such."""
        try:
            yield
        except BrokenPipeError:
            raise OutputClosedError(f"{self.name}: closed by its reader") from None
        except OSError as error:
            raise OutputError(f"cannot write to {self.name}: {error.strerror or error}") from None


@contextmanager
def destination(output: Path | None, stdout: IO[bytes]) -> Iterator[Destination]:
    """``output``, or standard output if it is None or ``-``; open, and known to be writable, from the start.

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
    """A pipe or device: it has no other name to be written under."""
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
            temporary.unlink(missing_ok=True)
            raise


@contextmanager
def _opened(path: Path, output: Path) -> Iterator[Destination]:
    try:
        file = path.open("wb")
    except OSError as error:
        raise OutputError(f"cannot write to {output}: {error.strerror}") from None
    opened = Destination(file, str(output))
    try:
        yield opened
    finally:
        with opened.guarded():
            file.close()
