"""Throughput of both engines on the paper's default load, beside reading the same replay alone.

Each run is a process of its own, so that its peak memory is its own too.
"""

from __future__ import annotations

import argparse
import resource
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median
from time import perf_counter

from bench.load import Load
from skws.engine.collector import expect_long_lived_objects
from skws.engine.columnar import ColumnarEngine
from skws.keywords import parse_query
from skws.plan import Plan
from skws.replay import BadRecordLog, Replay
from windows.window import parse_window

MODES = ("read", "match", "local", "spark1", "spark2")


def plan_of(load: Load) -> Plan:
    schema = load.schema()
    query = parse_query(load.query, schema)
    return Plan(schema, query, parse_window(schema.window), load.max_size)


def run(mode: str, path: Path) -> int:
    """One run; gives the number of results (0 where none are looked for)."""
    plan = plan_of(Load())
    replay = Replay.open(path, plan.schema)
    log = BadRecordLog()
    if mode == "read":
        return 0 * sum(1 for _ in replay.arrivals(log))
    if mode == "match":
        bitmap = plan.matcher.bitmap
        return 0 * sum(bitmap(r.relation, r.row) for r in replay.arrivals(log))
    if mode == "local":
        return sum(1 for _ in ColumnarEngine.of(plan).process_batches(replay.batches(log)))
    return run_spark(plan, replay, cores=int(mode[-1]))


def run_spark(plan: Plan, replay: Replay, cores: int) -> int:
    from skws.spark.batch import BatchRun  # noqa: PLC0415 - only where Spark is measured
    from skws.spark.session import start_session  # noqa: PLC0415

    session = start_session(f"local[{cores}]")
    with BatchRun(session, plan, replay) as batch:
        found = sum(1 for _ in batch.results())
    session.stop()
    return found


def child(mode: str, path: Path) -> None:
    expect_long_lived_objects()
    start = perf_counter()
    found = run(mode, path)
    seconds = perf_counter() - start
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    print(found, seconds, peak)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=int, default=18_000, help="length of the stream")
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--modes", nargs="+", choices=MODES, default=MODES)
    parser.add_argument("--child", nargs=2, metavar=("MODE", "PATH"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        child(options.child[0], Path(options.child[1]))
        return
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "load.jsonl"
        count = Load().write(path, options.seconds)
        print(f"{count:,} tuples, {path.stat().st_size / 1e6:.0f} MB of JSON lines")
        print(f"{'mode':>8} {'seconds':>8} {'tuples/s':>10} {'results':>8} {'peak MB':>8}")
        for mode in options.modes:
            measure(mode, path, count, options.repeat)


def measure(mode: str, path: Path, count: int, repeat: int) -> None:
    command = [sys.executable, "-m", "bench.throughput", "--child", mode, str(path)]
    runs = []
    for _ in range(repeat):
        told = subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()
        runs.append((float(told[1]), int(told[0]), int(told[2])))
    seconds = median(r[0] for r in runs)
    peak = max(r[2] for r in runs) / 1024
    print(f"{mode:>8} {seconds:>8.2f} {count / seconds:>10,.0f} {runs[0][1]:>8} {peak:>8.0f}")


if __name__ == "__main__":
    main()
