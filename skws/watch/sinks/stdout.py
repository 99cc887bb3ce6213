"""Results on standard output, as they come: tables or trees for people, JSON lines or CSV for programs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import IO, Final

from skws.choices import OutputFormat
from skws.keywords import parse_query
from skws.plan import Plan
from skws.results.model import LiveResult, Result
from skws.results.writers.base import Writer
from skws.results.writers.csvfile import CsvWriter
from skws.results.writers.destination import Destination
from skws.results.writers.jsonl import JsonLinesWriter
from skws.results.writers.matches import MatchWriter
from skws.results.writers.table import TableWriter
from skws.results.writers.text import visible
from skws.results.writers.tree import TreeWriter
from skws.watch.sinks.base import NONE, Run
from skws.watch.sinks.marks import Marks
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
        self._matches: dict[str, MatchWriter] = {}
        self._plain: CsvWriter | JsonLinesWriter | None = None
        self._shown = ""
        self._last = NONE
        self._done = NONE

    @property
    def name(self) -> str:
        return f"stdout:{self._format}"

    def open(self, run: Run) -> None:
        self._run, self._schema = run, run.schema
        self._marks = Marks(run, self.name)
        self._done = self._marks.read().get("batch", NONE)

    def write(self, batch: int, results: Sequence[LiveResult]) -> None:
        if batch <= self._done:
            return
        for result in results:
            self._write(result)
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

    def _write(self, result: LiveResult) -> None:
        if self._format not in PEOPLE:
            self._plain = self._plain or (
                CsvWriter(self._opened, ranked="score" in result.to_dict())
                if self._format is OutputFormat.CSV
                else JsonLinesWriter(self._opened)
            )
            self._plain.write(result)
        elif isinstance(result, Result):
            if self._run.schema is not self._schema:
                self._writers, self._schema = {}, self._run.schema
            if result.query not in self._writers:
                plan = self._plan(result.query)
                self._writers[result.query] = PEOPLE[self._format](self._opened, plan, self._color)
            self._name(result.query)
            self._writers[result.query].write(result)
        else:
            if result.query not in self._matches:
                self._matches[result.query] = MatchWriter(self._opened)
            self._name(result.query)
            self._matches[result.query].write(result)

    def _name(self, query: str) -> None:
        """Say whose results come now, where there are several queries."""
        if query != self._shown and len(self._writers) + len(self._matches) > 1:
            self._opened.write(f"\n{visible(query)}:\n".encode())
        self._shown = query

    def _plan(self, query: str) -> Plan:
        parsed = parse_query(query, self._run.schema, match_names=self._run.match_names)
        return Plan(self._run.schema, parsed, Unbounded())
