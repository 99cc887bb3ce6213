"""Writes results to a file or standard output in one of the formats, as they arrive."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, Final, Generic, TypeVar

from skws.keywords.parse import parse_query
from skws.keywords.plan import Plan
from skws.results.result import LiveResult
from skws.sinks.base import (
    NONE,
    RANKED,
    BatchSink,
    CsvEncoder,
    Destination,
    Encoder,
    JsonLinesEncoder,
    SinkProgress,
    SinkRun,
    destination,
    further_columns,
)
from skws.sinks.display import MatchTable, MatchTree, NetworkTable, NetworkTree
from skws.sinks.text import visible
from skws.spec.enums import OutputFormat
from skws_schema.errors import UsageError
from skws_windows.window import Unbounded

T = TypeVar("T")
_FOR_PEOPLE: Final = (OutputFormat.TABLE, OutputFormat.TREE)


class Writer(Generic[T]):
    """Writes results through an encoder to a destination. Raises OutputError, OutputClosedError."""

    def __init__(self, encoder: Encoder[T], destination: Destination) -> None:
        self._encoder = encoder
        self._destination = destination
        self._put(encoder.begin())

    def write(self, result: T) -> None:
        self._put(self._encoder.encode(result))

    def write_line(self, line: bytes) -> None:
        """Write a result in its JSON form; for JSON lines."""
        self._put(line + b"\n")

    def finish(self) -> None:
        """Called once, after the last result of a successful run."""
        self._put(self._encoder.end())

    def _put(self, data: bytes) -> None:
        if data:
            self._destination.write(data, verbatim=self._encoder.verbatim)


@contextmanager
def open_writer(
    output_format: OutputFormat,
    output: Path | None,
    plan: Plan | None,
    stdout: IO[bytes],
    *,
    color: bool = False,
) -> Iterator[Writer[Any]]:
    """A writer of results to ``output``, or to ``stdout`` if that is None.

    ``plan``: the plan of a keyword query; None for matches. ``color`` marks keywords with colours, in formats
    for people only. A file appears at the successful end of the ``with``. Raises UsageError for Parquet
    without ``output``; OutputError, OutputClosedError.
    """
    if output_format is OutputFormat.PARQUET and output is None:
        raise UsageError("--format parquet needs --output FILE: it cannot be written to a terminal or a pipe")
    with destination(output, stdout) as open_output:
        writer = Writer(_encoder(output_format, plan, open_output.width, color=color), open_output)
        yield writer
        writer.finish()


def _encoder(
    output_format: OutputFormat, plan: Plan | None, width: int | None, *, color: bool
) -> Encoder[Any]:
    if output_format is OutputFormat.TABLE:
        return MatchTable() if plan is None else NetworkTable(plan, width, color=color)
    if output_format is OutputFormat.TREE:
        return MatchTree() if plan is None else NetworkTree(plan, color=color)
    return plain_encoder(output_format, RANKED if plan is not None and plan.ranking is not None else ())


def plain_encoder(output_format: OutputFormat, further: Sequence[str] = ()) -> Encoder[LiveResult]:
    """The encoder of a format for programs. ``further``: columns of FURTHER, for tables."""
    if output_format is OutputFormat.CSV:
        return CsvEncoder(further)
    if output_format is OutputFormat.PARQUET:
        from skws.sinks.parquet_sink import ParquetEncoder  # noqa: PLC0415 - Arrow's is slow to import

        return ParquetEncoder(further)
    return JsonLinesEncoder()


class StdoutSink(BatchSink):
    """Writes to ``stdout``. Results that an interrupted run wrote after its last flush are written again."""

    def __init__(self, output_format: OutputFormat, stdout: IO[bytes], *, color: bool = False) -> None:
        super().__init__()
        self._format = output_format
        self._stdout = Destination(stdout, "standard output")
        self._color = color
        self._networks: dict[str, Writer[Any]] = {}
        """Encoders by query, as each marks its own keywords; formats for programs share one."""
        self._query_texts: dict[str, str] = {}  # of these encoders
        self._matches: dict[str, Writer[Any]] = {}
        self._further: tuple[str, ...] = ()  # the columns after the common ones, in CSV
        self._last_name = ""

    @property
    def name(self) -> str:
        return f"stdout:{self._format}"

    def _opened(self, run: SinkRun) -> int:
        self._schema = run.schema
        self._progress = SinkProgress(run, self.name)
        last_batch: int = self._progress.read().get("batch", NONE)
        return last_batch

    def _put(self, batch: int, results: Sequence[LiveResult]) -> None:  # noqa: ARG002 - the output has no numbers
        for result in results:
            self._writer(result).write(result.parsed if self._format in _FOR_PEOPLE else result)
        with self._stdout.guarded():
            self._stdout.file.flush()

    def flush(self) -> None:
        self._stdout.check_reader()
        super().flush()

    def _keep(self, batch: int) -> None:
        self._progress.keep(batch)

    def close(self) -> None:
        """Standard output stays open: the sink did not open it."""

    def _writer(self, result: LiveResult) -> Writer[Any]:
        people = self._format in _FOR_PEOPLE
        if people and result.parsed.network and self._run.schema is not self._schema:
            self._networks, self._schema = {}, self._run.schema
        writers = self._matches if people and not result.parsed.network else self._networks
        key = result.name if people else ""
        is_replaced = writers is self._networks and people and self._query_texts.get(key) != result.query
        if self._format is OutputFormat.CSV:
            further = further_columns([result], self._further)
            is_replaced, self._further = further != self._further, further
        if key not in writers or is_replaced:
            writers[key] = Writer(self._encoder(result), self._stdout)
            self._query_texts[key] = result.query
        if people:
            self._name(key)
        return writers[key]

    def _encoder(self, result: LiveResult) -> Encoder[Any]:
        if self._format not in _FOR_PEOPLE:
            return plain_encoder(self._format, self._further)
        if not result.parsed.network:
            return _encoder(self._format, None, None, color=False)
        query = parse_query(result.query, self._run.schema, match_names=self._run.match_names)
        plan = Plan(self._run.schema, query, Unbounded())
        return _encoder(self._format, plan, self._stdout.width, color=self._color)

    def _name(self, name: str) -> None:
        """Write the name of the query whose results follow, if there are several queries."""
        if name != self._last_name and len(self._networks) + len(self._matches) > 1:
            self._stdout.write(f"\n{visible(name)}:\n".encode())
        self._last_name = name
