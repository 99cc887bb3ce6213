"""Garbage collection for processes that hold a window of tuples, and for tasks of Spark."""

from __future__ import annotations

import gc
from functools import cache


def expect_long_lived_objects() -> None:
    """Make garbage collections rare.

    A live window is hundreds of thousands of small objects without cycles.
    Python's defaults scan them repeatedly, which takes a third of the engine's time.
    """
    gc.set_threshold(200_000, 20, 20)


@cache
def freeze_loaded_objects() -> None:
    """Have collections pass over what is loaded now; once in a process.

    Spark's workers collect all garbage after each task. To look through the modules of skws, Arrow and NumPy
    took two thirds of the time of tasks that read 10,000 rows.
    """
    gc.freeze()
