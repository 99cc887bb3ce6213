"""The streams of the bounded-memory paper's example, of any length.

Uses the standard library only, because other engines import it.

Each second has one tuple of S(a), T(b) or U(c), chosen at random. The query: S after T after U, ``a > b`` and
``0 < b < 5``; it counts every combination.
"""

from __future__ import annotations

import json
import random
import sys
from collections.abc import Iterator
from pathlib import Path
from time import perf_counter, process_time

SEED = 20
SECOND = 1_000_000


def records(count: int) -> Iterator[tuple[str, int, int]]:
    """(stream, value, time in seconds from 1)."""
    chance = random.Random(SEED)
    for time in range(1, count + 1):
        name = "stu"[int(chance.random() * 3)]
        yield name, int(chance.random() * (100 if name == "s" else 10)), time


class Meter:
    """Prints measurements as JSON lines: records so far, elapsed and processor seconds, memory in use."""

    def __init__(self) -> None:
        self._began, self._cpu = perf_counter(), process_time()

    def report(self, records: int, results: int) -> None:
        seconds = perf_counter() - self._began
        line = {
            "records": records,
            "seconds": seconds,
            "cpu_seconds": process_time() - self._cpu,
            "resident_bytes": resident(),
            "results": results,
        }
        print(json.dumps(line))
        sys.stdout.flush()


def resident() -> int:
    """Resident memory of this process in bytes; 0 if the system does not report it."""
    statm = Path("/proc/self/statm")
    return int(statm.read_text().split()[1]) * 4096 if statm.exists() else 0
