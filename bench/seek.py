"""Times to move a replay to random instants, until it has the results that are alive there.

Run as ``python -m bench.seek``. The replay has a million JSON lines, one a second, with a window of 10,000
seconds and three queries.
"""

from __future__ import annotations

import argparse
import json
import random
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from time import perf_counter, process_time, sleep

from skws.jobs.control import JobCommand, RunControl
from skws.jobs.local import LocalWatch
from skws.jobs.log import Log
from skws.spec.job import Job
from skws.spec.query_spec import Query
from skws_schema.yaml.load import parse_schema

SCHEMA = """
name: shop
window: 10000 seconds
relations:
  item: {attributes: {id: integer, name: text}, key: [id]}
  visit: {attributes: {id: integer, note: text}}
joins: [item.id = visit.id]
"""
START = 1_700_000_000
WORDS = tuple(f"w{number}" for number in range(3_000))
QUERIES = ("w1 w2", "w5 w9", "w77")


def lines(number: int, rng: random.Random) -> Iterator[str]:
    for position in range(number):
        relation, name, words = ("visit", "note", 6) if position % 2 else ("item", "name", 3)
        row = {"id": rng.randrange(5_000), name: " ".join(rng.choices(WORDS, k=words))}
        yield json.dumps({"relation": relation, "time": START + position, "row": row}) + "\n"


def moves(path: Path, tuples: int, number: int, rng: random.Random) -> Iterator[tuple[float, float]]:
    """Milliseconds of each move, elapsed and of the processor, without the first one, which loads code."""
    job = Job({}, parse_schema(SCHEMA), f"replay:{path}?speed=1")
    control = RunControl(job)
    watch = LocalWatch(job, [], Log(), control=control, keep_alive=True)
    watch.open()
    for text in QUERIES:
        control.submit(JobCommand.add(Query(text, name=text)))
    watch.step()
    while control.times is None:  # the times are read while the job runs
        sleep(0.1)
    for move in range(number + 1):
        control.seek((START + rng.randrange(tuples // 50, tuples)) * 1_000_000)
        began, cpu_began = perf_counter(), process_time()
        watch.step()
        if move:
            yield (perf_counter() - began) * 1e3, (process_time() - cpu_began) * 1e3


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--tuples", type=int, default=1_000_000)
    parser.add_argument("--moves", type=int, default=20)
    args = parser.parse_args()
    rng = random.Random(3)
    with TemporaryDirectory() as folder:
        path = Path(folder) / "replay.jsonl"
        with path.open("w", encoding="utf-8") as file:
            file.writelines(lines(args.tuples, rng))
        times_of_moves = list(moves(path, args.tuples, args.moves, rng))
    for quantity, times in zip(
        ("waited", "of the processor"), zip(*times_of_moves, strict=True), strict=True
    ):
        print(f"{args.moves} moves: {quantity}, median {median(times):.0f} ms, worst {max(times):.0f} ms")


if __name__ == "__main__":
    main()
