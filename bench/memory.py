"""What the default engine holds as the window grows.

Run as ``python -m bench.memory``. The load of ``bench/load.py``, two windows
of stream for each window; bytes as Python and NumPy allocate them, rows
included, after dead tuples were purged and at their most in between.
"""

from __future__ import annotations

import gc
import sys
import tracemalloc
from dataclasses import replace
from typing import NamedTuple

from bench.child import plan_of
from bench.load import HEAVY, Load
from skws.data.batch import batched
from skws.queries.keywords.stream_engine import StreamEngine

MINUTES = (5, 10, 20, 40, 80)


class Held(NamedTuple):
    """Live tuples, partial results that wait, bytes of both, and the most bytes on the way."""

    live: int
    waiting: int
    bytes: int
    peak: int


def held(load: Load) -> Held:
    """What is held of two windows of stream at their end."""
    engine = StreamEngine.of(plan_of(load))
    gc.collect()
    tracemalloc.start()
    try:
        for _ in engine.process_batches(batched(load.records(2 * load.minutes * 60))):
            pass
        peak = tracemalloc.get_traced_memory()[1]
        engine.compact(engine.now)
        gc.collect()
        waiting = sum(use.waiting for use in engine.used())
        return Held(engine.live_tuples, waiting, tracemalloc.get_traced_memory()[0], peak)
    finally:
        tracemalloc.stop()


def main() -> None:
    sys.stdout.write("window, min  live tuples   waiting  held MB  bytes a live tuple  peak MB\n")
    for minutes in MINUTES:
        live, waiting, size, peak = held(replace(HEAVY, minutes=minutes))
        sys.stdout.write(
            f"{minutes:11} {live:12,} {waiting:9,} {size / 1e6:8.1f} {size / live:19,.0f} {peak / 1e6:8.1f}\n"
        )
        sys.stdout.flush()


if __name__ == "__main__":
    main()
