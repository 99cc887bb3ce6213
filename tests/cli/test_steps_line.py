"""The progress line of a long analysis on a terminal disappears at the end."""

from __future__ import annotations

import io
from contextlib import redirect_stderr, suppress

import pytest

from skws.cli import terminal
from skws.cli.terminal import ProgressBar, StepsLine
from skws_schema.memory import OverBudgetError, StepBudget, watch_steps


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture(autouse=True)
def _clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """A quarter of a second passes with every report."""
    clock = iter(range(1, 10_000))
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setattr(terminal, "monotonic", lambda: next(clock) / 4)


def spend(steps: int, budget: StepBudget) -> None:
    with budget:
        for _ in range(steps):
            budget.spend()


def shown(steps: int, limit: int = 100_000, screen: io.StringIO | None = None) -> str:
    """What stands on a screen after some steps."""
    screen = screen or Terminal()
    with redirect_stderr(screen), watch_steps(StepsLine().watch), suppress(OverBudgetError):
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


def test_nothing_is_shown_beside_a_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ProgressBar, "running", 1)
    assert shown(6_000) == ""
