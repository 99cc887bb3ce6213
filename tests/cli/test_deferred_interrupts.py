"""Interrupts while Java starts wait for its end; a second one does not."""

from __future__ import annotations

import io
import signal
from collections.abc import Iterator
from contextlib import redirect_stderr, suppress
from itertools import count
from threading import Thread

import pytest

from skws.cli.terminal import ProgressBar, StepsLine
from skws.progress import Progress
from skws.spark.spark_session import interrupts_deferred
from skws_schema.budgets import OverBudgetError, StepBudget, watch_steps


@pytest.fixture(autouse=True)
def listening() -> Iterator[None]:
    """Python's own handler, whatever the tests were started with."""
    handler = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, handler)


def interrupted(times: int) -> list[str]:
    """What is reached of a piece of work that is interrupted so often."""
    steps = ["start"]

    def work() -> None:
        with interrupts_deferred():
            for _ in range(times):
                signal.raise_signal(signal.SIGINT)
            steps.append("end")

    with pytest.raises(KeyboardInterrupt):
        work()
    return steps


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
    calls = []

    def work() -> None:
        with interrupts_deferred():
            calls.append(True)

    thread = Thread(target=work)
    thread.start()
    thread.join()
    assert calls == [True]


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture(autouse=True)
def _colors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)


def spend(steps: int, budget: StepBudget) -> None:
    with budget:
        for _ in range(steps):
            budget.spend()


def shown(steps: int, limit: int = 100_000, screen: io.StringIO | None = None) -> str:
    """What stands on a screen after some steps; a quarter of a second passes with every report."""
    screen, ticks = screen or Terminal(), count(1)
    with redirect_stderr(screen):
        line = StepsLine(lambda: next(ticks) / 4)
        with watch_steps(line.watch), suppress(OverBudgetError):
            spend(steps, StepBudget(limit, "compiling the pattern"))
    return screen.getvalue()


def test_what_takes_long_is_shown_and_taken_away() -> None:
    assert "\rcompiling the pattern: 4,096 of at most 100,000 steps\x1b[K" in shown(6_000)
    assert shown(6_000).endswith("\r\x1b[K")


def test_the_line_goes_when_the_budget_is_spent() -> None:
    assert shown(6_000, 5_000).endswith("\r\x1b[K")


def test_nothing_is_shown_of_what_is_soon_done() -> None:
    assert shown(2_000) == ""


def test_nothing_is_shown_off_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    assert shown(6_000, screen=io.StringIO()) == ""
    monkeypatch.setenv("NO_COLOR", "1")
    assert shown(6_000) == ""


def test_nothing_is_shown_beside_a_bar() -> None:
    with redirect_stderr(Terminal()), ProgressBar() as bar:
        bar.report(Progress("reading", 1, 2))
        assert shown(6_000) == ""
