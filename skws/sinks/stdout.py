"""Results on standard output, as they come: tables or trees for people, JSON lines or CSV for programs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import IO, Any, Final

from skws.keywords import parse_query
from skws.keywords.plan import Plan
from skws.results.model import LiveResult, Result
from skws.sinks.base import NONE, Marks, Run
from skws.sinks.destination import Destination
from skws.sinks.encoders import Encoder
from skws.sinks.formats import Writer, plain_encoder
from skws.sinks.table import MatchTable, NetworkTable
from skws.sinks.text import visible
from skws.sinks.tree import NetworkTree
from skws.spec.enums import OutputFormat
from skws_windows.window import Unbounded

_FOR_PEOPLE: Final = (OutputFormat.TABLE, OutputFormat.TREE)


class StdoutSink:
    """Writes to ``stdout``. Results that a broken run wrote after its last flush are written once more."""

    every = 1.0

    def __init__(self, output_format: OutputFormat, stdout: IO[bytes], *, color: bool = False) -> None:
        self._format = output_format
        self._opened = Destination(stdout, "standard output")
        self._color = color
        self._networks: dict[str, Writer[Any]] = {}
        """By query, as each query's keywords are marked; one for all in a format for programs."""
        self._matches: dict[str, Writer[Any]] = {}
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
            self._writer(result).write(result)
        if results:
            with self._opened.guarded():
                self._opened.file.flush()
        self._last = batch

    def flush(self) -> None:
        if self._last > self._done:
            self._done = self._last
            self._marks.keep(self._done)

    def close(self) -> None:
        """Standard output stays open: the sink did not open it."""

    def _writer(self, result: LiveResult) -> Writer[Any]:
        people = self._format in _FOR_PEOPLE
        if people and isinstance(result, Result) and self._run.schema is not self._schema:
            self._networks, self._schema = {}, self._run.schema
        writers = self._matches if people and not isinstance(result, Result) else self._networks
        key = result.query if people else ""
        if key not in writers:
            writers[key] = Writer(self._encoder(result), self._opened)
        if people:
            self._name(key)
        return writers[key]

    def _encoder(self, result: LiveResult) -> Encoder[Any]:
        if self._format not in _FOR_PEOPLE:
            return plain_encoder(self._format, ranked="score" in result.to_dict())
        if not isinstance(result, Result):
            return MatchTable()
        query = parse_query(result.query, self._run.schema, match_names=self._run.match_names)
        plan = Plan(self._run.schema, query, Unbounded())
        if self._format is OutputFormat.TABLE:
            return NetworkTable(plan, self._opened.width, color=self._color)
        return NetworkTree(plan, color=self._color)

    def _name(self, query: str) -> None:
        """Names the query of the results that follow, if there are several."""
        if query != self._shown and len(self._networks) + len(self._matches) > 1:
            self._opened.write(f"\n{visible(query)}:\n".encode())
        self._shown = query
