"""Colors: every screen can be read in every theme, and in a terminal with sixteen colors or none."""

from __future__ import annotations

import pytest
from textual.color import Color

from skws_tui.themes import default_theme
from tests.strategies import some
from tests.tui.ui import QUERY, Driver, movies, opened, scenario, until


def test_a_limited_terminal_uses_its_own_sixteen_colors() -> None:
    assert default_theme({"TERM": "xterm"}) == "ansi-dark"
    assert default_theme({"TERM": "linux"}) == "ansi-dark"
    assert default_theme({"TERM": "xterm-256color"}) == "skws-dark"
    assert default_theme({"TERM": "xterm", "COLORTERM": "truecolor"}) == "skws-dark"
    assert default_theme({"TERM": "xterm-256color", "NO_COLOR": "1"}) == "ansi-dark"


@pytest.mark.slow
@some("theme", ["ansi-dark", "textual-light"], ["skws-dark"])
def test_sixteen_colors_use_the_terminal_background(theme: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Any named color may be that of the terminal's background."""
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm-16color")
    monkeypatch.delenv("COLORTERM", raising=False)

    @scenario
    async def check() -> None:
        async with opened(movies(QUERY, theme=theme), size=(80, 24)) as driver:
            await driver.advance(2)
            for key in ("f2", "f3", "f4", "f5", "f6", "question_mark"):
                await driver.press(key)
                assert screen_colors(driver) <= {"default"}, key

    check()


@pytest.mark.check
@scenario
async def test_borders_in_sixteen_colors_are_visible_on_every_background() -> None:
    async with opened(movies(QUERY, theme="ansi-dark"), size=(80, 24)) as driver:
        await driver.advance(2)
        for key in ("f2", "f3", "f4", "f5", "f6"):
            await driver.press(key)
            assert not screen_colors(driver) & {"black", "white", "bright_black", "bright_white"}, key


def screen_colors(driver: Driver) -> set[str]:
    """The colors of texts, borders and backgrounds, as they reach the terminal."""
    names: set[str] = set()
    for strip in driver.strips():
        segments = list(strip)
        for line_filter in driver.app.get_line_filters():
            segments = line_filter.apply(segments, Color(0, 0, 0)) if line_filter.enabled else segments
        styles = [segment.style for segment in segments if segment.style]
        names |= {color.name for style in styles for color in (style.color, style.bgcolor) if color}
    return names


SCREENS = (
    ("f3", "schema", "director"),
    ("f4", "networks", "director{tarantino}"),
    ("f5", "metrics", "769 read"),
    ("f6", "log", "watching"),
    ("f2", "search", "Tarantino"),
)


@pytest.mark.slow
@pytest.mark.parametrize("theme", ["textual-light", "ansi-dark", "ansi-light"])
def test_every_screen_is_drawn_in_light_and_in_sixteen_colors(theme: str) -> None:
    @scenario
    async def check() -> None:
        async with opened(movies(QUERY, theme=theme), size=(80, 24)) as driver:
            await driver.advance(2)
            for key, mode, text in SCREENS:
                await driver.press(key)
                assert driver.app.current_mode == mode
                # On a busy machine, the content of a screen appears after the keys are processed.
                await until(lambda text=text: text in driver.text(), driver.pilot.pause)  # type: ignore[misc]
                await until(lambda: driver.text().endswith("quit"), driver.pilot.pause)

    check()
