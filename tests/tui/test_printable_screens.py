"""No screen shows control characters of data, queries or files."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from rich.segment import Segment
from rich.text import Text
from textual.color import Color
from textual.events import Paste
from textual.widgets import Static

from skws_schema.yaml.load import load_schema
from skws_tui.error_boundary import Printable
from skws_tui.services.request import UiRequest, live_job
from skws_tui.services.user_files import SavedSession, save_session
from tests.cli.test_printable_output import CONTROLS, SCHEMA, assert_printable
from tests.tui.ui import opened, scenario


def request(folder: Path) -> UiRequest:
    path = folder / f"{CONTROLS.replace(chr(0x85), '')}.yaml"
    path.write_text(SCHEMA)
    rows = [
        {"relation": "user", "time": 1, "row": {"uid": 1, "name": f"ada {CONTROLS} lovelace", "at": 1}},
        {
            "relation": "post",
            "time": 2,
            "row": {"id": 1, "who": 1, "body": f"{CONTROLS}lamp{CONTROLS}\n{CONTROLS}", "at": 2},
        },
        {"relation": CONTROLS, "time": 2, "row": {}},
    ]
    (folder / "in.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    source = f"replay:{folder / 'in.jsonl'}?speed=1e9"
    job = live_job(load_schema(path), source)
    return UiRequest(job, path, (f"ada{CONTROLS} lamp", f'rank: "lamp{CONTROLS}" ada'))


@pytest.mark.check
@scenario
async def test_no_screen_shows_control_characters(tmp_path: Path) -> None:
    session = tmp_path / "session.json"
    save_session(SavedSession(history=[f"{CONTROLS}asked"], saved=[f"{CONTROLS}saved"]), session)
    async with opened(request(tmp_path), session_path=session) as driver:
        await driver.advance(1)
        assert "lamp" in driver.text()
        assert_printable(driver.text())
        for keys in (
            *(("escape", "j", "enter"), ("f4",), ("f5",), ("f6",), ("f3",), ("#", "x"), ("f2",), ("]",)),
            *(("ctrl+r",), ("escape",), ("slash", "l"), ("escape",), ("ctrl+s",), ("ctrl+o",), ("escape",)),
        ):
            await driver.press(*keys)
            await driver.advance(0.1)
            assert_printable(driver.text())
        driver.app.tell("error", f"told{CONTROLS}", shown=True)
        await driver.settle()
        assert "told" in driver.text()
        assert_printable(driver.text())
        driver.search.box.focus()
        for text in (
            f"nowhere:{CONTROLS}",
            f"pattern: {CONTROLS}",
            f"window {CONTROLS}: ada",
            f"{CONTROLS} lamp",
        ):
            driver.search.box.value = ""
            driver.app.screen.post_message(Paste(text))
            driver.search.box.value += text
            await driver.settle()
            assert_printable(driver.text())
            await driver.press("enter")
            assert_printable(driver.text())


@scenario
async def test_an_editor_of_a_file_with_control_characters_shows_none(tmp_path: Path) -> None:
    ui_request = request(tmp_path)
    ui_request.schema_path.write_text(SCHEMA + f"# {CONTROLS}\n")
    async with opened(ui_request) as driver:
        await driver.press("f3")
        assert_printable(driver.text())
        await driver.press("ctrl+s")
        assert_printable(driver.text())


@scenario
async def test_control_characters_are_removed_by_the_last_filter(tmp_path: Path) -> None:
    async with opened(request(tmp_path)) as driver:
        await driver.app.screen.query_one("#table").mount(Static(Text("over\x1b\u202e\x9blooked")))
        await driver.settle()
        assert "overlooked" in driver.text()
        assert_printable(driver.text())


def test_the_filter_leaves_printable_text_unchanged() -> None:
    line_filter, background = Printable(), Color(0, 0, 0)
    segments = [Segment("│ ▁▂█ 日本 🎬 é"), Segment("a\xa0b")]
    assert line_filter.apply(segments, background) == segments
    assert line_filter.apply([Segment(f"a{CONTROLS}b")], background) == [Segment("a[2J31mb")]
