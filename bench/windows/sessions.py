"""Session windows by an expression, by a loop, by Spark and by Pathway; their counts must be equal."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final, cast

import pyarrow as pa
import pyarrow.parquet as pq

from bench.windows.load import GAP, KEYS, SECOND, best, skws
from skws_schema.model import Row

_SILENCE: Final = f"time - time[-1] >= {GAP} seconds"
SESSIONS: Final = f"every open when {_SILENCE} close when {_SILENCE} per sensor"


def sessions(rows: list[Row], times: list[int], runs: int) -> Iterator[str]:
    """Sessions of every sensor. Ours end with the next record, which excludes a sensor's first and last."""
    ours, seconds = best(lambda: skws(SESSIONS, rows, times), runs)
    by_hand, by_loop = best(lambda: sessions_by_hand(rows, times), runs)
    inner_count = by_hand - 2 * KEYS  # of 100 sensors, each with at least two sessions
    if inner_count != len(ours):
        raise AssertionError(f"{len(ours)} sessions between others, expected {inner_count}")
    yield f"   skws  {by_hand:>9,} sessions  {len(rows) / seconds:>11,.0f} records/s"
    yield f"by hand  {by_hand:>9,} sessions  {len(rows) / by_loop:>11,.0f} records/s"
    with TemporaryDirectory() as folder:
        path = Path(folder) / "readings.parquet"
        _write(rows, times, path)
        for name, run in (("spark", _spark), ("pathway", _pathway)):
            outcome = run(path)
            if outcome is None:
                yield f"{name:>7}  not measured: its environment is missing (skws bench peers creates it)"
                continue
            session_count, run_seconds = outcome
            if session_count != by_hand:
                raise AssertionError(f"{name}: {session_count} sessions, expected {by_hand}")
            rate = len(rows) / run_seconds
            yield f"{name:>7}  {session_count:>9,} sessions  {rate:>11,.0f} records/s (from Parquet)"


def sessions_by_hand(rows: list[Row], times: list[int]) -> int:
    """The number of sessions; their means are computed and discarded."""
    last_times: dict[str, int] = {}
    sums: dict[str, tuple[int, float]] = {}
    session_count = 0
    for (sensor, temp), time in zip(cast("list[tuple[str, float]]", rows), times, strict=True):
        last_time = last_times.get(sensor)
        last_times[sensor] = time
        if last_time is None or time - last_time >= GAP * SECOND:
            session_count += 1
            sums[sensor] = (1, temp)
        else:
            count, total = sums[sensor]
            sums[sensor] = (count + 1, total + temp)
    return session_count


def _write(rows: list[Row], times: list[int], path: Path) -> None:
    sensors, temps = zip(*rows, strict=True)
    table = pa.table(
        {
            "time": pa.array(times, pa.timestamp("us", "UTC")),
            "sensor": pa.array(sensors),
            "temp": pa.array(temps),
        }
    )
    pq.write_table(table, path)


_SPARK: Final = f"""
import sys
from time import perf_counter
from skws.spark.spark_session import start_session
from pyspark.sql import functions as F
session = start_session("local[1]")
readings = session.read.parquet(sys.argv[1])
def run():
    by = readings.groupBy(F.session_window("time", "{GAP} seconds"), "sensor")
    return by.agg(F.avg("temp").alias("mean")).agg(F.count("mean")).first()[0]
run()
started = perf_counter()
found = run()
print(found, perf_counter() - started)
session.stop()
"""

_PATHWAY: Final = f"""
import datetime, sys
from time import perf_counter
import pandas, pathway as pw
frame = pandas.read_parquet(sys.argv[1])
started = perf_counter()
table = pw.debug.table_from_pandas(frame)
gap = datetime.timedelta(seconds={GAP}) - datetime.timedelta(microseconds=1)
windows = table.windowby(table.time, window=pw.temporal.session(max_gap=gap), instance=table.sensor)
means = windows.reduce(mean=pw.reducers.avg(pw.this.temp))
found = len(pw.debug.table_to_pandas(means))
print(found, perf_counter() - started)
"""


def _spark(path: Path) -> tuple[int, float] | None:
    return _child(sys.executable, _SPARK, path)


def _pathway(path: Path) -> tuple[int, float] | None:
    from bench.peers.environment import folder  # noqa: PLC0415 - only needed to measure peers

    python = folder("pathway") / "bin" / "python"
    return _child(str(python), _PATHWAY, path) if python.exists() else None


def _child(python: str, program: str, path: Path) -> tuple[int, float]:
    process = subprocess.run([python, "-c", program, str(path)], check=True, capture_output=True, text=True)
    session_count, seconds = process.stdout.split()[-2:]
    return int(session_count), float(seconds)
