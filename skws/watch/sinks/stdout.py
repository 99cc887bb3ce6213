"""Results on standard output, as they come: tables or trees for people, JSON lines or CSV for programs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import IO, Final

from skws.keywords import parse_query
from skws.plan import Plan
from skws.results.model import Result
from skws.results.writers import OutputFormat
from skws.results.writers.base import Writer
from skws.results.writers.csvfile import CsvWriter
from skws.results.writers.destination import Destination
from skws.results.writers.jsonl import JsonLinesWriter
from skws.results.writers.table import TableWriter
from skws.results.writers.text import visible
from skws.results.writers.tree import TreeWriter
from skws.watch.sinks.base import Run
from skws.watch.sinks.marks import NONE, Marks
from windows.window import Unbounded

PEOPLE: Final = {OutputFormat.TABLE: TableWriter, OutputFormat.TREE: TreeWriter}


class StdoutSink:
    """Writes to ``stdout``. What a broken run wrote since its last flush is written once more."""

    every = 1.0

    def __init__(self, output_format: OutputFormat, stdout: IO[bytes], *, color: bool = False) -> None:
        self._format = output_format
        self._opened = Destination(stdout, "standard output")
        self._color = color
        self._writers: dict[str, Writer] = {}
        self._plain: Writer | None = None
        self._shown = ""
        self._last = NONE
        self._done = NONE

    @property
    def name(self) -> str:
        return f"stdout:{self._format}"

    def open(self, run: Run) -> None:
        self._run = run
        self._marks = Marks(run.folder, self.name)
        self._done = self._marks.read().get("batch", NONE)

    def write(self, batch: int, results: Sequence[Result]) -> None:
        if batch <= self._done:
            return
        for result in results:
            self._writer(result.query).write(result)
        if results:
            with self._opened.guarded():
                self._opened.file.flush()
        self._last = batch

    def flush(self) -> None:
        if self._last > self._done:
            self._done = self._last
            self._marks.keep(self._done)

    def close(self) -> None:
        """Left open: it is not ours."""

    def _writer(self, query: str) -> Writer:
        if self._format not in PEOPLE:
            self._plain = self._plain or (
                CsvWriter(self._opened) if self._format is OutputFormat.CSV else JsonLinesWriter(self._opened)
            )
            return self._plain
        if query not in self._writers:
            self._writers[query] = PEOPLE[self._format](self._opened, self._plan(query), self._color)
        if query != self._shown and len(self._writers) > 1:
            self._opened.write(f"\n{visible(query)}:\n".encode())
        self._shown = query
        return self._writers[query]

    def _plan(self, query: str) -> Plan:
        parsed = parse_query(query, self._run.schema, match_names=self._run.match_names)
        return Plan(self._run.schema, parsed, Unbounded())
