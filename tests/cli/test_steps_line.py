"""The line on a terminal that shows the steps of long work."""

from __future__ import annotations

import io
import re
from contextlib import redirect_stderr, suppress
from itertools import count

import pytest

from skws.cli.terminal import ProgressBar, StepsLine
from skws.progress import Progress
from skws_schema.budgets import OverBudgetError, StepBudget, watch_steps


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


@pytest.mark.parametrize(("unit", "amount"), [("bytes", "1.5/3.0 MB"), ("rows", "1500000/3000000")])
def test_a_bar_shows_bytes_as_sizes(unit: str, amount: str) -> None:
    screen = Terminal()
    with redirect_stderr(screen), ProgressBar() as bar:
        bar.report(Progress("reading", 1_500_000, 3_000_000, unit))
    assert amount in re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", screen.getvalue())
