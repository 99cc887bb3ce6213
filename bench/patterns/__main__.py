"""``python -m bench.patterns``: engines side by side, then the growth of updates."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from bench.patterns.growth import growths
from bench.patterns.loads import LOADS, WINDOW, Load

_CHILDREN = Path(__file__).parent / "children"


@dataclass(frozen=True, slots=True)
class Run:
    """What an engine found and how long it took; None where it cannot express the query."""

    engine: str
    matches: int | None
    seconds: float | None


def run(engine: str, command: list[str], load: Load, events: Path, folder: Path) -> Run:
    """The best of three runs, each in a process of its own."""
    best: Run | None = None
    for _ in range(3):
        arguments = [*command, load.name, str(events), str(WINDOW)]
        done = subprocess.run(arguments, check=True, capture_output=True, text=True, cwd=folder)
        said = json.loads(done.stdout.strip().splitlines()[-1])
        found = Run(engine, said["matches"], said["seconds"])
        if found.seconds is None:
            return found
        if best is None or best.seconds is None or found.seconds < best.seconds:
            best = found
    assert best is not None
    return best


def compare(events: int, peers: dict[str, str]) -> bool:
    """Print a table for each load; false if engines disagree."""
    agree = True
    for load in LOADS.values():
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            load.write(folder / "events", events)
            ours = [sys.executable, "-m", "bench.patterns.children.skws_engine"]
            runs = [run("skws", ours, load, folder / "events", Path.cwd())]
            for engine, python in peers.items():
                command = [python, str(_CHILDREN / f"{engine}_engine.py")]
                runs.append(run(engine, command, load, folder / "events", folder))
        print(f"\n{load.name}: {load.query}, {events:,} events, window {WINDOW:,} tuples")
        print(f"{'engine':10} {'matches':>10} {'seconds':>8} {'events/s':>10}")
        for found in runs:
            print(_line(found, events))
        counts = {found.matches for found in runs if found.matches is not None}
        agree = agree and len(counts) == 1
    return agree


def _line(found: Run, events: int) -> str:
    if found.matches is None or found.seconds is None:
        return f"{found.engine:10} {'cannot express it':>29}"
    return f"{found.engine:10} {found.matches:>10,} {found.seconds:>8.2f} {events / found.seconds:>10,.0f}"


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.patterns", description=__doc__)
    parser.add_argument("--events", type=int, default=100_000)
    parser.add_argument("--core", metavar="PYTHON", help="an interpreter with pycer")
    parser.add_argument("--pathway", metavar="PYTHON", help="an interpreter with pathway")
    parser.add_argument("--no-growth", action="store_true", help="only compare engines")
    given = parser.parse_args()
    peers = {name: python for name in ("core", "pathway") if (python := getattr(given, name))}
    agree = compare(given.events, peers)
    if not agree:
        print("\nthe engines disagree", file=sys.stderr)
    if not given.no_growth:
        print(f"\n{'load':8} {'window':>10} {'us/update':>10} {'matches of the last event':>26}")
        for growth in growths():
            print(f"{growth.load:8} {growth.window:>10,} {growth.microseconds:>10.2f} {growth.matches:>26,}")
    return 0 if agree else 1


if __name__ == "__main__":
    sys.exit(main())
