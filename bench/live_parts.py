"""Tasks that read a source of Spark, each alone in its own process: the time that N machines would take.

python -m bench.live_parts --minutes 2400

A task reads, parses, divides by the key and packs its part of one micro-batch. There are as many shards as
tasks. The figure for each task is the median of three runs, after one run that loads modules.
"""

from __future__ import annotations

import argparse
import time
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Final

from bench.load import KEYED
from skws.memory import MemoryShare, size_text
from skws.queries.partitioning.parts import Partitioning
from skws.spark.source_reader import Pieces, Reading, SourcePartition, SourceReader
from skws.spark.streaming.layout import Layout, LayoutRequest
from skws.spec.job import Job
from skws.spec.query_spec import Query

_TIMES: Final = 3


def reader_of(replay: Path, number: int, records: int) -> SourceReader:
    """A reader of micro-batches of about ``records`` records in ``number`` parts, for as many shards."""
    query = Query(KEYED.query, KEYED.max_size, name="load")
    job = Job({"load": query}, KEYED.schema(), str(replay), max_size=KEYED.max_size)
    layout = LayoutRequest(number, Partitioning.KEYS).layout([query], job.stream, job.plan_window)
    reading = Reading(str(replay), job.schema, records=(records, records), tasks=number)
    return SourceReader(reading, Pieces(job, _FixedLayout(layout), MemoryShare(size_text(), 0)))


class _FixedLayout:
    """Returns a fixed layout; a class at module level, so that it can be pickled."""

    def __init__(self, layout: Layout) -> None:
        self._layout = layout

    def __call__(self) -> Layout:
        return self._layout


def parts_of(replay: Path, number: int, records: int) -> list[SourcePartition]:
    """The parts of one micro-batch. The source must have more records: its end is polled, not divided."""
    reader = reader_of(replay, number, records)
    start = reader.initialOffset()
    end = reader.latestOffset(start, reader.getDefaultReadLimit())
    return [
        partition for partition in reader.partitions(start, end) if isinstance(partition, SourcePartition)
    ]


def read_partition(replay: Path, number: int, records: int, partition: SourcePartition) -> tuple[float, int]:
    """Processor seconds of a warmed-up task, and the bytes that it passes on."""
    reader = reader_of(replay, number, records)
    spent, size = [], 0
    for _ in range(1 + _TIMES):
        began = time.process_time()
        size = sum(batch.nbytes for batch in reader.read(partition))
        spent.append(time.process_time() - began)
    return median(spent[1:]), size


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--minutes", type=int, default=2400, help="minutes of the load, 1,200 tuples each")
    parser.add_argument("--tasks", type=int, nargs="+", default=[1, 2, 4, 8, 16])
    args = parser.parse_args()
    with TemporaryDirectory() as folder:
        replay = Path(folder) / "load.jsonl"
        tuples = KEYED.write(replay, args.minutes * 60)
        records = tuples * 9 // 10
        print(f"{records:,} of {tuples:,} tuples, {replay.stat().st_size / 1e6:,.0f} MB")
        headings = ("tasks", "largest s", "all s", "to one", "of 1/N", "all to one", "MB on")
        print("".join(f"{heading:>11}" for heading in headings))
        single_seconds = 0.0
        for number in args.tasks:
            seconds, sizes = [], []
            for partition in parts_of(replay, number, records):
                with ProcessPoolExecutor(1, get_context("spawn")) as pool:
                    spent, size = pool.submit(read_partition, replay, number, records, partition).result()
                    seconds.append(spent)
                    sizes.append(size)
            single_seconds = single_seconds or seconds[0]
            ratio = max(seconds) / single_seconds
            print(
                f"{number:11}{max(seconds):11.2f}{sum(seconds):11.2f}{ratio:11.3f}{ratio * number:11.2f}"
                f"{sum(seconds) / single_seconds:11.2f}{sum(sizes) / 1e6:11.1f}"
            )


if __name__ == "__main__":
    main()
