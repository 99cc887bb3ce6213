"""What a user sees in different terminals, after faults, and at the next start, step by step."""

from __future__ import annotations

import json
import stat
from pathlib import Path

import pytest
from rich.text import Text
from textual.events import Paste
from textual.widgets import Static

from skws_schema.yaml.load import load_schema
from skws_tui.services.request import UiRequest, live_job
from skws_tui.services.user_files import SavedSession, faults_file, save_session
from tests.cli.test_printable_output import CONTROLS, SCHEMA, assert_printable
from tests.tui.ui import QUERY, movies, opened, scenario, until, with_job


@scenario
async def test_everything_fits_into_a_terminal_of_80_by_24(tmp_path: Path) -> None:
    name = "questions_on_artificial_intelligence"
    text = movies().schema_path.read_text().replace("name: movies", f"name: {name}")
    (tmp_path / "long.yaml").write_text(text)
    async with opened(movies(QUERY, path=tmp_path / "long.yaml"), size=(80, 24)) as driver:
        await driver.advance(0.5)
        status = driver.text().splitlines()[0]
        assert status.endswith("● running   1996-10-04")  # and no part of the rate, which does not fit
        assert status.startswith(f" skws  {name} ")
        await driver.advance(2)
        driver.shows("Quentin Tarantino · Pulp Fiction … John Travolta 4", "└ movie Pulp Fiction", "⏎ add")
        for keys in ((), ("escape",), ("f3",), ("f4",), ("f5",), ("f6",), ("f7",), ("f2",)):
            await driver.press(*keys)
            lines = driver.text().splitlines()
            assert len(lines) == 24
            assert max(map(len, lines)) <= 80
            assert " menu " in lines[-1]
            assert lines[-1].endswith(" quit")

        await driver.press("enter")  # every value, in place of the list
        driver.shows("joined to", "esc back ↑↓ scroll")
        driver.hides("time what size")
        assert len(driver.lines("#detail")) >= 12
        await driver.press("a", "escape")  # a visit to the query box
        driver.shows("esc back ↑↓ scroll")
        await driver.press("escape")
        driver.shows("time what size")
        await driver.pilot.resize_terminal(160, 50)
        await driver.press("enter")
        region = driver.search.query_one("#detail").region
        assert region.x > 60
        await driver.pilot.resize_terminal(80, 24)
        await driver.settle()
        region = driver.search.query_one("#detail").region
        assert (region.x, region.bottom <= 23) == (0, True)
        assert len(driver.text().splitlines()) == 24


@scenario
async def test_a_message_has_three_lines_at_most_until_the_next_key() -> None:
    async with opened(movies(), size=(80, 24)) as driver:
        await driver.write("the")
        await driver.press("enter")
        driver.shows("✗ no keyword is left: 'the' is a stop word; to search for it, put it in q… ─╯")
        assert driver.lines("KeyLine") == [
            " no keyword is left: 'the' is a stop word; to search for it, put it in quotes:",
            ' "the"',
        ]
        await driver.write(" matrix")
        driver.hides("is a stop word")
        assert driver.lines("KeyLine")[0].startswith(" ⏎ add")
        driver.app.tell("error", "the disk is full", shown=True)
        await driver.write(" x")
        assert driver.lines("KeyLine") == [" the disk is full"]

        for text, lines in (
            ("word " * 20, [" " + " ".join(["word"] * 15), " " + " ".join(["word"] * 5)]),
            ("w" * 40 + " " + "x" * 37, [" " + "w" * 40 + " " + "x" * 37]),  # no empty line below
            ("本" * 60, [" " + "本" * 39, " " + "本" * 21]),
        ):
            driver.app.tell("error", text, shown=True)
            await driver.settle()
            assert driver.lines("KeyLine") == lines
        for text in ("word " * 90, "本" * 200):
            driver.app.tell("error", text, shown=True)
            await driver.settle()
            assert len(driver.lines("KeyLine")) == 3
            assert driver.text().endswith("l: the whole message")
        await driver.press("a")
        driver.shows("l: the whole message")  # an error stays
        driver.app.tell("info", "done", shown=True)
        await driver.settle()
        driver.shows("done")
        await driver.press("b")
        driver.hides("done")


