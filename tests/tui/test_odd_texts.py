"""Odd texts in the query box, and any keys, are accepted or rejected, and the app continues."""

from __future__ import annotations

import asyncio
import random
import shutil
from pathlib import Path
from typing import Final

import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from skws.cli.demo import movie_files
from skws_tui.screens.search_screen import SearchScreen
from skws_tui.widgets.search_box import SearchBox
from tests.strategies import THOROUGH, examples, seeds
from tests.tui.ui import QUERY, Driver, movies, opened, scenario, until

PARTS: Final = (
    *("tarantino", "travolta", "movie", "plays", "actor", "name", "title", "mid", "time", "uma"),
    *"\"'()[]{}:;,.*+-~?=<>",
    "!=",
    *("OR", "AND", "and", "or", "not", "where", "window", "none", "select", "per", "open", "close", "when"),
    *("every", "longest", "match", "contains", "is", "null", "at", "most", "within", "records", "minutes"),
    *("0", "5", "1e308", "-1", "99999999999999999999", "0.1", "5 minutes", "2 tuples", "$1", "{2,3}", "[-1]"),
    *("movie m", "plays p", "m.mid", "movie.title", "m.mid = p.mid", "movie.year", "title:'a'"),
    *(
        "\x00",
        "\x1b[31m",
        "\n",
        "\t",
        "\u202e",
        "\u200b",
        "\u0301",
        "日本",
        "🎬",
        "\udc80",
        "ß",
        "İ",
        "a" * 300,
        "\ud800",
        "٣",
    ),
    *("studio:", "movie.mid", "%s", "{0}", "[b]", "..", "1e999", "~9", "\\", "/", "`", "!"),
)
KINDS: Final = {
    "keywords": ("", "-", '"'),
    "pattern": ("pattern: ", "pattern: movie m ; ", "pattern: movie m ; plays p where "),
    "select": ("pattern select m.title: ", "pattern select m.: ", "pattern select : "),
    "rank": ("rank: ", "rank relevance: ", "rank half-life 2 hours: ", "rank x half-life y: "),
    "top": ("top 5: ", "top 0: ", "top 5 group: ", "top 99999999999: ", "top 5 half-life 1 s window 1 h: "),
    "window": (
        "window open when year > 2000 close when year < 1990: ",
        "window match [year > 1]+: ",
        "window ",
        "window open when ",
        "window 5 minutes: ",
    ),
}  # fmt: skip


def texts(kind: str) -> st.SearchStrategy[str]:
    words = st.lists(
        st.one_of(st.sampled_from(PARTS), st.sampled_from(PARTS), st.text(max_size=4)), max_size=7
    )
    return st.builds(lambda start, more: start + " ".join(more), st.sampled_from(KINDS[kind]), words)


async def type_text(driver: Driver, text: str) -> None:
    """Analyze a text, run it as a query, and remove it; without the pauses of a pilot, which add up."""
    app, box = driver.app, driver.search.box
    search_box, lines_before = driver.search.query_one(SearchBox), app.view.logged
    box.value = text
    typed_query = box.value.strip()
    await until(lambda: search_box.analysis.text == box.value, moment)
    await box.action_submit()
    await until(
        lambda: not typed_query or app.view.logged > lines_before or typed_query in app.view.queries,
        driver.moment,
    )
    await driver.moment()
    box.value = ""
    for query in app.view.queries:
        app.remove_query(query)
    assert app.is_running


async def moment() -> None:
    await asyncio.sleep(0.001)


async def type_all(inputs: list[str], folder: Path) -> None:
    """Closing the app checks that its error boundary has caught nothing."""
    async with opened(movies(restore=True), session_path=folder / "session.json") as driver:
        for text in inputs:
            await type_text(driver, text)
        await until(lambda: not driver.app.view.queries, driver.moment)
        await driver.advance(2)
        for _ in range(3):
            await driver.press("up")
            assert not any(ord(c) < 32 or ord(c) == 127 for c in driver.text() if c != "\n")
        assert not driver.app.view.failure


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_odd_texts_are_accepted_or_rejected(kind: str, tmp_path: Path) -> None:
    @examples(3, suppress_health_check=list(HealthCheck), print_blob=False)
    @given(st.lists(texts(kind), min_size=25, max_size=25))
    def run(inputs: list[str]) -> None:
        asyncio.run(type_all(inputs, tmp_path))

    run()


KEYS: Final = (
    "escape", "enter", "space", "tab", "shift+tab", "up", "down", "left", "right", "home", "end", "j", "k",
    "g", "pageup", "pagedown", "slash", "a", "x", "u", "o", "t", "e", "r", "y", "Y", "left_square_bracket",
    "right_square_bracket", "at", "comma", "full_stop", "s", "n", "m", "l", "question_mark", "f1", "f2",
    "f3", "f4", "f5", "f6", "plus", "minus", "ctrl+r", "ctrl+s", "ctrl+j", "ctrl+z", "ctrl+t", "ctrl+d",
    "backspace",
)  # fmt: skip


@pytest.mark.slow
@pytest.mark.usefixtures("draws_changes")
@seeds(1, 3)
def test_any_key_can_be_pressed_anywhere(seed: int, tmp_path: Path) -> None:
    schema = Path(shutil.copy(movie_files()[0], tmp_path))  # a copy, as the editor may write it

    @scenario
    async def run() -> None:
        rng = random.Random(seed)
        async with opened(
            movies(QUERY, "nolan bale", path=schema), size=rng.choice([(80, 24), (140, 40), (40, 12)])
        ) as driver:
            for _ in range(150 if THOROUGH else 25):
                if rng.random() < 0.2 and isinstance(driver.app.screen, SearchScreen):
                    driver.search.box.value = " ".join(rng.choices(PARTS, k=rng.randint(1, 5)))
                    driver.search.box.focus()
                await driver.press(rng.choice(KEYS))
                await driver.advance(0.02)
            assert driver.app.is_running
            for _ in range(4):
                await driver.press("escape")
            await driver.press("f2")
            assert driver.app.current_mode == "search"

    run()
