"""Results of patterns written out, in the formats of all results; their number alone is one more."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, TypeAlias

from skws.choices import OutputFormat
from skws.pattern_search.result import PatternResult, PatternTuple
from skws.results.model import LiveResult
from skws.results.writers.base import Writer
from skws.results.writers.csvfile import CsvWriter
from skws.results.writers.destination import Destination, destination
from skws.results.writers.formats import opened_writer
from skws.results.writers.jsonl import JsonLinesWriter
from skws.results.writers.matches import MatchWriter
from skws.results.writers.text import lifespan, value_text, visible

if TYPE_CHECKING:  # Arrow's is slow to import
    from skws.results.writers.parquet import ParquetWriter

MatchesWriter: TypeAlias = "MatchWriter | MatchTreeWriter | JsonLinesWriter | CsvWriter | ParquetWriter"


class MatchTreeWriter(Writer):
    """A line with operation and lifespan, then a tuple a line, in order; a blank line between results."""

    def __init__(self, opened: Destination) -> None:
        self._opened = opened
        self._first = True

    def write(self, result: LiveResult) -> None:
        assert isinstance(result, PatternResult)  # noqa: S101 - it is opened for these
        lines = [] if self._first else [""]
        self._first = False
        lines.append(f"{result.op} {lifespan(result)}")
        lines += [f"  {_described(member)}" for member in result.tuples]
        self._opened.write(("\n".join(lines) + "\n").encode())


@contextmanager
def open_pattern_writer(
    output_format: OutputFormat, output: Path | None, stdout: IO[bytes]
) -> Iterator[MatchesWriter]:
    """A writer on ``output``, or on ``stdout`` if that is None.

    Raises UsageError for Parquet without ``output``; OutputError, OutputClosedError.
    """
    with opened_writer(
        output_format, output, stdout, lambda opened: _writer(output_format, opened)
    ) as writer:
        yield writer


def write_count(count: int, output: Path | None, stdout: IO[bytes]) -> None:
    """The number of results alone. Raises OutputError, OutputClosedError."""
    with destination(output, stdout) as opened:
        opened.write(f"{count}\n".encode())


def _writer(output_format: OutputFormat, opened: Destination) -> MatchesWriter:
    match output_format:
        case OutputFormat.TABLE:
            return MatchWriter(opened)
        case OutputFormat.TREE:
            return MatchTreeWriter(opened)
        case OutputFormat.JSONL:
            return JsonLinesWriter(opened)
        case OutputFormat.CSV:
            return CsvWriter(opened)
        case OutputFormat.PARQUET:
            from skws.results.writers.parquet import ParquetWriter  # noqa: PLC0415 - Arrow's is slow to import

            return ParquetWriter(opened)


def _described(member: PatternTuple) -> str:
    pairs = ((name, value) for name, value in member.row.items() if value is not None)
    values = ", ".join(f"{visible(name)}: {visible(value_text(value))}" for name, value in pairs)
    return f"{visible(', '.join(member.labels))} = {visible(member.relation)}  {values}".rstrip()
