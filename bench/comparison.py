"""Saved searches over joined tables, in skws and in solutions built on SQLite or DuckDB.

A search looks for a word of a purchase and a word of one of its complaints. Rows are inserted, updated, moved
and deleted. Each contender is a separate command that reads the same file, and all must end
with the same results: the (search, purchase, complaint) that match. Run as ``python -m bench.comparison``.
"""

from __future__ import annotations

import argparse
import random
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import Any, Final

import orjson

from bench.load import WORDS
from bench.peers.environment import python_of

CHILD: Final = Path(__file__).parent / "peers" / "children" / "saved_searches.py"
SCHEMA: Final = """\
window: none
relations:
  purchase:
    attributes: {pid: integer, item: {type: text, analyzer: simple}}
    key: [pid]
  complaint:
    attributes: {nr: integer, pid: integer, body: {type: text, analyzer: simple}}
    key: [nr]
joins:
  - complaint.pid = purchase.pid
"""
_ITEM, _BODY = 6, 12
"""Words of a text."""

Pair = tuple[str, str]
Record = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Contender:
    """``command`` runs in the job's folder. ``reports``: when a change of the results is reported."""

    name: str
    command: tuple[str, ...]
    reports: str
    result: Callable[[Path], set[tuple[str, int, int]]]


@dataclass(frozen=True, slots=True)
class Measured:
    """Seconds of the whole command: the median of all runs, and the slowest.

    ``start``: the median over a stream of one record, which is the time to start and to read the searches.
    """

    contender: Contender
    start: float
    seconds: float
    slowest: float
    live: int


def searches(number: int, rng: random.Random) -> list[Pair]:
    """Different pairs of a word of the purchase and a word of the complaint."""
    pairs: dict[Pair, None] = {}
    while len(pairs) < number:
        pairs[rng.choice(WORDS), rng.choice(WORDS)] = None
    return list(pairs)


def changes(number: int, rng: random.Random) -> list[Record]:
    """Records of a replay, one a second: first purchases, a tenth of all, then changes of all kinds."""
    records: list[Record] = []
    purchases, complaints = number // 10, 0
    lives: list[int] = []

    def add(op: str, relation: str, **row: Any) -> None:
        records.append({"relation": relation, "time": len(records), "op": op, "row": row})

    def text(words: int) -> str:
        return " ".join(rng.choices(WORDS, k=words))

    for pid in range(purchases):
        add("+", "purchase", pid=pid, item=text(_ITEM))
    while len(records) < number:
        kind = rng.random()
        if kind < 0.7 or not lives:
            add("+", "complaint", nr=complaints, pid=rng.randrange(purchases), body=text(_BODY))
            lives.append(complaints)
            complaints += 1
        elif kind < 0.8:
            add("+", "purchase", pid=rng.randrange(purchases), item=text(_ITEM))
        elif kind < 0.9:
            add("+", "complaint", nr=rng.choice(lives), pid=rng.randrange(purchases), body=text(_BODY))
        else:
            add("-", "complaint", nr=lives.pop(rng.randrange(len(lives))))
    return records


def write(folder: Path, pairs: list[Pair], records: list[Record]) -> None:
    """Write the job's files: ``schema.yaml``, ``stream.jsonl``, and the searches in both forms."""
    queries = {query(pair): query(pair) for pair in pairs}
    (folder / "searches.json").write_bytes(orjson.dumps(pairs))
    (folder / "queries.yaml").write_bytes(orjson.dumps(queries, option=orjson.OPT_INDENT_2))
    (folder / "stream.jsonl").write_bytes(b"".join(orjson.dumps(record) + b"\n" for record in records))
    (folder / "schema.yaml").write_text(SCHEMA)


def query(pair: Pair) -> str:
    return f"purchase.item:{pair[0]} complaint.body:{pair[1]}"


