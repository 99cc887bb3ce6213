"""Runs skws and its peers over one replay, one after the other, and compares their costs and results."""

from __future__ import annotations

import csv
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import Any

import orjson

from bench.load import Load
from bench.peers.environment import python_of
from bench.peers.outcome import difference, of_peer, of_skws
from bench.peers.task import Comparison
from bench.point import FINISHED, OVER_LIMIT
from skws.sinks.base import OutputError
from skws_schema.errors import SkwsError

SKWS = "skws"
_ROOT = Path(__file__).resolve().parents[2]
_CHILDREN = Path(__file__).parent / "children"


@dataclass(frozen=True, slots=True)
class Row:
    """One engine. Seconds exclude its start, until it is ready for a record; None if unfinished.

    ``equal``: True if its results equal those of skws. ``ratio``: its processor seconds divided by those of
    skws.
    """

    engine: str
    max_size: int
    networks: int
    slice_seconds: int
    tuples: int
    status: str
    results: int | None = None
    equal: bool | None = None
    start_cpu_seconds: float | None = None
    cpu_seconds: float | None = None
    wall_seconds: float | None = None
    peak_bytes: int | None = None
    ratio: float | None = None


COLUMNS = tuple(field.name for field in fields(Row))


def rows(
    load: Load,
    seconds: int,
    slice_seconds: int,
    peers: Iterable[str],
    limit: float,
    report: Callable[[str], None],
    interpreter: Callable[[str, Callable[[str], None]], Path] = python_of,
) -> Iterator[Row]:
    """One row for skws, then one a peer. ``limit`` in seconds of wall time a run; ``interpreter`` of a peer.

    Raises SourceError if a peer cannot be installed, SkwsError if skws itself does not finish.
    """
    interpreters = {peer: interpreter(peer, report) for peer in peers}
    comparison = Comparison.of(load, slice_seconds)
    with TemporaryDirectory() as name:
        folder = Path(name)
        tuples = load.write(folder / "load.jsonl", seconds)
        runs = _Runs(comparison, folder, tuples, limit, report)
        ours = runs.row(SKWS, [sys.executable, "-m", "bench.peers.children.entry"])
        if ours.status != FINISHED:
            raise SkwsError(f"skws itself did not finish: {ours.status}; try fewer --hours")
        yield ours
        expected = of_skws(folder / f"{SKWS}.results", folder / "load.jsonl")
        for peer, python in interpreters.items():
            # Only the peer's environment, without this process's PYTHONPATH and the user's packages.
            row = runs.row(peer, [str(python), "-E", "-s", str(_CHILDREN / "entry.py")])
            if row.status == FINISHED:
                differs = difference(expected, of_peer(folder / f"{peer}.results", comparison))
                if differs:
                    report(f"{peer} and skws differ: {differs}")
                row = _with_ratio(row, ours, equal=differs is None)
            yield row


def _with_ratio(row: Row, ours: Row, *, equal: bool) -> Row:
    values = asdict(row)
    return Row(**{**values, "equal": equal, "ratio": (row.cpu_seconds or 0) / (ours.cpu_seconds or 1)})


@dataclass(frozen=True, slots=True)
class _Runs:
    """Runs engines in their own processes, on one core where the system allows it."""

    comparison: Comparison
    folder: Path
    tuples: int
    limit: float
    report: Callable[[str], None]

    def row(self, engine: str, command: list[str]) -> Row:
        size, networks = self.comparison.load.max_size, len(self.comparison.networks)
        fields = (engine, size, networks, self.comparison.slice_seconds, self.tuples)
        self.report(f"{engine}: {networks:,} networks over {self.tuples:,} tuples")
        measured = self._run(engine, command)
        if isinstance(measured, str):
            return Row(*fields, status=measured)
        return Row(*fields, status=FINISHED, **measured)

    def _run(self, engine: str, command: list[str]) -> dict[str, Any] | str:
        """The measurements, or the reason why there are none."""
        module = f"bench.peers.children.{SKWS}_engine" if engine == SKWS else f"{engine}_engine"
        results, measured = self.folder / f"{engine}.results", self.folder / f"{engine}.measured"
        files = {"results": str(results), "measured": str(measured)}
        task = {**self.comparison.task(self.folder / "load.jsonl"), "engine": module, **files}
        began = perf_counter()
        try:
            process = subprocess.run(
                command,
                input=orjson.dumps(task),
                capture_output=True,
                timeout=self.limit,
                cwd=_ROOT,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return OVER_LIMIT
        if process.returncode:
            message = (process.stderr.decode(errors="replace").strip().splitlines() or ["no message"])[-1]
            return f"failed ({process.returncode}) after {perf_counter() - began:.0f} s: {message}"
        measurements: dict[str, Any] = orjson.loads(measured.read_bytes())
        return measurements


def write_csv(rows: Iterable[Row], path: Path) -> list[Row]:
    """Write the rows as CSV, each line as soon as it is measured; returns all rows. Raises OutputError."""
    written_rows = []
    try:
        out = path.open("w", newline="")
    except OSError as error:
        raise OutputError(f"cannot write to {path}: {error.strerror}") from None
    with out as file:
        writer = csv.DictWriter(file, COLUMNS)
        writer.writeheader()
        for row in rows:
            writer.writerow(asdict(row))
            file.flush()
            written_rows.append(row)
    return written_rows
