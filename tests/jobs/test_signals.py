"""Ctrl-C ends a job, whatever its thread is doing."""

from __future__ import annotations

import signal
from threading import Event, Lock

from skws.jobs.clock import ending_on_signals


def test_a_signal_handler_does_not_deadlock_on_a_held_lock() -> None:
    """For example the lock of the event that the job waits for: a handler would deadlock."""
    lock, stopped = Lock(), Event()

    def stop() -> None:
        if lock.acquire(timeout=10):
            stopped.set()

    with ending_on_signals(stop) as signals:
        with lock:
            signal.raise_signal(signal.SIGINT)
        assert stopped.wait(5)
    assert signals == [signal.SIGINT]
