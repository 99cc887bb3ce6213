"""Measures queries in constant memory: the time to decide, the memory over a long stream, and other engines.

Each run has its own process; other engines have their own environments, created when first needed.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from bench.bounded import decide
from bench.peers.environment import python_of, select_peers

_ROOT = Path(__file__).resolve().parents[2]
_FOUND = Path(sys.executable)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.bounded", description=__doc__)
    parser.add_argument("--records", type=int, default=10_000_000, help="length of the long stream")
    parser.add_argument("--sizes", default="300,600,3000,6000", help="records of the streams for all engines")
    parser.add_argument("--engines", default="duckdb,pathway", help="peers; '' for none")
    parser.add_argument("--limit", type=float, default=120, help="time limit of a peer, in seconds")
    parser.add_argument("--queries", type=int, default=200, help="queries of six streams to decide")
    args = parser.parse_args()
    middle, most, verdicts = decide.seconds(args.queries)
    print(f"decide six streams: median {middle:.3f} s, greatest {most:.3f} s, verdicts {verdicts}")
    print(f"{'engine':8} {'records':>10} {'seconds':>9} {'CPU s':>9} {'per CPU s':>10} {'MB':>7} results")
    for line in _run(_FOUND, "skws", args.records, max(1, args.records // 10), None):
        _show("skws", line)
    peers = select_peers(args.engines) if args.engines else ()
    for size in map(int, args.sizes.split(",")):
        for engine in ("skws", *peers):
            python = (
                _FOUND if engine == "skws" else python_of(engine, lambda text: print(text, file=sys.stderr))
            )
            lines = _run(python, engine, size, max(1, size // 6), args.limit)
            _show(engine, lines[-1] if lines else {"records": size})


def _run(python: Path, engine: str, count: int, interval: int, limit: float | None) -> list[dict[str, Any]]:
    """The output of a run; empty if it took longer than ``limit`` seconds."""
    command = [str(python), "-m", f"bench.bounded.{engine}_run", str(count), str(interval)]
    try:
        process = subprocess.run(
            command, cwd=_ROOT, capture_output=True, text=True, timeout=limit, check=True
        )
    except subprocess.TimeoutExpired:
        return []
    return [json.loads(line) for line in process.stdout.splitlines() if line.startswith("{")]


def _show(engine: str, line: dict[str, Any]) -> None:
    if "seconds" not in line:
        print(f"{engine:8} {line['records']:>10,} over the limit")
        return
    rate = line["records"] / line["cpu_seconds"]
    memory = line["resident_bytes"] / 1e6
    print(
        f"{engine:8} {line['records']:>10,} {line['seconds']:>9.2f} {line['cpu_seconds']:>9.2f} "
        f"{rate:>10,.0f} {memory:>7.1f} {line['results']}"
    )
    sys.stdout.flush()


if __name__ == "__main__":
    main()
