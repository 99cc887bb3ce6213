"""Garbage collection for processes that hold a window of tuples."""

from __future__ import annotations

import gc


def expect_long_lived_objects() -> None:
    """Make garbage collections rare.

    A live window is hundreds of thousands of small objects without cycles.
    Python's defaults scan them repeatedly, which takes a third of the engine's time.
    """
    gc.set_threshold(200_000, 20, 20)
