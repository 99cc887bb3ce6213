"""Choosing a writer: the formats by name, opened on their destination."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TypeVar

from schema.errors import UsageError
from skws.choices import OutputFormat
from skws.plan import Plan
from skws.results.writers.base import Writer
from skws.results.writers.csvfile import CsvWriter
from skws.results.writers.destination import Destination, destination
from skws.results.writers.jsonl import JsonLinesWriter
from skws.results.writers.table import TableWriter
from skws.results.writers.tree import TreeWriter

Written = TypeVar("Written", bound=Writer)


@contextmanager
def open_writer(
    output_format: OutputFormat, output: Path | None, plan: Plan, stdout: IO[bytes], *, color: bool = False
) -> Iterator[Writer]:
    """A writer on ``output``, or on ``stdout`` if that is None.

    ``color``: mark keywords by colours (formats for people only). A file
    appears when the ``with`` ends well. Raises UsageError for Parquet without
    ``output``; OutputError, OutputClosedError.
    """
    with opened_writer(
        output_format, output, stdout, lambda opened: _writer(output_format, opened, plan, color)
    ) as writer:
        yield writer


@contextmanager
def opened_writer(
    output_format: OutputFormat,
    output: Path | None,
    stdout: IO[bytes],
    make: Callable[[Destination], Written],
) -> Iterator[Written]:
    """What ``make`` gives for the destination: finished when the ``with`` ends well, else abandoned.

    Raises as ``open_writer``.
    """
    if output_format is OutputFormat.PARQUET and output is None:
        raise UsageError("--format parquet needs --output FILE: it cannot be written to a terminal or a pipe")
    with destination(output, stdout) as opened:
        writer = make(opened)
        try:
            yield writer
            writer.finish()
        except BaseException:
            writer.abandon()
            raise


def _writer(output_format: OutputFormat, opened: Destination, plan: Plan, color: bool) -> Writer:
    match output_format:
        case OutputFormat.TABLE:
            return TableWriter(opened, plan, color)
        case OutputFormat.TREE:
            return TreeWriter(opened, plan, color)
        case OutputFormat.JSONL:
            return JsonLinesWriter(opened)
        case OutputFormat.CSV:
            return CsvWriter(opened, ranked=plan.ranking is not None)
        case OutputFormat.PARQUET:
            from skws.results.writers.parquet import ParquetWriter  # noqa: PLC0415 - Arrow's is slow to import

            return ParquetWriter(opened, ranked=plan.ranking is not None)
