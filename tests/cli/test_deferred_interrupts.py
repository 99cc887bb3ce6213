"""Interrupts while Java starts wait for its end; a second one does not."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from threading import Thread

import pytest

from skws.spark.interrupts import interrupts_deferred


@pytest.fixture(autouse=True)
def listening() -> Iterator[None]:
    """Python's own handler, whatever the tests were started with."""
    former = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, former)


def interrupted(times: int) -> list[str]:
    """What is reached of a piece of work that is interrupted so often."""
    reached = ["start"]

    def work() -> None:
        with interrupts_deferred():
            for _ in range(times):
                signal.raise_signal(signal.SIGINT)
            reached.append("end")

    with pytest.raises(KeyboardInterrupt):
        work()
    return reached


def test_one_interrupt_waits_for_the_end() -> None:
    assert interrupted(times=1) == ["start", "end"]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_second_interrupt_ends_at_once() -> None:
    assert interrupted(times=2) == ["start"]


def test_the_former_handler_comes_back_in_place_of_anothers() -> None:
    with interrupts_deferred():
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_ignored_interrupts_stay_ignored() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with interrupts_deferred():
        signal.raise_signal(signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN


def test_other_threads_cannot_set_handlers_and_need_none() -> None:
    done = []

    def work() -> None:
        with interrupts_deferred():
            done.append(True)

    thread = Thread(target=work)
    thread.start()
    thread.join()
    assert done == [True]
