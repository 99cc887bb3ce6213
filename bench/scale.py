"""Scaling of searches over a replay: ``python -m bench.scale``.

First *COST* (McSherry, Isard and Murray, HotOS 2015: the configuration that outperforms a single thread):
whole commands over the heavy load, in alternating runs by one process, by several, and on Spark.

Then the predicted time of N workers. The stream is cut for N, and each slice is searched alone, one after the
other, in its own process, so that two cores can predict the time of sixteen. The busiest worker
bounds the time: slices are uneven, and each repeats the window before it.

Then N parts of a stream that a key divides, each alone as well. They receive packed records: reading and
dividing is done by other processes, and is measured separately. Last, N shards of live searches in the same
way, divided by the key, and by root tuple: the latter on the heavy load, and on one dominated by joins.
"""

from __future__ import annotations

import argparse
import os
import pickle
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack
from heapq import heappush, heapreplace
from multiprocessing import get_context
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final, NamedTuple

from bench.live_shards import live_shards, show
from bench.load import DENSE, HEAVY, KEYED
from bench.processes import peak
from skws.data.batch import RecordBatch
from skws.data.packing import pack, unpack
from skws.formats import Replay
from skws.formats.jsonl_order import timed_blocks
from skws.formats.splits import PackedPiece, read_pieces
from skws.queries.kinds import plan_of
from skws.queries.partitioning.parts import Partitioning
from skws.queries.partitioning.slice_tasks import SliceRanges, blocks_of
from skws.queries.partitioning.slices import Slice, SliceRun, Slicing, in_order, plan_parts, plan_slices
from skws.spec.job import Job
from skws_schema.show import to_yaml

_DENSE: Final = 0.1  # of the hours: a tuple of the dense load takes ten times as long
_WAYS: Final = {
    "one process": ("--engine", "local", "--jobs", "1"),
    "{cores} processes": ("--engine", "local", "--jobs", "{cores}"),
    "Spark, local[1]": ("--engine", "spark", "--master", "local[1]"),
    "Spark, local[{cores}]": ("--engine", "spark", "--master", "local[{cores}]"),
}


class Share(NamedTuple):
    """Processor seconds and peak memory in bytes of one slice in its own process."""

    seconds: float
    peak: int
    results: int


class Sharded(NamedTuple):
    """N shards by key: the time to read and divide, then the figures of the largest shard.

    ``held``: the peak of a shard in bytes above its start.
    """

    shards: int
    divide: float
    largest: float
    held: int
    results: int


class Scaled(NamedTuple):
    """N workers: the time to scan the file, that of the busiest worker, and the peak memory of a slice."""

    workers: int
    slices: int
    scan: float
    largest: float
    total: float
    peak: int
    results: int


