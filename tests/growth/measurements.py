"""Measures the cost of a call in counted steps, and the memory it retains: the same on every machine.

A step is the execution of a line of the project's code; each iteration of a loop counts. Work within one
line, such as a copy of a list or a NumPy operation over a column, shows in the bytes that the line allocates.
"""

from __future__ import annotations

import gc
import sys
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType, FunctionType, ModuleType
from typing import Any, Final, NamedTuple

from tests.places import ROOT

_OURS: Final = tuple(
    f"{ROOT / folder}/"
    for folder in ("skws", "schema", "purging", "windows", "mesh", "patterns", "bounds", "tui")
)
LINEAR: Final = 2.5
"""From 2 N to 4 N a linear cost grows twice as much as from N to 2 N, a quadratic one four times.

The closer to 2, the smaller the quadratic part that is detected beside a linear one, and the N for it.
"""
_FEW_STEPS: Final = 200
_FEW_BYTES: Final = 100_000

Work = Callable[[], object]


class Cost(NamedTuple):
    """Executed lines, and the bytes that they allocated, including those freed at once."""

    steps: int
    allocated: int


def cost(work: Work) -> Cost:
    """The steps and allocated bytes of a call."""
    steps = allocated = in_use = 0
    traced_memory, reset_peak = tracemalloc.get_traced_memory, tracemalloc.reset_peak

    def trace(frame: FrameType, event: str, _argument: Any) -> Any:
        nonlocal steps, allocated, in_use
        if event == "line":  # one function: it runs for millions of lines
            steps += 1
            size, peak = traced_memory()
            if peak > in_use:
                allocated += peak - in_use
            in_use = size
            reset_peak()
        elif event == "call" and not frame.f_code.co_filename.startswith(_OURS):
            return None
        return trace

    tracer = sys.gettrace()
    with tracing():
        in_use, _ = traced_memory()
        reset_peak()
        sys.settrace(trace)
        try:
            work()
        finally:
            sys.settrace(tracer)
        _, peak = traced_memory()
    allocated += max(0, peak - in_use)
    return Cost(steps, allocated)


def faster_than_linear(prepared: Callable[[int], Work], n: int) -> str:
    """How the cost of ``prepared`` work grows from N to 2 N and 4 N; empty if it is linear."""
    prepared(n)()  # loading and one-time computations must not count for the first size
    costs = [cost(prepared(size)) for size in (n, 2 * n, 4 * n)]
    faults = []
    for measure, slack, (first, second, third) in zip(
        Cost._fields, (_FEW_STEPS, _FEW_BYTES), zip(*costs, strict=True), strict=True
    ):
        if third - second > LINEAR * max(second - first, 0) + slack:
            faults.append(f"{measure} for {n}, {2 * n}, {4 * n}: {first:,}, {second:,}, {third:,}")
    return "; ".join(faults)


def growth(case: Callable[[], Callable[[int], object]], n: int) -> float:
    """The growth of peak memory in bytes per round, from the second to the last of five times n rounds.

    ``case`` makes a round, given its number.
    """
    peaks = [0] * 5
    with tracing():
        run_round = case()
        for number in range(5 * n):
            run_round(number)
            size, _ = tracemalloc.get_traced_memory()
            peaks[number // n] = max(peaks[number // n], size)
    return (peaks[-1] - peaks[1]) / (3 * n)


@contextmanager
def tracing() -> Iterator[None]:
    gc.collect()
    tracemalloc.start(1)
    try:
        yield
    finally:
        tracemalloc.stop()


def reachable_objects(root: object) -> int:
    """The number of objects reachable from an object, except modules, classes and functions."""
    visited, pending = {id(root)}, [root]
    while pending:
        for referent in gc.get_referents(pending.pop()):
            if id(referent) not in visited and not isinstance(referent, type | ModuleType | FunctionType):
                visited.add(id(referent))
                pending.append(referent)
    return len(visited)
