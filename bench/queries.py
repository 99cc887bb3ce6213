"""Many standing queries in one engine: the cost of a tuple as their number grows.

Two-keyword queries over the heavy load: the first looks for the load's own
keywords, the others for two of its 10,000 words each, so that a keyword is in
about one tuple of a thousand. The engine is the default one.
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, fields
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

from bench.child import QUERIES
from bench.load import HEAVY
from bench.point import FINISHED, measure
from skws_schema.errors import SkwsError, UsageError


@dataclass(frozen=True, slots=True)
class Point:
    """Medians of the runs for a number of queries. ``ratio`` is to the time per tuple with one query."""

    queries: int
    tuples: int
    results: int
    cpu_seconds: float
    microseconds_a_tuple: float
    ratio: float
    peak_bytes: int


def parse_numbers(numbers: str) -> list[int]:
    """The numbers of a list such as ``1,10,100``, in order. Raises UsageError."""
    texts = [number.strip() for number in numbers.split(",")]
    if not all(number.isdecimal() and int(number) for number in texts):
        raise UsageError(f"--numbers {numbers!r}: expected positive numbers, such as 1,10,100")
    return sorted(map(int, texts))


def points(
    hours: float, numbers: Iterable[int], runs: int, limit: float, report: Callable[[str], None]
) -> Iterator[Point]:
    """Measure each number of queries, including reading. Raises SkwsError if a run does not finish."""
    load = HEAVY
    single_seconds: float | None = None
    with TemporaryDirectory() as folder:
        path = Path(folder) / "load.jsonl"
        tuples = load.write(path, int(hours * 3600))
        for number in numbers:
            report(f"{number:,} queries over {tuples:,} tuples")
            measurements = [measure(f"{QUERIES}{number}", load, path, limit) for _ in range(runs)]
            if any(measurement.status != FINISHED for measurement in measurements):
                raise SkwsError(f"a run of {number} queries did not finish: {measurements[0].status}")
            seconds = median(measurement.cpu_seconds or 0.0 for measurement in measurements)
            single_seconds = single_seconds or seconds
            yield Point(
                number,
                tuples,
                measurements[0].results or 0,
                seconds,
                seconds / tuples * 1e6,
                seconds / single_seconds,
                max(measurement.peak_bytes or 0 for measurement in measurements),
            )


def write_csv(points: Iterable[Point], path: Path) -> list[Point]:
    """Write the points as CSV, each line as soon as it is measured; returns all points."""
    measured_points = []
    with path.open("w", newline="") as file:
        columns = [field.name for field in fields(Point)]
        writer = csv.writer(file)
        writer.writerow(columns)
        for point in points:
            measured_points.append(point)
            writer.writerow([getattr(point, column) for column in columns])
            file.flush()
    return measured_points


def draw(points: list[Point], path: Path) -> None:
    """Draw the curve as PNG, beside that of one engine per query."""
    from matplotlib.figure import Figure as Canvas  # noqa: PLC0415 - an optional extra

    canvas = Canvas(figsize=(6, 3.6), dpi=80, layout="constrained")
    axes = canvas.subplots()
    numbers = [point.queries for point in points]
    axes.plot(numbers, [point.ratio for point in points], marker="o", label="one engine, all queries")
    axes.plot(numbers, [n / numbers[0] for n in numbers], linestyle=":", label="one engine per query")
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlabel("standing queries")
    axes.set_ylabel("time per tuple (one query = 1)")
    axes.grid(visible=True, alpha=0.3)
    axes.legend()
    canvas.savefig(path)
