"""Garbage collection for a process that must answer keys."""

from __future__ import annotations

import gc


def expect_short_pauses() -> None:
    """Collect little at a time, and all of it rarely: each collection holds up the whole process.

    What is loaded by now stays. Results and live tuples are many objects
    without cycles, which go without being collected.
    """
    gc.freeze()
    gc.set_threshold(2_000, 5, 100)
