"""Compares window expressions with loops written by hand, and session windows with Spark's and Pathway's.

python -m bench.windows
python -m bench.windows --records 1000000 --only throughput

Figures are those of the fastest of several runs over rows in memory:
processor seconds in this process, elapsed seconds for other engines, which
read Parquet and use one core or more. All must find the same windows.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator

from bench.windows.files import files
from bench.windows.load import KEYS, readings
from bench.windows.sessions import sessions
from bench.windows.throughput import memory_over_time, overlapping, throughput
from skws.memory import expect_long_lived_objects


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--records", type=int, default=500_000)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--only", choices=("throughput", "overlapping", "memory", "files", "sessions"))
    options = parser.parse_args()
    expect_long_lived_objects()
    rows, times = readings(options.records)
    keyed = readings(options.records, KEYS)
    tables: dict[str, Callable[[], Iterator[str]]] = {
        "throughput": lambda: throughput(rows, times, options.runs),
        "overlapping": lambda: overlapping(options.records),
        "memory": lambda: memory_over_time(options.records),
        "files": lambda: files(rows, times, options.runs),
        "sessions": lambda: sessions(*keyed, options.runs),
    }
    for name, lines in tables.items():
        if options.only in (None, name):
            print(f"{name}, {options.records:,} records")
            for line in lines():
                print(f"  {line}", flush=True)


if __name__ == "__main__":
    main()
