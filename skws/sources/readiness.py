"""Whether a file has something to read, without reading it."""

from __future__ import annotations

from math import ceil
from select import POLLIN, poll
from typing import Protocol


class Watchable(Protocol):
    def fileno(self) -> int: ...


def readable(file: int | Watchable, seconds: float) -> bool:
    """Waits for at most ``seconds`` until there is something to read, or nothing any more.

    By poll, since select refuses the descriptors from 1,024 on that a process with many files has.
    """
    watched = poll()
    watched.register(file, POLLIN)
    return bool(watched.poll(ceil(seconds * 1000)))
