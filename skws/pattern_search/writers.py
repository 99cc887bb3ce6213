"""Results of patterns written out: as JSON lines, as a table, or as their number alone."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import IO, Final

from skws.pattern_search.result import PatternResult, PatternTuple
from skws.results.writers.destination import Destination, destination
from skws.results.writers.text import instant, value_text, visible


class PatternFormat(StrEnum):
    """Formats that results of patterns are written in."""

    TABLE = "table"
    JSONL = "jsonl"
    COUNT = "count"


_TIME: Final = 20


class PatternWriter:
    """Writes results as they come: JSON lines, or one line of a table each."""

    def __init__(self, opened: Destination, output_format: PatternFormat) -> None:
        self._opened = opened
        self._as_json = output_format is PatternFormat.JSONL
        self._headed = False

    def write(self, result: PatternResult) -> None:
        """Raises OutputError, OutputClosedError."""
        if self._as_json:
            self._opened.write(result.to_json() + b"\n")
            return
        if not self._headed:
            self._headed = True
            self._opened.write(f"{'time':<{_TIME}}  match\n".encode())
        shown = " ; ".join(map(_text, result.tuples))
        self._opened.write(f"{instant(result.start):<{_TIME}}  {shown}\n".encode())

    def number(self, count: int) -> None:
        """The number of results alone."""
        self._opened.write(f"{count}\n".encode())


@contextmanager
def open_pattern_writer(
    output_format: PatternFormat, output: Path | None, stdout: IO[bytes]
) -> Iterator[PatternWriter]:
    """A writer on ``output``, or on ``stdout`` if that is None. Raises OutputError, OutputClosedError."""
    with destination(output, stdout) as opened:
        yield PatternWriter(opened, output_format)


def _text(member: PatternTuple) -> str:
    values = ", ".join("" if value is None else visible(value_text(value)) for value in member.row.values())
    return f"{'+'.join(member.labels)}={member.relation}({values})"
