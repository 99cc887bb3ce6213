"""Updates of keyed rows under many saved searches, by whole commands: ``skws watch`` over a replay.

python -m bench.updates
python -m bench.updates --beside ../earlier --runs 3

The load is that of :mod:`bench.soak`: rows, then updates of random rows, either of values that no search
matches (``touches``) or of their words (``updates``). ``--beside`` names the checkout of another version,
which runs on the same files and the same installed packages, in alternation. Times are user and system
processor time.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from collections import Counter
from itertools import islice
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import NamedTuple

import orjson

from bench.soak import KEY, SCHEMA, Rows, searches

KINDS = ("touches", "updates")
PACKAGES = ("", "bounds", "mesh", "patterns", "purging", "schema", "tui", "windows")
FAST = 1e12  # as fast as the source can read


class Run(NamedTuple):
    """Processor seconds, peak memory in bytes, and the number of reported results by operation."""

    seconds: float
    memory: int
    counts: dict[str, int]


def write(folder: Path, kind: str, rows: int, changes: int, number: int) -> None:
    """Write the files of a load; ``number``: of searches."""
    (folder / "schema.yaml").write_text(SCHEMA.format(key=KEY))
    (folder / "queries.yaml").write_text(searches(number))
    lines = Rows(kind, rows)
    with (folder / "in.jsonl").open("wb") as file:
        file.writelines(lines.first())
        file.writelines(islice(lines.changes(), changes))


def run(folder: Path, tree: Path, options: list[str]) -> Run:
    """Run one whole command of the version in ``tree``. Raises CalledProcessError if it fails."""
    output = folder / "out.jsonl"
    output.unlink(missing_ok=True)
    command = [sys.executable, "-m", "skws", "watch", "--replay", str(folder / "in.jsonl")]
    command += ["--schema", str(folder / "schema.yaml"), "--queries", str(folder / "queries.yaml")]
    command += ["--speed", str(FAST), "--engine", "local", "--quiet", "--output", str(output), *options]
    path = os.pathsep.join(str(tree / package) for package in PACKAGES)
    process = subprocess.Popen(command, env={**os.environ, "PYTHONPATH": path}, cwd=folder)
    _, status, usage = os.wait4(process.pid, 0)
    if status:
        raise subprocess.CalledProcessError(os.waitstatus_to_exitcode(status), command)
    with output.open("rb") as file:
        counts = Counter(orjson.loads(line)["op"] for line in file)
    return Run(usage.ru_utime + usage.ru_stime, usage.ru_maxrss << 10, dict(sorted(counts.items())))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--of", choices=KINDS, default=KINDS[0])
    parser.add_argument("--window", default="36500 days")
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--changes", type=int, default=1_000_000)
    parser.add_argument("--searches", type=int, default=1_000, help="3 or more")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--beside", type=Path, help="checkout of another version")
    args, options = parser.parse_known_args()
    options = ["--window", args.window, *options]
    trees = {"this version": Path(__file__).resolve().parents[1]}
    if args.beside is not None:
        trees["the other"] = args.beside.resolve()
    runs_by_tree: dict[str, list[Run]] = {name: [] for name in trees}
    with TemporaryDirectory() as name:
        folder = Path(name)
        write(folder, args.of, args.rows, args.changes, args.searches)
        for number in range(args.runs):
            for tree in list(trees) if number % 2 == 0 else list(reversed(trees)):
                runs_by_tree[tree].append(run(folder, trees[tree], options))
                print(f"{tree:12} {table_row(runs_by_tree[tree][-1:], args.rows + args.changes)}", flush=True)
    print(f"medians of {args.runs}, {args.of} {' '.join(options)}")
    for tree, runs in runs_by_tree.items():
        print(f"{tree:12} {table_row(runs, args.rows + args.changes)}")


def table_row(runs: list[Run], records: int) -> str:
    seconds = median(run.seconds for run in runs)
    memory = max(run.memory for run in runs)
    counts = ", ".join(f"{number:,} {op}" for op, number in runs[-1].counts.items())
    return f"{seconds:7.1f} s {records / seconds:9,.0f} records/s {memory / 1e6:6,.0f} MB; {counts}"


if __name__ == "__main__":
    main()
