"""Ctrl-C ends a job, whatever its thread is doing."""

from __future__ import annotations

import signal
from threading import Event, Lock

from skws.jobs.clock import ending_on_signals


def test_a_signal_may_come_while_a_lock_is_held() -> None:
    """Such as that of the event for which the job sleeps: it would wait for itself for ever."""
    lock, stopped = Lock(), Event()

    def stop() -> None:
        if lock.acquire(timeout=10):
            stopped.set()

    with ending_on_signals(stop) as signals:
        with lock:
            signal.raise_signal(signal.SIGINT)
        assert stopped.wait(5)
    assert signals == [signal.SIGINT]