def cost(schema: Path, replay: Path, runs: int) -> dict[str, list[float]]:
    """Seconds of whole commands in alternating runs; the output of all must be the same."""
    cores = len(os.sched_getaffinity(0))
    times: dict[str, list[float]] = {}
    outputs: set[bytes] = set()
    for _ in range(runs):
        for name, options in _WAYS.items():
            began = time.perf_counter()
            command = [*_search(schema, replay), *(option.format(cores=cores) for option in options)]
            process = subprocess.run(command, check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
            times.setdefault(name.format(cores=cores), []).append(time.perf_counter() - began)
            outputs.add(process.stdout)
    if len(outputs) != 1:
        raise SystemExit("the commands wrote different results")
    return times


def _search(schema: Path, replay: Path) -> list[str]:
    words = [HEAVY.query, "--schema", str(schema), "--replay", str(replay), "--format", "jsonl"]
    return [sys.executable, "-m", "skws", "search", *words, "--max-size", str(HEAVY.max_size)]


def predict(replay: Path, workers: Sequence[int]) -> list[Scaled]:
    """Predicted times for each number of workers, from slices that are searched one by one."""
    job = Job.search(HEAVY.query, HEAVY.schema(), replay, max_size=HEAVY.max_size)
    files = Replay.open(replay, job.schema)
    began = time.process_time()
    blocks = blocks_of((split, timed_blocks(split)) for split in files.splits)
    scan = time.process_time() - began
    assert blocks is not None
    (query,) = job.named().values()
    window = plan_of(query, job.stream).window
    predictions = []
    for number in workers:
        slicing = plan_slices([piece for piece, _ in blocks], [query], job.stream, window, number)
        ranges = [SliceRanges.of(stream_slice, blocks) for stream_slice in slicing.slices]
        shares = [_run_apart(job, slice_ranges) for slice_ranges in ranges]
        busy = [0.0]
        for share in sorted((share.seconds for share in shares), reverse=True):
            if len(busy) < number:
                heappush(busy, share)
            else:
                heapreplace(busy, busy[0] + share)
        total = sum(share.seconds for share in shares)
        largest, peak = max(busy), max(share.peak for share in shares)
        results = sum(share.results for share in shares)
        predictions.append(Scaled(number, len(ranges), scan / number, largest, total, peak, results))
    if len({prediction.results for prediction in predictions}) != 1:
        raise SystemExit("numbers of workers have different results")
    return predictions


def _run_apart(job: Job, ranges: SliceRanges) -> Share:
    with ProcessPoolExecutor(1, get_context("spawn")) as pool:
        return pool.submit(_search_ranges, job, ranges).result()


def _search_ranges(job: Job, ranges: SliceRanges) -> Share:
    began = time.process_time()
    run = SliceRun(list(job.named().values()), job.stream, ranges.slice)
    results = sum(1 for _ in ranges.run(run, job.stream, lambda _: None, lambda _: None))
    return Share(time.process_time() - began, peak(), results)


def measure_shards(replay: Path, shards: Sequence[int], folder: Path) -> list[Sharded]:
    """Measurements for each number of shards of the keyed load, one shard after the other."""
    job = Job.search(KEYED.query, KEYED.schema(), replay, max_size=KEYED.max_size)
    queries = list(job.named().values())
    window = plan_of(queries[0], job.stream).window
    splits = Replay.open(replay, job.schema).splits
    measurements = []
    for number in shards:
        began = time.process_time()
        pieces = [packed_piece for split in splits for packed_piece in read_pieces(split, job.schema)]
        slicing = Slicing()
        if number > 1:
            part_slicing = plan_parts([piece for piece, _ in pieces], queries, job.stream, window, number, 1)
            assert part_slicing is not None
            slicing = part_slicing
        paths = [folder / f"{part}.pieces" for part in range(number)]
        with ExitStack() as stack:
            files = [stack.enter_context(path.open("wb")) for path in paths]
            for piece, blob in pieces:
                batch = unpack(blob)
                parts = slicing.parts_of(piece, batch) if number > 1 else [(0, piece, batch)]
                for part, part_piece, records in parts:
                    pickle.dump((part_piece, pack(records)), files[part])
        divide = time.process_time() - began
        pieces.clear()
        runs = []
        for path, shard_slice in zip(paths, slicing.slices, strict=True):
            with ProcessPoolExecutor(1, get_context("spawn")) as pool:
                runs.append(pool.submit(_search_shard, job, shard_slice, path).result())
        largest, most = max(share.seconds for share in runs), max(share.peak for share in runs)
        measurements.append(
            Sharded(number, divide / number, largest, most, sum(share.results for share in runs))
        )
    if len({measurement.results for measurement in measurements}) != 1:
        raise SystemExit("numbers of shards have different results")
    return measurements


def _search_shard(job: Job, shard_slice: Slice, path: Path) -> Share:
    run = SliceRun(list(job.named().values()), job.stream, shard_slice)
    base_memory, began = peak(), time.process_time()
    results = sum(1 for _ in run.results(*in_order(_stored_pieces(path))))
    return Share(time.process_time() - began, peak() - base_memory, results)


def _stored_pieces(path: Path) -> Iterator[tuple[PackedPiece, RecordBatch]]:
    with path.open("rb") as file:
        while file.peek(1):
            piece, blob = pickle.load(file)
            yield piece, unpack(blob)


def draw(predictions: Sequence[Scaled], tuples: int, path: Path) -> None:
    """Draw the predicted throughput over the number of workers, with its bounds."""
    from matplotlib.figure import Figure  # noqa: PLC0415 - an optional extra

    canvas = Figure(figsize=(6, 3.6), dpi=90, layout="constrained")
    axes = canvas.subplots()
    numbers = [prediction.workers for prediction in predictions]
    first_prediction = predictions[0]
    axes.plot(
        numbers,
        [tuples / (prediction.scan + prediction.largest) / 1e6 for prediction in predictions],
        "o-",
        label="predicted",
    )
    ideal = tuples / (first_prediction.scan + first_prediction.largest) / first_prediction.workers / 1e6
    axes.plot(numbers, [number * ideal for number in numbers], ":", label="without repeated windows")
    axes.set_xlabel("workers")
    axes.set_ylabel("million tuples a second")
    axes.set_xscale("log", base=2)
    axes.set_yscale("log", base=2)
    axes.set_xticks(numbers, list(map(str, numbers)))
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
    axes.legend()
    canvas.savefig(path)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument(
        "--hours", type=float, default=25.0, help="hours of the heavy load, 72,000 tuples each"
    )
    parser.add_argument("--runs", type=int, default=5, help="runs of each command; 0 skips them")
    parser.add_argument("--workers", default="1,2,4,8,16")
    parser.add_argument(
        "--shards", default="1,2,4,8", help="numbers of shards of the load that a key divides"
    )
    parser.add_argument("--plot", type=Path, help="PNG file for a plot of the prediction")
    args = parser.parse_args()
    with TemporaryDirectory() as folder:
        replay, schema = Path(folder) / "load.jsonl", Path(folder) / "load.yaml"
        schema.write_text(to_yaml(HEAVY.schema()), encoding="utf-8")
        tuples = HEAVY.write(replay, round(args.hours * 3600))
        print(f"{tuples:,} tuples, {replay.stat().st_size / 1e6:,.0f} MB, load {os.getloadavg()[0]:.1f}")
        if args.runs:
            print(f"\n{'':24}{'median s':>10}{'fastest':>10}{'to one process':>16}")
            times = cost(schema, replay, args.runs)
            base = statistics.median(next(iter(times.values())))
            for name, seconds in times.items():
                middle = statistics.median(seconds)
                print(f"{name:24}{middle:10.1f}{min(seconds):10.1f}{base / middle:16.2f}")
        predictions = predict(replay, [int(text) for text in args.workers.split(",")])
        headings = ("workers", "slices", "scan s", "largest s", "to N=1", "all s", "peak MB", "tuples/s")
        print("\n" + "".join(f"{heading:>11}" for heading in headings))
        for row in predictions:
            ratio, speed = row.largest / predictions[0].largest, tuples / (row.scan + row.largest)
            print(
                f"{row.workers:11}{row.slices:11}{row.scan:11.2f}{row.largest:11.2f}{ratio:11.2f}"
                f"{row.total:11.2f}{row.peak / 1e6:11.0f}{speed:11,.0f}"
            )
        if args.plot is not None:
            draw(predictions, tuples, args.plot)
        numbers = [int(text) for text in args.shards.split(",")]
        by_root = live_shards(HEAVY, replay, Partitioning.ROOTS, numbers, Path(folder))
        DENSE.write(replay, round(args.hours * 3600 * _DENSE))
        dense = live_shards(DENSE, replay, Partitioning.ROOTS, numbers, Path(folder))
        KEYED.write(replay, round(args.hours * 3600))
        shard_headings = ("shards", "divide s", "largest s", "to N=1", "held MB", "to N=1")
        print("\n" + "".join(f"{heading:>11}" for heading in shard_headings))
        rows = measure_shards(replay, numbers, Path(folder))
        for shard_row in rows:
            ratio, memory_ratio = shard_row.largest / rows[0].largest, shard_row.held / rows[0].held
            print(
                f"{shard_row.shards:11}{shard_row.divide:11.2f}{shard_row.largest:11.2f}{ratio:11.2f}"
                f"{shard_row.held / 1e6:11.1f}{memory_ratio:11.2f}"
            )
        show(live_shards(KEYED, replay, Partitioning.KEYS, numbers, Path(folder)))
        show(by_root)
        show(dense)


if __name__ == "__main__":
    main()
