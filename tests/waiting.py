"""Waiting for another thread, process or server, with timeouts long enough for a busy machine."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

PATIENCE: Final = 400.0
"""The seconds after which a wait fails."""


def nap() -> None:
    time.sleep(0.02)


def until(
    done: Callable[[], object],
    step: Callable[[], object] = nap,
    state: Callable[[], object] = lambda: None,
) -> None:
    """Calls ``step`` until ``done`` returns true. Fails after PATIENCE seconds, and shows ``state``."""
    end = time.monotonic() + PATIENCE
    while not done():
        assert time.monotonic() < end, state()
        step()


def has_ended(process: int) -> bool:
    """True if a process has ended, even if its parent has not waited for it."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True
