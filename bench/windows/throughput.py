"""Records per second compared with loops by hand, and the cost of overlapping windows."""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Final, cast

import numpy as np

from bench.windows.load import BATCH, MEAN, RISING, Found, best, processor_of, skws
from skws_schema.model import Row
from skws_windows.guards.letters import RowSource
from skws_windows.processor.panes import Aggregate

_PILING: Final = "every open when temp > 90 close when temp < 70"
_VARIANCE: Final = (Aggregate("variance", "temp"),)


def first_by_hand(rows: list[Row]) -> Found:
    """RISING as one would write it by hand: one window at a time, with a running mean."""
    windows: Found = []
    start, total, last_temp = -1, 0.0, None
    for i, temp in enumerate(cast("list[float]", [row[1] for row in rows])):
        if start >= 0:
            total += temp
            if temp < 70:
                windows.append((start, i, total / (i - start + 1)))
                start = -1
        elif last_temp is not None and temp > 90 and temp > last_temp:
            start, total = i, temp
        last_temp = temp
    return windows


def every_by_hand(rows: list[Row]) -> Found:
    """All windows of RISING, with means from differences of prefix sums."""
    windows: Found = []
    starts: list[tuple[int, float]] = []
    total, last_temp = 0.0, None
    for i, temp in enumerate(cast("list[float]", [row[1] for row in rows])):
        if last_temp is not None and temp > 90 and temp > last_temp:
            starts.append((i, total))
        total += temp
        if temp < 70:
            windows += [(s, i, (total - start_total) / (i - s + 1)) for s, start_total in starts]
            starts = []
        last_temp = temp
    return windows


def throughput(rows: list[Row], times: list[int], runs: int) -> Iterator[str]:
    """Records per second of the expression and of the loop, which must find the same windows."""
    for select, by_hand in (("first", first_by_hand), ("every", every_by_hand)):
        ours, seconds = best(partial(skws, f"{select} {RISING}", rows, times), runs)
        theirs, by_loop = best(partial(by_hand, rows), runs)
        _have_same(ours, theirs)
        yield (
            f"{select:>8}  {len(ours):>9,} windows  skws {len(rows) / seconds:>11,.0f} records/s"
            f"  by hand {len(rows) / by_loop:>11,.0f} records/s"
        )


def overlapping(count: int) -> Iterator[str]:
    """Cost of a record, and memory of a start and of a pane, with more and more overlapping windows."""
    for width in (1, 10, 100, 1_000, 10_000):
        rows: list[Row] = [("a", 50.0 if i % (width + 1) == width else 100.0) for i in range(count)]
        times = list(range(count))
        windows, seconds = best(partial(skws, _PILING, rows, times), 2)
        starts, start_size = _memory_use(rows[:width], times[:width], MEAN)
        panes, pane_size = _memory_use(rows[:width], times[:width], _VARIANCE)
        yield (
            f"{width:>8,} overlapping  {seconds / count * 1e6:>6.2f} us/record  {len(windows):>9,} windows"
            f"  {starts:>6,} starts {start_size / 1e3:>6,.0f} kB"
            f"  {panes:>6,} panes {pane_size / 1e3:>6,.0f} kB"
        )


def memory_over_time(count: int) -> Iterator[str]:
    """Memory after longer and longer streams with a hundred overlapping windows."""
    for size in (count // 16, count // 4, count):
        rows: list[Row] = [("a", 50.0 if i % 101 == 100 else 100.0) for i in range(size)]
        panes, pane_size = _memory_use(rows, list(range(size)), _VARIANCE)
        yield f"{size:>9,} records  {panes:>6,} panes {pane_size / 1e3:>6,.0f} kB"


def _memory_use(rows: list[Row], times: list[int], aggregates: Sequence[Aggregate]) -> tuple[int, int]:
    """The panes in the processor (or open starts, if the aggregates need no panes), and its bytes."""
    processor = processor_of(_PILING, aggregates)
    relation, clock = np.zeros(len(rows), dtype=np.int64), np.array(times, dtype=np.int64)
    tracemalloc.start()
    for begin in range(0, len(rows), BATCH):
        end = begin + BATCH
        for _ in processor.process_batch(RowSource(relation[begin:end], clock[begin:end], rows[begin:end])):
            pass
    size, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return processor.panes or processor.open_starts, size


def _have_same(ours: Found, theirs: Found) -> None:
    if [w[:2] for w in ours] != [w[:2] for w in theirs]:
        raise AssertionError("the windows differ from those by hand")
    worst = max((abs(a[2] - b[2]) for a, b in zip(ours, theirs, strict=True)), default=0.0)
    if worst > 1e-6:
        raise AssertionError(f"means differ by {worst}")
