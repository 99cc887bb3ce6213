"""Records a second beside loops by hand, and what overlapping windows cost."""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterator
from functools import partial
from typing import cast

import numpy as np

from bench.windows.load import RISING, Found, best, processor_of, skws
from schema.model import Row
from windows.expressions.source import RowSource


def first_by_hand(rows: list[Row]) -> Found:
    """RISING as one would write it: one window at a time, its mean as it grows."""
    found: Found = []
    start, total, before = -1, 0.0, None
    for i, temp in enumerate(cast("list[float]", [row[1] for row in rows])):
        if start >= 0:
            total += temp
            if temp < 70:
                found.append((start, i, total / (i - start + 1)))
                start = -1
        elif before is not None and temp > 90 and temp > before:
            start, total = i, temp
        before = temp
    return found


def every_by_hand(rows: list[Row]) -> Found:
    """All windows of RISING, their means from differences of prefixes."""
    found: Found = []
    starts: list[tuple[int, float]] = []
    total, before = 0.0, None
    for i, temp in enumerate(cast("list[float]", [row[1] for row in rows])):
        if before is not None and temp > 90 and temp > before:
            starts.append((i, total))
        total += temp
        if temp < 70:
            found += [(s, i, (total - begun) / (i - s + 1)) for s, begun in starts]
            starts = []
        before = temp
    return found


def throughput(rows: list[Row], times: list[int], runs: int) -> Iterator[str]:
    """Records a second of the expression and of the loop; their windows are the same."""
    for select, by_hand in (("first", first_by_hand), ("every", every_by_hand)):
        ours, seconds = best(partial(skws, f"{select} {RISING}", rows, times), runs)
        theirs, by_loop = best(partial(by_hand, rows), runs)
        _same(ours, theirs)
        yield (
            f"{select:>8}  {len(ours):>9,} windows  skws {len(rows) / seconds:>11,.0f} records/s"
            f"  by hand {len(rows) / by_loop:>11,.0f} records/s"
        )


def overlapping(count: int) -> Iterator[str]:
    """Cost of a record and memory of a start, as more and more windows overlap."""
    text = "every open when temp > 90 close when temp < 70"
    for width in (1, 10, 100, 1_000, 10_000):
        rows: list[Row] = [("a", 50.0 if i % (width + 1) == width else 100.0) for i in range(count)]
        times = list(range(count))
        found, seconds = best(partial(skws, text, rows, times), 2)
        yield (
            f"{width:>8,} overlapping  {seconds / count * 1e6:>6.2f} us/record  {len(found):>9,} windows"
            f"  {_bytes_per_start(rows[:width], times[:width]):>5,.0f} bytes/start"
        )


def _bytes_per_start(rows: list[Row], times: list[int]) -> float:
    """What the processor holds while all windows are open."""
    processor = processor_of("every open when temp > 90 close when temp < 70")
    relation, clock = np.zeros(len(rows), dtype=np.int64), np.array(times, dtype=np.int64)
    tracemalloc.start()
    for _ in processor.process_batch(RowSource(relation, clock, rows)):
        pass
    held, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return held / processor.open_starts


def _same(ours: Found, theirs: Found) -> None:
    if [w[:2] for w in ours] != [w[:2] for w in theirs]:
        raise AssertionError("other windows than by hand")
    worst = max((abs(a[2] - b[2]) for a, b in zip(ours, theirs, strict=True)), default=0.0)
    if worst > 1e-6:
        raise AssertionError(f"means differ by {worst}")