@scenario
async def test_the_next_start_continues_with_the_users_own_keys(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    keys = tmp_path / "skws" / "keys.yaml"
    keys.parent.mkdir()
    keys.write_text("remove-qury: x\n")
    session = tmp_path / "session.json"
    invalid = [
        "window nonsense: a",
        "window open when: x",
        "pattern: ((",
        "top 5 window x: a",
        "studio:x",
        "rank no: a",
    ]
    save_session(SavedSession([*invalid, QUERY], history=["a\x1b[31m\nb"]), session)
    request = movies(restore=True, theme=None)
    async with opened(request, session_path=session) as driver:
        await driver.advance(2)
        driver.shows(f"{QUERY} 2", "1 query")  # the others are refused
        await driver.press("up")
        driver.shows("a␛[31m b", part="SearchLine")
        await driver.press("f6")
        driver.shows("keys.yaml:1:1: no action 'remove-qury'; did you mean 'remove-query'?")
        assert sum(" error " in line for line in driver.lines("#log-lines")) == len(invalid) + 1
        await driver.press("f2")
        await driver.retype("nolan bale")
        await driver.press("enter")
        driver.shows("▸ nolan bale 3")
        await driver.press("escape", "t")
        driver.app.theme = "textual-light"
        await driver.settle()

    keys.write_text("remove-query: ctrl+x\ngo-metrics: m\n")
    async with opened(request, session_path=session) as driver:
        await driver.advance(2)
        driver.shows(f"{QUERY} 2 ▸ nolan bale 3")
        driver.shows("Christian Bale 4 director Christopher Nolan did 32 └ movie", part="#results")
        assert driver.app.theme == "textual-light"
        await driver.press("up")
        driver.shows("nolan bale", part="SearchLine")
        await driver.press("escape", "x")
        driver.shows("2 queries")
        await driver.press("ctrl+x")
        driver.shows("nolan bale: removed, u undoes it", "1 query")
        await driver.press("m")
        driver.shows("movies › metrics")


@scenario
async def test_without_a_source_the_schema_can_be_edited() -> None:
    async with opened(with_job(movies(), source="")) as driver:
        driver.shows("no source", "No source: start with --source or --replay. s edits the schema.")
        await driver.write("nolan")
        await driver.pilot.press("enter")
        await driver.settle()
        driver.shows("no source to search: start with --source or --replay", "nolan")
        await driver.pilot.press("f3", "ctrl+t")
        await driver.settle()
        driver.shows("nothing to infer from: the UI was opened without a source")
        await driver.pilot.press("ctrl+j")
        await driver.settle()
        driver.shows("no job is running that could use the schema")


@scenario
async def test_a_missing_source_is_reported_and_the_app_stays() -> None:
    async with opened(with_job(movies(QUERY), source="replay:nowhere.jsonl"), stepped=False) as driver:
        assert driver.app.job is not None
        driver.app.job.stop()
        await driver.settle()
        driver.shows(
            "✗ failed: l shows the log", "The search has failed:", "nowhere.jsonl", "Fix the cause and start"
        )
        await driver.press("f6")
        driver.shows("error", "nowhere.jsonl", "info the results so far are kept; quit with ctrl+q")


@scenario
async def test_a_fault_is_one_line_and_the_search_continues(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))

    def fail() -> None:
        raise ValueError("broken \x1b[31mon\u202e purpose")

    async with opened(movies(), faults=2) as driver:
        driver.app.set_timer(0.01, fail)
        await until(lambda: driver.app.faults.caught > 0, driver.settle)
        driver.shows(
            "unexpected ValueError: broken ␛[31mon� purpose; try again, or another query; details in"
        )
        driver.app.call_later(fail)
        await until(lambda: driver.app.faults.caught > 1, driver.settle)
        file_text = faults_file().read_text(encoding="utf-8")
        assert "Traceback" in file_text
        assert "\x1b" not in file_text
        assert stat.S_IMODE(faults_file().stat().st_mode) == 0o600
        await driver.press("f6")
        log = " ".join(driver.lines("#log-lines"))
        assert log.count("error") == 1  # the same fault is reported once
        assert "Traceback" not in log
        await driver.press("f2")
        await driver.write(QUERY)
        await driver.press("enter")
        await driver.advance(2)
        driver.shows(f"▸ {QUERY} 2")


@scenario
async def test_no_screen_shows_control_characters(tmp_path: Path) -> None:
    path = tmp_path / f"{CONTROLS.replace(chr(0x85), '')}.yaml"
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
    (tmp_path / "in.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    job = live_job(load_schema(path), f"replay:{tmp_path / 'in.jsonl'}?speed=1e9")
    request = UiRequest(job, path, (f"ada{CONTROLS} lamp", f'rank: "lamp{CONTROLS}" ada'))
    session = tmp_path / "session.json"
    save_session(SavedSession(history=[f"{CONTROLS}asked"], saved=[f"{CONTROLS}saved"]), session)
    async with opened(request, session_path=session) as driver:
        await driver.advance(1)
        driver.shows("lamp")
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
        driver.shows("told")
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

        await driver.app.screen.query_one("#table").mount(Static(Text("over\x1b\u202e\x9blooked")))
        await driver.settle()
        driver.shows("overlooked")  # a widget that does not make them visible is filtered
        assert_printable(driver.text())
        await driver.press("f3")
        driver.schema.editor.load_text(f"{SCHEMA}# {CONTROLS}\n")
        await driver.press("ctrl+s")
        assert_printable(driver.text())
