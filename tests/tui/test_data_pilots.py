"""What a user sees of different data. Each test is a session, with what the screen shows after each step."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from skws_schema.yaml.load import load_schema
from skws_tui.services.request import UiRequest, live_job
from skws_windows.window import parse_window
from tests.tui.ui import QUERY, movies, opened, scenario, ward_request

FORUM = """
version: 1
window: none
relations:
  question: {attributes: {id: integer, title: text}, key: [id], table: true}
  answer: {attributes: {nr: integer, id: integer, body: text}, key: [nr], table: true}
joins: [answer.id = question.id]
"""


def forum(folder: Path, *queries: str) -> UiRequest:
    """A SQLite file: two questions, and an answer to each."""
    with closing(sqlite3.connect(folder / "forum.db")) as database, database:
        database.execute("CREATE TABLE question (id INTEGER PRIMARY KEY, title TEXT)")
        database.execute("CREATE TABLE answer (nr INTEGER PRIMARY KEY, id INTEGER, body TEXT)")
        database.execute("INSERT INTO question VALUES (1, 'Which neural networks?'), (2, 'What else?')")
        database.execute("INSERT INTO answer VALUES (1, 1, 'Ask a neural engineer.'), (2, 2, 'Nothing.')")
    (folder / "forum.yaml").write_text(FORUM)
    job = live_job(load_schema(folder / "forum.yaml"), f"sqlite:{folder / 'forum.db'}")
    return UiRequest(job, folder / "forum.yaml", queries, theme="skws-dark", restore=False, no_expiry=True)


@pytest.mark.parametrize("size", [(80, 24), (130, 40)])
@scenario
async def test_rows_without_times_are_searched_for_the_best_results(
    tmp_path: Path, size: tuple[int, int]
) -> None:
    async with opened(forum(tmp_path), size=size) as driver:
        await driver.advance(2)
        driver.shows("■ all read 4 rows 0 queries", part="StatusLine")
        driver.shows("2 relations with 4 rows", "Type words to search for")
        driver.hides("sort:", "rows/s", "from ")  # nothing to sort yet, and no time line

        await driver.press("f5")
        driver.shows("results found a second so far no query yet")
        await driver.press("f2")
        await driver.write("nural engineer")
        driver.shows("nural 0 · engineer 1 · did you mean neural? Tab")
        await driver.press("enter")
        await driver.advance(1)
        driver.shows(
            "No result for 'nural engineer' (4 rows so far).", "Try the suggested word: a, ↑, then Tab."
        )
        driver.shows("no row matches 'nural'; did you mean 'neural'?")
        await driver.press("up", "tab")
        await driver.pilot.press("ctrl+j")  # and the search has not answered yet
        await driver.settle()
        driver.shows("Searching 4 rows for 'neural engineer'.")
        await driver.advance(1)
        driver.shows(
            "all 1 ▸ neural engineer 1", "sort: best", "what size score", "Ask a neural engineer. 1 "
        )
        driver.hides("began", "not known", "time what", "Which neural networks?")
        driver.shows(
            "also: 1 row of question with 'neural' is joined to these results;",
            "question.title:neural finds it",
            part="#hint",
        )
        await driver.write("question.title:neural engineer")
        await driver.press("enter")
        await driver.advance(1)
        driver.shows("▸ question.title:neural engineer 1")
        driver.hides("also:", "finds it")

        await driver.press("f5")
        driver.shows("rows 4 read", "rows arriving a second so far all relations 0.0 4", "answer 0.0 2")
        driver.shows("no standing query: searches for the best results")
        driver.hides("event time", "no query yet")
        assert [line.split()[1] for line in driver.lines("#figures") if line.startswith("  rows ")] == ["4"]


@scenario
async def test_the_best_of_many_results_come_first_and_all_on_request() -> None:
    async with opened(movies(window=parse_window("none"), no_expiry=True)) as driver:
        await driver.advance(2)
        await driver.write("john OR man")
        await driver.press("enter")
        driver.shows(
            "▸ john OR man 20", "sort: best", "20 of 23; all: WORDS lists all", "▸ 2003-09-12 John 1 7.569"
        )
        driver.shows("rank 1 of those listed")
        await driver.press("escape", "j")
        driver.shows("▸ 1993-05-07 Don John 1 5.454", "rank 2 of those listed")
        await driver.press("a")
        await driver.write("all: john OR man")
        await driver.press("enter")
        driver.shows("▸ all: john OR man 23", "sort: newest", "1 query")
        driver.hides("of 23", "score")


@scenario
async def test_the_best_results_of_a_stream_have_ranks_scores_and_reasons() -> None:
    async with opened(movies(f"top 2: {QUERY}"), size=(120, 50)) as driver:
        await driver.advance(2)
        await driver.press("escape", "]")
        driver.shows(f"▸ top 2: {QUERY} 2", "sort: best", "score", "rank 1 of those listed")
        first, second = driver.lines("#results")
        assert float(first.split()[-1]) > float(second.split()[-1])
        await driver.press("j")
        driver.shows("rank 2 of those listed", "entered as number 2 of the best", "keywords")
        await driver.press("o")
        driver.shows("sort: newest")
        assert [line[12:60] for line in driver.lines("#results")] == [second[12:60], first[12:60]]


@scenario
async def test_windows_of_an_expression_are_drawn_below_their_results(tmp_path: Path) -> None:
    request = ward_request(tmp_path, "hopper", window="open when temp > 38 close when temp < 38 per patient")
    async with opened(request, size=(100, 30)) as driver:
        await driver.advance(2)
        driver.shows("windows 1 open, 0 ended lately 1970-01-01T00:00:00Z", "ann ", part="WindowDrawing")
        driver.shows("No result for 'hopper' yet")
        for _ in range(6):
            await driver.advance(1)
        driver.shows("windows 1 open, 1 ended lately", "bob ", "ann ", part="WindowDrawing")
        driver.shows("▸ all 1 hopper 1", "Grace Hopper")
        driver.hides("expired")


@scenario
async def test_a_replay_is_paused_moved_stepped_and_accelerated() -> None:
    async with opened(movies(QUERY)) as driver:
        await driver.press("escape")
        await driver.advance(0.3)
        driver.shows("● running 1985-06-14", "from 1971-12-23", "to 2023-10-20", "No result for")
        await driver.press("space")
        assert driver.lines("KeyLine") == [" paused"]
        driver.shows("‖ paused 1985-06-14", "(187 rows so far)", "PAUSED: space continues ─╯")
        await driver.advance(5)
        driver.shows("‖ paused 1985-06-14", "(187 rows so far)")
        await driver.press("space")
        assert driver.lines("KeyLine") == [" running"]

        await driver.press("at")
        driver.shows("Go to the day or time, such as 1994-10-14 or 2024-05-01 12:30:00: 1985-06-14")
        await driver.answer("1994-10-14")
        driver.shows("● running 1994-10-14", "▸ all 2")
        await driver.press("comma")
        driver.shows("‖ paused 1993-06-11", "No result for")
        await driver.press("full_stop")
        driver.shows("‖ paused 1994-10-14", "▸ all 2")
        await driver.press("right", "right", "right")
        driver.shows("‖ paused 1996-03-08")
        await driver.press("left", "left", "left", "left")
        driver.shows("‖ paused 1993-06-11")
        await driver.click("TimeLine", (60, 0))
        driver.shows("‖ paused 1999-08-06")

        await driver.press("space")
        await driver.advance(3)
        driver.shows("■ all read 2023-10-20", "▸ all 2")
        await driver.press("at")
        await driver.answer("yesterday")
        driver.shows("yesterday: expected a day or time")
        for time, shown in (("1994-10", "1993-06-11"), ("1980", "1979-08-15"), ("1994-10-14", "1994-10-14")):
            await driver.answer(time)
            driver.shows(shown, part="StatusLine")
            await driver.press("at")
        await driver.press("escape", "comma")
        for day in ("1975-01-01", "1976-01-01"):  # the reason in place of the list accepts keys, too
            await driver.press("at")
            await driver.answer(day)
            await driver.advance(1)
            driver.shows("No result for", "a add x remove")
        await driver.press("at")
        await driver.answer("1994-10-14")
        await driver.advance(1)
        driver.shows("▸ all 2", "⏎ open")

        await driver.press("space", "plus")
        driver.shows("● running ×2 1994-10-14")
        await driver.advance(5)
        driver.shows(
            "■ all read ×2 2023-10-20", "▸ all 2", "Quentin Tarantino … Pulp Fiction … John Travolta 5"
        )
        await driver.press("minus", "minus")
        driver.shows("■ all read ×0.5")
        for step, speed in ((1, "×1.26765e+30"), (-1, "×7.88861e-31")):  # a key that is held down
            for _ in range(1_200):
                driver.app.action_faster(step)
            await driver.settle()
            driver.shows(f"■ all read {speed}")


@scenario
async def test_a_wide_table_and_a_folder_of_tables_beside_a_stream(tmp_path: Path) -> None:
    (tmp_path / "shop").mkdir()
    (tmp_path / "shop" / "customer.csv").write_text("cid,name\n7,Ada\n8,Grace\n")
    (tmp_path / "shop" / "order.jsonl").write_text(
        '{"oid": 1, "cid": 7, "item": "lamp", "time": "2026-01-01"}\n'
    )
    (tmp_path / "shop" / "wide.jsonl").write_text('{"c1": "kettle", "time": "2026-01-01"}\n')
    columns = ", ".join(f"c{n}: text" for n in range(30))
    (tmp_path / "shop.yaml").write_text(
        "version: 1\nwindow: none\nrelations:\n"
        "  customer: {attributes: {cid: integer, name: text}, key: [cid], table: true}\n"
        "  order: {attributes: {oid: integer, cid: integer, item: text}, key: [oid]}\n"
        f"  wide: {{attributes: {{{columns}}}}}\n"
        "joins: [order.cid = customer.cid]\n"
    )
    job = live_job(load_schema(tmp_path / "shop.yaml"), str(tmp_path / "shop"))
    request = UiRequest(job, tmp_path / "shop.yaml", (), restore=False, no_expiry=True)
    async with opened(request) as driver:
        await driver.advance(2)
        driver.shows("3 relations with 4 rows", "customer 2 name", "order 1 item")
        driver.shows("wide 1 c0, c1, c2, c3, c4, c5, c6, c7, c8, c9, c10, c11, c12 and 17 more")
        await driver.write("lamp zzyzx")
        await driver.press("enter")
        await driver.advance(1)
        driver.shows("No result for 'lamp zzyzx' yet (4 rows so far).", "without 'zzyzx': lamp")
