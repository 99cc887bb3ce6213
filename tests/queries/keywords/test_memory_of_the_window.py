"""What the default engine holds follows the live window, not the length of the stream."""

from __future__ import annotations

import gc
import tracemalloc
from itertools import islice

from bench.child import plan_of
from bench.load import Load
from skws.queries.keywords.columnar import ColumnarEngine


def held(minutes: int) -> tuple[int, int]:
    """Bytes and entries held after some minutes of stream with a window of one."""
    load = Load(relations=4, minutes=1, kwf=0.1, selectivity=50)
    engine = ColumnarEngine.of(plan_of(load))
    records = load.records(minutes * 60)
    gc.collect()
    tracemalloc.start()
    try:
        while step := list(islice(records, 240)):
            for _ in engine.process(step):
                pass
        gc.collect()
        return tracemalloc.get_traced_memory()[0], engine._operator.entries
    finally:
        tracemalloc.stop()


def test_a_longer_stream_takes_no_more_memory() -> None:
    (short, few), (long, many) = held(8), held(16)
    assert few > 240  # there is a window to hold
    assert many < 2 * few
    assert long < 1.5 * short
