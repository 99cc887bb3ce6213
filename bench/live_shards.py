"""Shards of a live search on Spark, each alone in its own process: the time that N machines would take.

The source reads, divides and packs for all shards, which is measured separately. A shard unpacks its
micro-batches, joins and encodes its results, as the shard server does.
"""

from __future__ import annotations

import pickle
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack
from dataclasses import replace
from multiprocessing import get_context
from pathlib import Path
from typing import Final, NamedTuple

import orjson

from bench.load import Load
from bench.processes import peak
from skws.data.batch import RecordBatch, concat_batches
from skws.data.packing import decompress
from skws.formats import Replay
from skws.formats.jsonl import ChunkReader
from skws.jobs.control import JobCommand
from skws.memory import expect_long_lived_objects
from skws.queries.partitioning.parts import Part, Partitioning
from skws.spark.streaming.layout import Layout, LayoutRequest
from skws.spark.streaming.messages import BatchHeader, LogEnd, MicroBatch
from skws.spark.streaming.shard_server import ShardServer
from skws.spec.job import Job
from skws.spec.query_spec import Query
from skws_purging.lifespans import ALWAYS

_RECORDS: Final = 200_000  # per micro-batch


class LiveShard(NamedTuple):
    """``seconds`` of processor time; ``held``: peak bytes above the start; ``live`` tuples at the end."""

    seconds: float
    held: int
    live: int
    results: int


class LiveShards(NamedTuple):
    """``read_seconds``: processor seconds of the source."""

    shards: int
    read_seconds: float
    shard_runs: list[LiveShard]

    @property
    def largest(self) -> float:
        return max(shard.seconds for shard in self.shard_runs)

    @property
    def held(self) -> int:
        return max(shard.held for shard in self.shard_runs)

    @property
    def results(self) -> int:
        return sum(shard.results for shard in self.shard_runs)


def live_shards(
    load: Load, replay: Path, spread: Partitioning, numbers: Sequence[int], folder: Path
) -> list[LiveShards]:
    """Measurements for each number of shards in ``numbers``, over a replay of the load."""
    query = Query(load.query, load.max_size, name="load")
    job = Job({"load": query}, load.schema(), f"replay:{replay}", max_size=load.max_size)
    measurements = []
    for number in numbers:
        layout = LayoutRequest(number, spread).layout([query], job.stream, job.plan_window)
        paths = [folder / f"{shard}.batches" for shard in range(number)]
        read_seconds = _write_batches(job, replay, layout, paths)
        shard_runs = []
        for path, share in zip(paths, layout.shares.values(), strict=True):
            with ProcessPoolExecutor(1, get_context("spawn")) as pool:
                shard_runs.append(pool.submit(_run_shard, job, share, path).result())
        measurements.append(LiveShards(number, read_seconds, shard_runs))
    if len({measurement.results for measurement in measurements}) != 1:
        raise SystemExit("numbers of shards have different results")
    return measurements


def _write_batches(job: Job, replay: Path, layout: Layout, paths: Sequence[Path]) -> float:
    """Write the micro-batches of each shard; returns the processor seconds."""
    began = time.process_time()
    head = BatchHeader(0.0, tuple(JobCommand.add(query) for query in job.named().values()))
    with ExitStack() as stack:
        files = [stack.enter_context(path.open("wb")) for path in paths]
        for number, batch in enumerate(_batches(job, replay)):
            watermark = int(batch.time.max()) if layout.keys is not None else None
            head = replace(head, number=number, reached=watermark, commands=() if number else head.commands)
            blobs = layout.pack(batch)
            for shard, file in enumerate(files):
                blob = blobs[shard] if layout.keys is not None else blobs[0]
                pickle.dump(MicroBatch(head, b"", blob).to_bytes(), file)
    return time.process_time() - began


def _batches(job: Job, replay: Path) -> Iterator[RecordBatch]:
    pending: list[RecordBatch] = []
    reader = ChunkReader(job.schema)
    for split in Replay.open(replay, job.schema).splits:
        for chunk in reader.read(split):
            pending.append(chunk.records)
            if sum(map(len, pending)) >= _RECORDS:
                yield concat_batches(pending)
                pending = []
    if pending:
        yield concat_batches(pending)


def _run_shard(job: Job, share: Part, path: Path) -> LiveShard:
    expect_long_lived_objects()
    server = ShardServer(job, share)
    server.answer(("begin", LogEnd(0, ALWAYS, None, ALWAYS), [], [], [], {}))
    server.answer(("seek", 0, ALWAYS, 0))
    base_memory, began = peak(), time.process_time()
    epoch = live = results = 0
    with path.open("rb") as file:
        while file.peek(1):
            stats, *blobs = server.answer(("work", epoch, pickle.load(file), False)).blobs
            live = orjson.loads(stats).get("live", live)
            results += sum(decompress(blob).count(b"\n") + 1 for blob in blobs)
            epoch += 1
    return LiveShard(time.process_time() - began, peak() - base_memory, live, results)


def show(rows: Sequence[LiveShards]) -> None:
    """Print a row for each number of shards."""
    headings = ("shards", "source s", "largest s", "to N=1", "held MB", "to N=1", "live", "results")
    print("\n" + "".join(f"{heading:>11}" for heading in headings))
    for row in rows:
        ratio, memory_ratio = row.largest / rows[0].largest, row.held / rows[0].held
        print(
            f"{row.shards:11}{row.read_seconds:11.2f}{row.largest:11.2f}{ratio:11.2f}"
            f"{row.held / 1e6:11.1f}{memory_ratio:11.2f}{max(shard.live for shard in row.shard_runs):11,}"
            f"{row.results:11,}"
        )