def contenders(duckdb: str, poll_interval: int) -> list[Contender]:
    """``duckdb``: an interpreter with DuckDB. ``poll_interval``: changes between two polls."""
    watch = (
        "watch",
        "replay:stream.jsonl?speed=1e12",
        "--schema",
        "schema.yaml",
        "--max-size",
        "2",
        "--quiet",
    )
    options = ("--queries", "queries.yaml", "--output", "skws.jsonl")
    interval_text = f"every {poll_interval:,} changes"
    return [
        Contender("skws watch", (sys.executable, "-m", "skws", *watch, *options), "each change", _of_skws),
        Contender("SQLite, triggers", (sys.executable, str(CHILD), "triggers"), "each change", _of_child),
        Contender(
            "SQLite, polled",
            (sys.executable, str(CHILD), "sqlite", str(poll_interval)),
            interval_text,
            _of_child,
        ),
        Contender(
            "DuckDB, polled",
            (duckdb, "-E", "-s", str(CHILD), "duckdb", str(poll_interval)),
            interval_text,
            _of_child,
        ),
    ]


def measure(contender: Contender, folder: Path, runs: int) -> tuple[Measured, set[tuple[str, int, int]]]:
    """Median and slowest run, and the results. Raises CalledProcessError if the command fails."""
    stream = folder / "stream.jsonl"
    content = stream.read_bytes()
    starts, times = [], []
    for _ in range(runs):
        stream.write_bytes(content.partition(b"\n")[0] + b"\n")
        starts.append(_seconds(contender, folder))
        stream.write_bytes(content)
        times.append(_seconds(contender, folder))
    live = contender.result(folder)
    return Measured(contender, median(starts), median(times), max(times), len(live)), live


def _seconds(contender: Contender, folder: Path) -> float:
    (folder / "skws.jsonl").unlink(missing_ok=True)
    began = perf_counter()
    subprocess.run(contender.command, cwd=folder, check=True, capture_output=True)
    return perf_counter() - began


def _of_skws(folder: Path) -> set[tuple[str, int, int]]:
    live: set[tuple[str, int, int]] = set()
    for line in (folder / "skws.jsonl").read_bytes().splitlines():
        result = orjson.loads(line)
        rows = {result_tuple["relation"]: result_tuple["row"] for result_tuple in result["tuples"]}
        key = (result["query"], rows["purchase"]["pid"], rows["complaint"]["nr"])
        (live.discard if result["op"] == "-" else live.add)(key)
    return live


def _of_child(folder: Path) -> set[tuple[str, int, int]]:
    live = orjson.loads((folder / "live.json").read_bytes())
    return {(query((item, body)), pid, nr) for item, body, pid, nr in live}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.comparison", description=__doc__)
    parser.add_argument("--searches", type=int, nargs="+", default=[1_000, 100_000])
    parser.add_argument("--changes", type=int, default=10_000)
    parser.add_argument("--every", type=int, default=1_000, help="changes between two polls")
    parser.add_argument("--runs", type=int, default=3)
    args = parser.parse_args()
    duckdb = str(python_of("duckdb", lambda line: print(line, file=sys.stderr)))
    print("searches  contender           reports                start s  median s  slowest s   live")
    for number in args.searches:
        rng = random.Random(46)
        with TemporaryDirectory() as name:
            folder = Path(name)
            write(folder, searches(number, rng), changes(args.changes, rng))
            expected = None
            for contender in contenders(duckdb, args.every):
                measured, live = measure(contender, folder, args.runs)
                print(
                    f"{number:8,}  {contender.name:18}  {contender.reports:21}  {measured.start:7.1f}"
                    f"  {measured.seconds:8.1f}"
                    f"  {measured.slowest:9.1f}  {measured.live:5,}",
                    flush=True,
                )
                if expected is not None and live != expected:
                    raise SystemExit(f"{contender.name} and skws differ: {len(live ^ expected)} results")
                expected = live


if __name__ == "__main__":
    main()
