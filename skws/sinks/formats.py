"""Chooses the encoder of an output format, and writes results through it to a file or standard output."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Generic, TypeVar

from skws.keywords.plan import Plan
from skws.results.model import LiveResult, Result
from skws.sinks.destination import Destination, destination
from skws.sinks.encoders import CsvEncoder, Encoder, JsonLinesEncoder
from skws.sinks.table import MatchTable, NetworkTable
from skws.sinks.tree import MatchTree, NetworkTree
from skws.spec.enums import OutputFormat
from skws_schema.errors import UsageError

T = TypeVar("T")


class Writer(Generic[T]):
    """Results through an encoder to a destination. Raises OutputError, OutputClosedError."""

    def __init__(self, encoder: Encoder[T], opened: Destination) -> None:
        self._encoder = encoder
        self._opened = opened
        self._put(encoder.begin())

    def write(self, result: T) -> None:
        self._put(self._encoder.encode(result))

    def finish(self) -> None:
        """Called once, after the last result of a run that ended well."""
        self._put(self._encoder.end())

    def _put(self, data: bytes) -> None:
        if data:
            self._opened.write(data, verbatim=self._encoder.verbatim)


@contextmanager
def open_writer(
    output_format: OutputFormat, output: Path | None, plan: Plan, stdout: IO[bytes], *, color: bool = False
) -> Iterator[Writer[Result]]:
    """A writer of networks to ``output``, or to ``stdout`` if that is None.

    ``color`` marks keywords by colours (formats for people only). A file
    appears when the ``with`` ends well. Raises UsageError for Parquet without
    ``output``; OutputError, OutputClosedError.
    """

    def encoder(opened: Destination) -> Encoder[Result]:
        if output_format is OutputFormat.TABLE:
            return NetworkTable(plan, opened.width, color=color)
        if output_format is OutputFormat.TREE:
            return NetworkTree(plan, color=color)
        return plain_encoder(output_format, ranked=plan.ranking is not None)

    with _opened(output_format, output, stdout, encoder) as writer:
        yield writer


@contextmanager
def open_match_writer(
    output_format: OutputFormat, output: Path | None, stdout: IO[bytes]
) -> Iterator[Writer[LiveResult]]:
    """A writer of matches of patterns; else as ``open_writer``."""

    def encoder(_: Destination) -> Encoder[LiveResult]:
        if output_format is OutputFormat.TABLE:
            return MatchTable()
        return MatchTree() if output_format is OutputFormat.TREE else plain_encoder(output_format)

    with _opened(output_format, output, stdout, encoder) as writer:
        yield writer


@contextmanager
def _opened(
    output_format: OutputFormat,
    output: Path | None,
    stdout: IO[bytes],
    encoder: Callable[[Destination], Encoder[T]],
) -> Iterator[Writer[T]]:
    if output_format is OutputFormat.PARQUET and output is None:
        raise UsageError("--format parquet needs --output FILE: it cannot be written to a terminal or a pipe")
    with destination(output, stdout) as opened:
        writer = Writer(encoder(opened), opened)
        yield writer
        writer.finish()


def plain_encoder(output_format: OutputFormat, *, ranked: bool = False) -> Encoder[LiveResult]:
    """The encoder of a format for programs. ``ranked`` adds the columns of results that have a score."""
    if output_format is OutputFormat.CSV:
        return CsvEncoder(ranked=ranked)
    if output_format is OutputFormat.PARQUET:
        from skws.sinks.parquet import ParquetEncoder  # noqa: PLC0415 - Arrow's is slow to import

        return ParquetEncoder(ranked=ranked)
    return JsonLinesEncoder()
