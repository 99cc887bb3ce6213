"""Whatever is typed or pressed, nothing breaks: the app answers, and the fence has caught nothing."""

from __future__ import annotations

import random

from tests.strategies import seeds
from tests.tui.ui import QUERY, movies, opened, scenario

PIECES = (
    "tarantino", "uma", "the", "studio:", "actor:", "actor.name:", "movie.mid", "released:", "\x1b[31m",
    "界", "rank", "rank:", " top 3:", "top 99999999999:", "pattern:", "pattern select", "window",
    "window 1 hour:", "open when", "close when", "per", "half-life", "group:", " where ", " ; ",
    "m.mid = p.mid", "movie m", '"', "(", ")", "[", "]", "{", "*", "?", "~", "~9", "-", "+", "!", "<", ">",
    "=", "..", ":", ",", "\\", "/", " OR ", " AND ", " ", "  ", "0", "1e999", "-1", "٣", "\u202e", "\ud800",
    "%s", "{0}", "[b]", "'", "`", "$",
)  # fmt: skip
KEYS = (
    "escape", "enter", "space", "tab", "shift+tab", "up", "down", "left", "right", "home", "end", "j", "k",
    "g", "pageup", "pagedown", "slash", "a", "x", "u", "o", "t", "e", "r", "y", "Y", "left_square_bracket",
    "right_square_bracket", "at", "comma", "full_stop", "s", "n", "m", "l", "question_mark", "f1", "f2",
    "f3", "f4", "f5", "f6", "plus", "minus", "ctrl+r", "ctrl+s", "ctrl+j", "ctrl+z", "ctrl+t", "ctrl+d",
    "backspace",
)  # fmt: skip


@seeds(1, 3)
def test_any_text_can_be_typed_and_entered(seed: int) -> None:
    @scenario
    async def run() -> None:
        dice = random.Random(seed)
        async with opened(movies(QUERY), size=(80, 24)) as driver:
            await driver.advance(2)
            for _ in range(40):
                driver.search.box.focus()
                driver.search.box.value = "".join(dice.choices(PIECES, k=dice.randint(1, 8)))
                await driver.settle()
                await driver.press(dice.choice(("enter", "tab", "ctrl+j", "ctrl+s")))
            driver.search.box.focus()
            driver.search.box.value = "nolan bale"
            await driver.press("enter")
            assert "nolan bale" in driver.app.view.queries

    run()


@seeds(1, 3)
def test_any_key_can_be_pressed_anywhere(seed: int) -> None:
    @scenario
    async def run() -> None:
        dice = random.Random(seed)
        async with opened(
            movies(QUERY, "nolan bale"), size=dice.choice([(80, 24), (140, 40), (40, 12)])
        ) as driver:
            for _ in range(150):
                await driver.press(dice.choice(KEYS))
                await driver.advance(0.02)
            assert driver.app.is_running
            for _ in range(4):
                await driver.press("escape")
            await driver.press("f2")
            assert driver.app.current_mode == "search"

    run()
