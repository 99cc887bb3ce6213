"""Memory of the default engine as the window grows.

Run as ``python -m bench.memory``. The load is that of ``bench/load.py``, for twice the
length of each window. Bytes are those that Python and NumPy allocate, including rows,
after dead tuples are purged and at the peak.
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


class Memory(NamedTuple):
    """Live tuples, waiting partial results, the bytes of both, and the peak of bytes."""

    live: int
    waiting: int
    bytes: int
    peak: int


def measure(load: Load) -> Memory:
    """Memory at the end of a stream of two windows."""
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
        return Memory(engine.live_tuples, waiting, tracemalloc.get_traced_memory()[0], peak)
    finally:
        tracemalloc.stop()


def main() -> None:
    sys.stdout.write("window, min  live tuples   waiting  held MB  bytes a live tuple  peak MB\n")
    for minutes in MINUTES:
        live, waiting, size, peak = measure(replace(HEAVY, minutes=minutes))
        sys.stdout.write(
            f"{minutes:11} {live:12,} {waiting:9,} {size / 1e6:8.1f} {size / live:19,.0f} {peak / 1e6:8.1f}\n"
        )
        sys.stdout.flush()


if __name__ == "__main__":
    main()
