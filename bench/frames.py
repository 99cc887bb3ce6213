"""Streaming DataFrames: ``python -m bench.frames``.

The keyed load is stored as folders of Parquet files, one for each relation, and as JSON lines with the
records of all relations. A streaming query of Spark reads one file of each folder, or one file of lines, per
micro-batch. The result is the number of tuples per second by cores and shards, compared with a search of the
same files in this process. Each run has its own process.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from operator import itemgetter
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import orjson
import pyarrow as pa
import pyarrow.parquet as pq

import skws
from bench.load import KEY, KEYED, START
from skws_schema.show import to_yaml

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_WAYS: Final = tuple(
    (form, *way) for form in ("relations", "records", "source") for way in ((1, 1), (2, 1), (2, 2))
)
"""The form of the rows, cores, shards."""
_Way: TypeAlias = tuple[str, int, int]
_TYPES: Final = f"words string, {KEY} long, time timestamp"


def write(folder: Path, hours: float, files: int) -> int:
    """Write the load as Parquet files, ``files`` for each relation; returns the number of tuples."""
    seconds = round(hours * 3600)
    rows: list[list[tuple[int, str, int]]] = [[] for _ in range(KEYED.relations)]
    file_number = 0
    for relation, moment, row, _ in KEYED.records(seconds):
        number = (moment // 1_000_000 - START) * files // seconds
        if number != file_number:
            _flush(folder, rows, file_number)
            file_number = number
        rows[relation].append((moment, str(row[0]), int(row[1] or 0)))
    _flush(folder, rows, file_number)
    return seconds * KEYED.relations


def _flush(folder: Path, rows: Sequence[list[tuple[int, str, int]]], number: int) -> None:
    lines: list[tuple[int, dict[str, object]]] = []
    for relation, relation_rows in enumerate(rows):
        target = folder / f"r{relation}"
        target.mkdir(parents=True, exist_ok=True)
        name = f"r{relation}"
        lines += (
            (moment, {"relation": name, "time": moment / 1e6, "row": {"words": words, KEY: key}})
            for moment, words, key in relation_rows
        )
        times, words, keys = zip(*relation_rows, strict=True)
        columns = {
            "words": pa.array(words),
            KEY: pa.array(keys, pa.int64()),
            "time": pa.array(times, pa.timestamp("us", tz="UTC")),
        }
        pq.write_table(pa.table(columns), target / f"{number:05}.parquet")
        relation_rows.clear()
    (folder / "records").mkdir(exist_ok=True)
    lines.sort(key=itemgetter(0))
    with (folder / "records" / f"{number:05}.jsonl").open("wb") as file:
        file.writelines(orjson.dumps(line) + b"\n" for _, line in lines)


def in_process(folder: Path) -> tuple[float, int]:
    """Seconds and number of results of a search of the files without Spark."""
    began = time.perf_counter()
    data = {
        f"r{number}": pa.concat_tables(map(pq.read_table, sorted((folder / f"r{number}").iterdir())))
        for number in range(KEYED.relations)
    }
    count = sum(1 for _ in skws.search(KEYED.query, data, schema=KEYED.schema(), max_size=KEYED.max_size))
    return time.perf_counter() - began, count


def on_spark(folder: Path, form: str, cores: int, shards: int) -> tuple[list[float], int]:
    """Seconds of each micro-batch, of which the first is slow, and the number of results."""
    command = [
        sys.executable,
        "-m",
        "bench.frames",
        "--folder",
        str(folder),
        f"--run={form},{cores},{shards}",
    ]
    settings = {**os.environ, "PYSPARK_PYTHON": sys.executable}
    output = subprocess.run(
        command, check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=settings
    ).stdout
    seconds, count = orjson.loads(output.splitlines()[-1])
    return seconds, count


def _session(cores: int, shards: int) -> SparkSession:
    from pyspark.sql import SparkSession  # noqa: PLC0415 - only the measuring process needs Spark

    return (
        SparkSession.builder.master(f"local[{cores}]")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.shuffle.partitions", str(shards))
        .config("spark.sql.files.maxPartitionBytes", "16m")
        .getOrCreate()
    )


def run_search(spark: SparkSession, folder: Path, form: str, shards: int) -> tuple[list[float], int]:
    """The result of ``on_spark``, on a session with as many state partitions as shards."""
    import skws.spark  # noqa: PLC0415 - only the measuring process needs Spark

    data: Any
    if form == "source":
        data = skws.spark.Source(f"{folder}/records")
    elif form == "records":
        data = {
            skws.spark.RECORDS: spark.readStream.option("maxFilesPerTrigger", 1).text(f"{folder}/records")
        }
    else:
        rows = spark.readStream.schema(_TYPES).option("maxFilesPerTrigger", 1)
        data = {f"r{number}": rows.parquet(f"{folder}/r{number}") for number in range(KEYED.relations)}
    with TemporaryDirectory() as output:
        schema = to_yaml(KEYED.schema())
        query = (
            skws.spark.search(spark, data, KEYED.query, schema=schema, max_size=KEYED.max_size, shards=shards)
            .writeStream.format("parquet")
            .option("path", f"{output}/out")
            .option("checkpointLocation", f"{output}/checkpoint")
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        seconds = [progress.durationMs["triggerExecution"] / 1000 for progress in query.recentProgress]
        return seconds, spark.read.parquet(f"{output}/out").count()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--hours", type=float, default=25.0, help="hours of the load, 72,000 tuples each")
    parser.add_argument(
        "--files",
        type=int,
        default=8,
        help="files of each relation, which is also the number of micro-batches",
    )
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--run", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.run:
        form, cores, shards = args.run.split(",")
        spark = _session(int(cores), int(shards))
        print(orjson.dumps(run_search(spark, args.folder, form, int(shards))).decode())
        spark.stop()
        return
    with TemporaryDirectory() as path:
        folder = Path(path)
        tuples = write(folder, args.hours, args.files)
        print(f"{tuples:,} tuples, {tuples // args.files:,} in a micro-batch, load {os.getloadavg()[0]:.1f}")
        local_times: list[float] = []
        wholes: dict[_Way, list[float]] = {}
        lasts: dict[_Way, list[float]] = {}
        results: set[int] = set()
        for _ in range(args.runs):
            seconds, count = in_process(folder)
            local_times.append(seconds)
            results.add(count)
            for variant in _WAYS:
                batches, count = on_spark(folder, *variant)
                results.add(count)
                wholes.setdefault(variant, []).append(sum(batches))
                lasts.setdefault(variant, []).append(statistics.median(batches[len(batches) // 2 :]))
        if len(results) != 1:
            raise SystemExit(f"different numbers of results: {results}")
        base = statistics.median(local_times)
        print(f"{'':34}{'all, s':>10}{'a late batch, s':>18}{'its tuples/s':>14}")
        print(f"{'in process':34}{base:10.1f}{'':18}{tuples / base:14,.0f}")
        for variant, times in wholes.items():
            batch_seconds = statistics.median(lasts[variant])
            name = "{}, local[{}], shards={}".format(*variant)
            speed = tuples / args.files / batch_seconds
            print(f"{name:34}{statistics.median(times):10.1f}{batch_seconds:18.2f}{speed:14,.0f}")


if __name__ == "__main__":
    main()
