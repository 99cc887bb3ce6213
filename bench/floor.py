"""The default engine compared with its floor: reading and keyword-matching the same replay, without joins."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

import pyarrow as pa
import pyarrow.parquet as pq

from bench.child import DEFAULT, FLOOR
from bench.load import HEAVY, Load
from bench.point import FINISHED, Measured, measure
from skws_schema.errors import SkwsError, UsageError

FORMATS = ("jsonl", "parquet")


@dataclass(frozen=True, slots=True)
class FloorReport:
    """Medians of processor seconds over interleaved runs, on one core where the system allows it.

    ``fastest_ratio`` compares the fastest run of each. Other work on a shared machine slows the two down
    unequally; with many runs, it affects the fastest ones least.
    """

    tuples: int
    floor_seconds: float
    engine_seconds: float
    fastest_ratio: float
    wall_seconds: float
    results: int
    peak_bytes: int

    @property
    def ratio(self) -> float:
        return self.engine_seconds / self.floor_seconds

    @property
    def tuples_per_second(self) -> float:
        return self.tuples / self.engine_seconds


def write_load(load: Load, seconds: int, folder: Path, file_format: str) -> tuple[Path, int]:
    """The load as a JSON lines file, or as a folder with a Parquet file per relation, and its tuples."""
    if file_format not in FORMATS:
        raise UsageError(f"--format {file_format!r}: expected one of {', '.join(FORMATS)}")
    if file_format == "jsonl":
        path = folder / "load.jsonl"
        return path, load.write(path, seconds)
    return _write_parquet(load, seconds, folder / "load")


def _write_parquet(load: Load, seconds: int, folder: Path) -> tuple[Path, int]:
    folder.mkdir()
    relations = load.schema().relations
    rows: list[list[tuple[object, ...]]] = [[] for _ in relations]
    for relation_number, time, row, _ in load.records(seconds):
        rows[relation_number].append((time, *row))
    for relation, relation_rows in zip(relations, rows, strict=True):
        times, *columns = zip(*relation_rows, strict=True)
        arrays = [pa.array(times, pa.timestamp("us", "UTC")), *(pa.array(column) for column in columns)]
        names = ["time", *(attribute.name for attribute in relation.attributes)]
        pq.write_table(pa.table(arrays, names=names), folder / f"{relation.name}.parquet")
    return folder, sum(map(len, rows))


def run(
    hours: float, file_format: str, runs: int, limit: float, report: Callable[[str], None]
) -> FloorReport:
    """Measure both in alternating runs. Raises SkwsError if a run does not finish."""
    load = HEAVY
    with TemporaryDirectory() as folder:
        path, tuples = write_load(load, int(hours * 3600), Path(folder), file_format)
        floors, engines = [], []
        for number in range(runs):
            report(f"run {number + 1} of {runs}: {tuples:,} tuples from {file_format}")
            floors.append(_check_finished(measure(FLOOR, load, path, limit)))
            engines.append(_check_finished(measure(DEFAULT, load, path, limit)))
    floor_seconds = [m.cpu_seconds or 0 for m in floors]
    engine_seconds = [m.cpu_seconds or 0 for m in engines]
    return FloorReport(
        tuples=tuples,
        floor_seconds=median(floor_seconds),
        engine_seconds=median(engine_seconds),
        fastest_ratio=min(engine_seconds) / min(floor_seconds),
        wall_seconds=median(m.wall_seconds for m in engines),
        results=engines[0].results or 0,
        peak_bytes=max(m.peak_bytes or 0 for m in engines),
    )


def _check_finished(measured: Measured) -> Measured:
    if measured.status != FINISHED:
        raise SkwsError(
            f"a run did not finish: {measured.status}; try fewer --hours or a longer --time-limit"
        )
    return measured
