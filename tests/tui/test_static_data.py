"""Data without a stream: no rates and no times, and hints how to search hidden results."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from textual.widgets import Input, Static

from skws.data.value_conversion import timestamp
from skws_schema.yaml.load import load_schema
from skws_tui.services.request import UiRequest, live_job
from skws_windows.window import MICROSECOND
from tests.tui.ui import QUERY, movies, opened, scenario

YAML = """
version: 1
window: none
relations:
  question: {attributes: {id: integer, title: text}, key: [id], table: true}
  answer: {attributes: {nr: integer, id: integer, body: text}, key: [nr], table: true}
joins: [answer.id = question.id]
"""


def forum(folder: Path, *queries: str) -> UiRequest:
    with closing(sqlite3.connect(folder / "forum.db")) as database, database:
        database.execute("CREATE TABLE question (id INTEGER PRIMARY KEY, title TEXT)")
        database.execute("CREATE TABLE answer (nr INTEGER PRIMARY KEY, id INTEGER, body TEXT)")
        database.execute("INSERT INTO question VALUES (1, 'Which neural networks?'), (2, 'What else?')")
        database.execute("INSERT INTO answer VALUES (1, 1, 'Ask a neural engineer.'), (2, 2, 'Nothing.')")
    (folder / "forum.yaml").write_text(YAML)
    job = live_job(load_schema(folder / "forum.yaml"), f"sqlite:{folder / 'forum.db'}")
    settings = {"restore": False, "no_expiry": True}
    return UiRequest(job, folder / "forum.yaml", queries, theme="skws-dark", **settings)


@pytest.mark.parametrize("size", [(80, 24), (130, 40)])
def test_a_hint_below_the_list_shows_how_to_search_hidden_results(
    tmp_path: Path, size: tuple[int, int]
) -> None:
    @scenario
    async def run() -> None:
        async with opened(forum(tmp_path, "neural engineer"), size=size) as driver:
            await driver.advance(2)
            text = " ".join(driver.text().replace("│", " ").split())
            assert "also: 1 row of question with 'neural' is joined to these results;" in text
            assert "question.title:neural finds it" in text
            await driver.write("question.title:neural engineer")
            await driver.press("enter")
            await driver.advance(1)
            assert len(driver.search.results.listed) == 1
            assert not driver.search.query_one("#hint", Static).display

    run()


@scenario
async def test_rows_without_times_have_no_time_columns(tmp_path: Path) -> None:
    async with opened(forum(tmp_path), size=(80, 24)) as driver:
        await driver.advance(2)
        assert "4 rows" in driver.text().splitlines()[0]
        assert "sort:" not in driver.text()  # nothing to sort yet
        await driver.write("engineer")
        await driver.press("enter")
        await driver.advance(1)
        text = driver.text()
        assert "sort: best" in text
        header_line = next(line for line in text.splitlines() if "what" in line and "score" in line)
        assert "time" not in header_line
        assert "began" not in text
        assert "not known" not in text
        await driver.press("f5")
        values_by_label = {
            line.split()[0]: line.split()[1:] for line in driver.text().splitlines() if line.split()
        }
        assert values_by_label["rows"][-1] != "0"
        assert "4 read" in driver.text()
        assert "event time" not in driver.text()
        assert values_by_label["answer"][:2] == ["0.0", "2"]
        assert "no standing query" in driver.text()
        assert "no query yet" not in driver.text()


@scenario
async def test_tables_count_as_rows_beside_a_stream(tmp_path: Path) -> None:
    (tmp_path / "shop").mkdir()
    (tmp_path / "shop" / "customer.csv").write_text("cid,name\n7,Ada\n8,Grace\n")
    (tmp_path / "shop" / "order.jsonl").write_text(
        '{"oid": 1, "cid": 7, "item": "lamp", "time": "2026-01-01"}\n'
    )
    (tmp_path / "shop.yaml").write_text(
        "version: 1\nwindow: none\nrelations:\n"
        "  customer: {attributes: {cid: integer, name: text}, key: [cid], table: true}\n"
        "  order: {attributes: {oid: integer, cid: integer, item: text}, key: [oid]}\n"
        "joins: [order.cid = customer.cid]\n"
    )
    job = live_job(load_schema(tmp_path / "shop.yaml"), str(tmp_path / "shop"))
    request = UiRequest(job, tmp_path / "shop.yaml", ("lamp zzyzx",), restore=False, no_expiry=True)
    async with opened(request, size=(80, 24)) as driver:
        await driver.advance(2)
        assert "No result for 'lamp zzyzx' yet (3 rows so far)." in driver.text()
        assert "without 'zzyzx': lamp" in driver.text()


@scenario
async def test_the_status_line_omits_what_does_not_fit(tmp_path: Path) -> None:
    name = "questions_on_artificial_intelligence"
    text = movies().schema_path.read_text().replace("name: movies", f"name: {name}")
    (tmp_path / "long.yaml").write_text(text)
    async with opened(movies(QUERY, path=tmp_path / "long.yaml"), size=(80, 24)) as driver:
        await driver.advance(0.5)
        line = driver.text().splitlines()[0]
        assert name in line
        assert "running" in line
        assert line.endswith("1996-10-04")  # and no part of the next field


@scenario
async def test_tab_leaves_the_box_although_the_list_is_empty() -> None:
    async with opened(movies("zzyzx")) as driver:
        await driver.advance(1)
        await driver.press("tab", "x")
        assert driver.app.view.queries == ()


@scenario
async def test_an_empty_list_of_a_pattern_has_a_suggestion() -> None:
    async with opened(movies('pattern: movie m ; plays p where m.mid = p.mid and p:"zzyzx"')) as driver:
        await driver.advance(3)
        text = driver.text()
        assert "No result for" in text
        assert "Try one of its parts alone, or a longer window" in text
        assert "fewer words" not in text


@scenario
async def test_a_replay_seeks_a_month_and_a_year() -> None:
    async with opened(movies(QUERY)) as driver:
        await driver.press("escape")
        for text, first_time, last_time in (
            ("1994-10", "1993-01-01", "1994-10-01"),
            ("1980", "1979-01-01", "1980-01-01"),
        ):
            await driver.press("at")
            driver.app.screen.query_one(Input).value = text
            await driver.press("enter")
            event_time = driver.metrics.event_time
            assert event_time is not None  # the time of the latest record until that day
            assert timestamp(first_time) < event_time * MICROSECOND <= timestamp(last_time), text
