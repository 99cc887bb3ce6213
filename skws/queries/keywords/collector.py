"""Garbage collection for processes that hold a window of tuples."""

from __future__ import annotations

import gc


def expect_long_lived_objects() -> None:
    """Collect cycles rarely.

    A live window is hundreds of thousands of small objects without cycles;
    Python's default walks them again and again, a third of the engine's time.
    """
    gc.set_threshold(200_000, 20, 20)
