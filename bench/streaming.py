"""Latency and throughput of live searches on Spark, on the heavy load.

python -m bench.streaming latency --rate 1000 --seconds 60
python -m bench.streaming throughput --minutes 300 --shards 2
python -m bench.streaming backlog --minutes 300 --shards 2
python -m bench.streaming library --minutes 300 --shards 2

Latency: a file grows by ``--rate`` tuples a second, each stamped with the wall clock
when it is written; a result's latency is from the stamp of its youngest tuple
until a sink has it. The window is chosen so that there are as many live tuples as in
the heavy load, 24,000.

Throughput: a replay at full speed, from its second micro-batch to its
last (``in-process``: all of it, by the loop of one process). ``stage`` counts only
the time from reading a batch to delivering its results, without the time in
which the source read and decoded.

``backlog``: the same of a growing file, which tasks read.

``library``: the same file as a ``Source`` of ``skws.spark.search``, which tasks read, in a session with the
settings that its documentation names; the driver receives results as Arrow. It also prints how the time of
Spark's batches is spent, as reported by Spark's progress.

Both print the processor time of each process, which depends less on other work on
the machine than elapsed time does.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import median, quantiles
from threading import Thread, Timer
from typing import TYPE_CHECKING

import orjson

from bench.load import HEAVY, KEYED, Load
from bench.processes import processor_seconds
from skws.jobs.local import LocalWatch
from skws.jobs.log import Log
from skws.results.result import LiveResult
from skws.sinks.base import SinkRun
from skws.spark import Source, search
from skws.spark.spark_session import start_session
from skws.spark.streaming.layout import LayoutRequest
from skws.spark.streaming.spark_watch import SparkWatch
from skws.spec.enums import EngineName
from skws.spec.job import Job
from skws_windows.window import MICROSECOND, TimeWindow

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

LIVE = 24_000
SKIPPED = 2  # batches that are not counted
WARM_UP = 20.0  # seconds that are not counted: Java compiles, servers start


@dataclass
class Clocked:
    """A sink that records the time at which it receives results."""

    name: str = "clocked"
    every: float = 1.0
    results: list[tuple[float, LiveResult]] = field(default_factory=list)

    def open(self, run: SinkRun) -> None:
        """Nothing to open."""

    def write(self, batch: int, results: Sequence[LiveResult]) -> None:  # noqa: ARG002 - a sink has it
        now = time.time()
        self.results += [(now, result) for result in results]

    def flush(self) -> None:
        """Nothing to flush."""

    def close(self) -> None:
        """Nothing to close."""


def request(source: str, cores: int, window: TimeWindow | None = None, load: Load = HEAVY) -> Job:
    return Job(
        {load.query: load.query},
        load.schema(),
        source,
        window=window,
        max_size=load.max_size,
        engine=EngineName.SPARK,
        master=f"local[{cores}]",
    )


def grow(path: Path, rate: int, end: float) -> None:
    """Append tuples of the load, stamped with the time, in ten batches per second."""
    load = HEAVY
    schema = load.schema()
    names = [[a.name for a in relation.attributes] for relation in schema.relations]
    records = load.records(10**9)
    began, row_count = time.time(), 0
    while time.time() < end:
        target = int((time.time() - began) * rate)
        lines = []
        for record, _ in zip(records, range(target - row_count), strict=False):
            row = dict(zip(names[record.relation], record.row, strict=True))
            lines.append(
                orjson.dumps({"relation": f"r{record.relation}", "time": time.time(), "row": row}) + b"\n"
            )
        with path.open("ab") as file:
            file.write(b"".join(lines))
        row_count = target
        time.sleep(0.02)


def latency(rate: int, seconds: float, shards: int, cores: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "in.jsonl"
        path.touch()
        window = TimeWindow(LIVE * MICROSECOND // rate)
        sink = Clocked()
        watch = SparkWatch(
            request(str(path), cores, window),
            Log(quiet=True),
            sinks=[sink],
            layout_request=LayoutRequest(shards),
        )
        fill_seconds = WARM_UP + LIVE / rate
        marks: list[tuple[int, dict[str, float]]] = []  # batches so far, and processor time

        def mark() -> None:
            marks.append((watch.metrics().batches, processor_seconds()))

        def feed() -> None:
            while watch.metrics().state != "running":
                time.sleep(0.1)
            began = time.time()
            Timer(fill_seconds, mark).start()
            grow(path, rate, began + fill_seconds + seconds)
            mark()
            sink.results = [
                (write_time, r) for write_time, r in sink.results if (r.start or 0) > began + fill_seconds
            ]
            time.sleep(3)
            watch.control.stop()

        feeder = Thread(target=feed)
        feeder.start()
        watch.run()
        feeder.join()
    spent = sorted(write_time - (result.start or 0) for write_time, result in sink.results)
    print(
        f"latency: {rate:,} tuples/s, {cores} cores, {shards} shards: {len(spent):,} results, "
        f"median {median(spent):.2f} s, p99 {quantiles(spent, n=100)[98]:.2f} s, longest {spent[-1]:.2f} s"
    )
    (first_batch, first_times), (last_batch, last_times) = marks
    for role, so_far in last_times.items():
        batch_seconds = (so_far - first_times.get(role, 0.0)) / (last_batch - first_batch)
        print(f"  {role}: {1000 * batch_seconds:.0f} ms of processor time a batch")


def throughput(minutes: int, shards: int, cores: int, load: Load, *, backlog: bool) -> None:
    batches: list[tuple[float, int, float]] = []  # delivery time, tuples so far, seconds since it was read
    spent: list[dict[str, float]] = []  # processor time at that moment

    def note() -> None:
        metrics = watch.metrics()
        if metrics.batches > len(batches):
            batches.append((time.perf_counter(), metrics.tuples, metrics.batch_seconds))
            spent.append(processor_seconds())
        if metrics.tuples == total:
            watch.control.stop()

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "load.jsonl"
        total = load.write(path, minutes * 60)
        sink = Clocked()
        source = str(path) if backlog else f"replay:{path}?speed=1000000000"
        job = request(source, cores, load=load)
        watch = SparkWatch(
            job, Log(quiet=True), sinks=[sink], layout_request=LayoutRequest(shards), each_step=note
        )
        watch.run()
    (began, tuples_before, _), (end, tuples, _) = batches[SKIPPED - 1], batches[-1]
    tuple_count = tuples - tuples_before
    stage = sum(seconds for _, _, seconds in batches[SKIPPED:])
    print(
        f"{'backlog' if backlog else 'throughput'}: {cores} cores, {shards} shards: {tuple_count:,} tuples, "
        f"{tuple_count / (end - began):,.0f} tuples/s, stage {tuple_count / stage:,.0f} tuples/s; "
        f"{len(sink.results):,} results"
    )
    for role, seconds in spent[-1].items():
        tuple_seconds = (seconds - spent[SKIPPED - 1].get(role, 0.0)) / tuple_count
        print(f"  {role}: {1e6 * tuple_seconds:.1f} us of processor time a tuple")


def library(minutes: int, shards: int, cores: int, load: Load) -> None:
    # Finished batches: time, processor time so far, results.
    batches: list[tuple[float, dict[str, float], int]] = []

    def collect(frame: DataFrame, _: int) -> None:
        results = frame.toArrow().num_rows
        batches.append((time.perf_counter(), processor_seconds(), results))

    os.environ["PYSPARK_PYTHON"] = sys.executable
    spark = (
        start_session(f"local[{cores}]")
        .builder.config("spark.sql.shuffle.partitions", str(shards))
        .config("spark.sql.codegen.wholeStage", "false")
        .getOrCreate()
    )
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "load.jsonl"
        tuples = load.write(path, minutes * 60)
        results = search(
            spark, Source(path), load.query, schema=load.schema(), max_size=load.max_size, shards=shards
        )
        query = (
            results.writeStream.foreachBatch(collect)
            .option("checkpointLocation", f"{folder}/checkpoint")
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        progress = [orjson.loads(batch_progress.json) for batch_progress in query.recentProgress]
        sizes = [_read_bytes(batch_progress["sources"][0]["endOffset"]) for batch_progress in progress]
        total = path.stat().st_size
    spark.stop()
    (began, first_times, _), (end, last_times, _) = batches[SKIPPED - 1], batches[len(sizes) - 1]
    tuple_count = round(tuples * (sizes[-1] - sizes[SKIPPED - 1]) / total)
    print(
        f"library: {cores} cores, {shards} shards: {tuple_count:,} tuples in {len(sizes) - SKIPPED} batches, "
        f"{tuple_count / (end - began):,.0f} tuples/s; {sum(number for *_, number in batches):,} results"
    )
    for role, seconds in last_times.items():
        print(
            f"  {role}: {1e6 * (seconds - first_times.get(role, 0.0)) / tuple_count:.1f} us"
            " of processor time a tuple"
        )
    for phase in progress[-1]["durationMs"]:
        spent = [batch_progress["durationMs"].get(phase, 0) for batch_progress in progress[SKIPPED:]]
        print(f"  {phase}: {median(spent):.0f} ms a batch")


def _read_bytes(offset: dict[str, dict[str, dict[str, list[int]]]]) -> int:
    """The number of bytes of all files before an offset."""
    return sum(position[1] for position in offset["feed"]["files"].values())


def in_process(minutes: int, load: Load) -> None:
    """The same replay by the loop of one process, as the baseline for Spark."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "load.jsonl"
        tuples = load.write(path, minutes * 60)
        job = request(f"replay:{path}?speed=1000000000", 1, load=load)
        sink = Clocked()
        watch = LocalWatch(replace(job, engine=EngineName.LOCAL, master=None), [sink], Log(quiet=True))
        began, spent = time.perf_counter(), time.process_time()
        watch.run()
        seconds, spent = time.perf_counter() - began, time.process_time() - spent
    print(
        f"in process: {tuples:,} tuples, {tuples / seconds:,.0f} tuples/s, {len(sink.results):,} results, "
        f"{1e6 * spent / tuples:.1f} us of processor time a tuple"
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=("latency", "throughput", "backlog", "library", "in-process"))
    parser.add_argument("--rate", type=int, default=1000, help="tuples a second")
    parser.add_argument(
        "--seconds", type=float, default=60, help="seconds that are measured, after the warm-up"
    )
    parser.add_argument("--minutes", type=int, default=300, help="minutes of the load, 1,200 tuples each")
    parser.add_argument(
        "--keyed", action="store_true", help="throughput or backlog of the load that a key divides"
    )
    parser.add_argument("--shards", type=int, default=1)
    parser.add_argument("--cores", type=int, default=2)
    args = parser.parse_args()
    load = KEYED if args.keyed else HEAVY
    if args.what == "latency":
        latency(args.rate, args.seconds, args.shards, args.cores)
    elif args.what == "library":
        library(args.minutes, args.shards, args.cores, load)
    elif args.what == "in-process":
        in_process(args.minutes, load)
    else:
        throughput(args.minutes, args.shards, args.cores, load, backlog=args.what == "backlog")


if __name__ == "__main__":
    main()
