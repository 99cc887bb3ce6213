"""Ctrl-C and SIGTERM end a live search between two micro-batches; a second one ends it at once."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import current_thread, main_thread
from types import FrameType


@contextmanager
def ending_on_signals(stop: Callable[[], None]) -> Iterator[list[int]]:
    """Inside, a signal calls ``stop``, and the next raises KeyboardInterrupt; gives those that came."""
    came: list[int] = []
    if current_thread() is not main_thread():
        yield came
        return

    def note(number: int, _: FrameType | None) -> None:
        came.append(number)
        if len(came) > 1:
            raise KeyboardInterrupt
        stop()

    former = {
        number: signal.getsignal(number)
        for number in (signal.SIGINT, signal.SIGTERM)
        if signal.getsignal(number) is not signal.SIG_IGN
    }
    for number in former:
        signal.signal(number, note)
    try:
        yield came
    finally:
        for number, handler in former.items():
            signal.signal(number, handler)
