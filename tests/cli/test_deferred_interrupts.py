"""An interrupt while Java starts is deferred until it has started; a second one is not."""

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


def screen_after(steps: int, limit: int = 100_000, screen: io.StringIO | None = None) -> str:
    """The output on a screen after some steps; each report takes a quarter of a second."""
    screen, ticks = screen or Terminal(), count(1)
    with redirect_stderr(screen):
        line = StepsLine(lambda: next(ticks) / 4)
        with watch_steps(line.watch), suppress(OverBudgetError):
            spend(steps, StepBudget(limit, "compiling the pattern"))
    return screen.getvalue()


def test_long_work_shows_a_line_and_clears_it() -> None:
    assert "\rcompiling the pattern: 4,096 of at most 100,000 steps\x1b[K" in screen_after(6_000)
    assert screen_after(6_000).endswith("\r\x1b[K")


def test_the_line_is_cleared_when_the_budget_is_exhausted() -> None:
    assert screen_after(6_000, 5_000).endswith("\r\x1b[K")


def test_short_work_shows_no_line() -> None:
    assert screen_after(2_000) == ""


def test_no_line_is_shown_without_a_capable_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    assert screen_after(6_000, screen=io.StringIO()) == ""
    monkeypatch.setenv("NO_COLOR", "1")
    assert screen_after(6_000) == ""


def test_no_line_is_shown_while_a_progress_bar_is() -> None:
    with redirect_stderr(Terminal()), ProgressBar() as bar:
        bar.report(Progress("reading", 1, 2))
        assert screen_after(6_000) == ""
