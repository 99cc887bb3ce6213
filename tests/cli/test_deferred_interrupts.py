"""An interrupt while Java starts is deferred until it has started; a second one is not."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from threading import Thread

import pytest

from skws.spark.spark_session import interrupts_deferred


@pytest.fixture(autouse=True)
def listening() -> Iterator[None]:
    """Installs Python's default handler, whichever handler the tests were started with."""
    handler = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, handler)


def steps_when_interrupted(times: int) -> list[str]:
    """The steps that a block reaches if it is interrupted ``times`` times."""
    steps = ["start"]

    def work() -> None:
        with interrupts_deferred():
            for _ in range(times):
                signal.raise_signal(signal.SIGINT)
            steps.append("end")

    with pytest.raises(KeyboardInterrupt):
        work()
    return steps


def test_an_interrupt_is_deferred_until_the_block_ends() -> None:
    assert steps_when_interrupted(times=1) == ["start", "end"]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_second_interrupt_is_raised_at_once() -> None:
    assert steps_when_interrupted(times=2) == ["start"]


def test_the_original_handler_replaces_one_set_inside_the_block() -> None:
    with interrupts_deferred():
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_ignored_interrupts_stay_ignored() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with interrupts_deferred():
        signal.raise_signal(signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN


def test_interrupts_are_not_deferred_in_other_threads() -> None:
    calls = []

    def work() -> None:
        with interrupts_deferred():
            calls.append(True)

    thread = Thread(target=work)
    thread.start()
    thread.join()
    assert calls == [True]
