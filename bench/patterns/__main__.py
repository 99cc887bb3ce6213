"""``python -m bench.patterns``: compares engines, and measures the growth of update times."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from bench.patterns.engines import SKWS, Run, agree, compare, in_batches, peers
from bench.patterns.growth import by_kind, by_matches, by_window, delays
from bench.patterns.loads import EVENTS
from bench.peers.environment import python_of, select_peers
from skws.memory import expect_long_lived_objects

# The default runs take a minute or two, mostly to start engines.
_FEW = 5_000
_OFTEN = 3


def engines(args: argparse.Namespace) -> int:
    """Print the table of every load; returns 1 if engines disagree."""
    pythons = {
        name: python_of(name, _report) for name in (select_peers(args.engines) if args.engines else ())
    }
    own_pythons = {"core": args.core, "flink": args.flink}
    pythons |= {name: Path(python).absolute() for name, python in own_pythons.items() if python}
    events = args.events or (EVENTS if args.full else _FEW)
    repeat = args.repeat or (_OFTEN if args.full else 1)
    exit_code = 0
    for load, number, runs in compare([SKWS, *in_batches(), *peers(pythons)], events, repeat):
        print(f"\n{load.name}: {load.text}\n{number:,} events, window {load.window:,} tuples")
        print(f"{'engine':20} {'matches':>10} {'CPU s':>8} {'wall s':>8} {'events/CPU s':>13} {'to skws':>8}")
        for run in runs:
            print(_line(run, number, runs[0]))
        if not agree(runs):
            print("the engines disagree", file=sys.stderr)
            exit_code = 1
    return exit_code


def _line(run: Run, number: int, ours: Run) -> str:
    if run.matches is None or run.cpu is None or run.wall is None or ours.cpu is None:
        return f"{run.engine:20} {'cannot express it':>10}"
    return (
        f"{run.engine:20} {run.matches:>10,} {run.cpu:>8.2f} {run.wall:>8.2f} {number / run.cpu:>13,.0f} "
        f"{run.cpu / ours.cpu:>8.1f}"
    )


def growth(_: argparse.Namespace) -> int:
    expect_long_lived_objects()
    heading = f"{'load':8} {'window':>10} {'us/update':>10} {'matches/event':>20}"
    for title, points in (("by the window", by_window()), ("by the matches", by_matches())):
        print(f"\nupdates {title}\n{heading}")
        for point in points:
            print(f"{point.load:8} {point.window:>10,} {point.microseconds:>10.2f} {point.matches:>20,.1f}")
    print(f"\nupdates by the keys\n{'keys':16} {heading}")
    for kind, p in by_kind():
        print(f"{kind:16} {p.load:8} {p.window:>10,} {p.microseconds:>10.2f} {p.matches:>20,.1f}")
    print(f"\nenumeration\n{'window':>10} {'matches':>16} {'read':>10} {'ns to first':>12} {'ns each':>8}")
    for d in delays():
        print(f"{d.window:>10,} {d.matches:>16,} {d.enumerated:>10,} {d.first:>12,.0f} {d.each:>8.0f}")
    return 0


def _report(text: str) -> None:
    print(text, file=sys.stderr)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.patterns", description=__doc__)
    commands = parser.add_subparsers(required=True)
    engines_parser = commands.add_parser("engines", help="the loads by skws and by other engines")
    engines_parser.add_argument(
        "--engines", metavar="E,...", help="duckdb,pathway; each in a separate environment"
    )
    engines_parser.add_argument("--core", metavar="PYTHON", help="an interpreter (3.13) with pycer 0.1.6")
    engines_parser.add_argument(
        "--flink", metavar="PYTHON", help="an interpreter with apache-flink 2.3.0; and Java"
    )
    engines_parser.add_argument(
        "--full", action="store_true", help=f"{EVENTS:,} events, {_OFTEN} times: 20 minutes"
    )
    engines_parser.add_argument(
        "--events", type=int, help=f"the most events of each load (default: {_FEW:,})"
    )
    engines_parser.add_argument("--repeat", type=int, help="runs of each engine (default: 1)")
    engines_parser.set_defaults(run=engines)
    commands.add_parser("growth", help="updates by window and matches, enumeration").set_defaults(run=growth)
    args = parser.parse_args(arguments)
    print(f"load average {os.getloadavg()[0]:.1f} on {os.cpu_count()} processors", file=sys.stderr)
    status: int = args.run(args)
    return status


if __name__ == "__main__":
    sys.exit(main())
