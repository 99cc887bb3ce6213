"""Ctrl-C around Spark: held back while Java starts, then Python's own way of handling it again."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from threading import current_thread, main_thread


@contextmanager
def interrupts_deferred() -> Iterator[None]:
    """An interrupt inside is raised at the end; a second one at once.

    PySpark loses track of a Java that it has started and not yet heard from:
    interrupted there, it would leave that process running for ever. Afterwards
    the former handler is back in place of PySpark's, which talks to Java in
    the middle of whatever talks to Java; stopping the session cancels its jobs
    just as well.
    """
    former = signal.getsignal(signal.SIGINT)
    if current_thread() is not main_thread():
        yield
        return
    came = False

    def note(*_: object) -> None:
        nonlocal came
        if came:
            raise KeyboardInterrupt
        came = True

    if former is not signal.SIG_IGN:
        signal.signal(signal.SIGINT, note)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, former)
    if came:
        raise KeyboardInterrupt
