"""What a user does with results. Each test is a session at the screen, with what it shows after each step."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from msgspec import structs

from skws.results.result import Result, ResultTuple
from skws_tui.widgets.result_pane import ResultList
from skws_windows.window import parse_window
from tests.tui.ui import QUERY, Driver, movies, opened, scenario

OF_FIVE = "Quentin Tarantino … Pulp Fiction … John Travolta 5"
OF_FOUR = "Quentin Tarantino · Pulp Fiction … John Travolta 4"
"""The two results of the query: an actor and another, a director and an actor."""


@scenario
async def test_results_are_read_sorted_and_filtered() -> None:
    async with opened(movies(QUERY), size=(120, 36)) as driver:
        await driver.advance(2)
        await driver.press("escape")
        driver.shows("time what size", f"▸ 1994-10-14 {OF_FIVE}", f"1994-10-14 {OF_FOUR}")
        driver.shows("why tarantino in actor, travolta in actor; 4 joins", "ends 2031-08-07, in 7 y 291 d")
        (of_tarantino,), (of_travolta,) = (colors_of(driver, word) for word in ("Tarantino", "Travolta"))
        assert of_tarantino != of_travolta

        for order, first, second in (
            ("oldest", OF_FOUR, OF_FIVE),
            ("smallest", OF_FOUR, OF_FIVE),
            ("newest", OF_FIVE, OF_FOUR),
        ):
            await driver.press("o")
            driver.shows(f"sort: {order}", f"▸ 1994-10-14 {first}", f"1994-10-14 {second}")

        await driver.press("r")
        driver.shows("Results whose keywords were found in", "actor 2 results", "director 1 result")
        await driver.write("director")
        await driver.press("enter")
        driver.shows("found in director · filtered to 1: esc clears", OF_FOUR)
        driver.hides(OF_FIVE)
        await driver.press("escape", "slash")
        driver.shows("filter results by words", OF_FIVE, OF_FOUR)
        await driver.write("jimmie")
        driver.shows("filtered to 1: esc clears", OF_FIVE)
        driver.hides(OF_FOUR)
        await driver.write("x")
        driver.shows("No result matches the filter. Escape clears it.")
        await driver.press("escape")
        driver.shows(OF_FIVE, OF_FOUR)
        driver.hides("jimmie", "No result")

        await driver.press("t")
        assert sum("└ plays" in line for line in driver.lines("#results")) == 3
        await driver.press("t")
        assert len(driver.lines("#results")) == 2

        await driver.click(ResultList, (10, 1))
        driver.shows(f"▸ 1994-10-14 {OF_FOUR}")
        await driver.press("y")
        driver.shows("result copied")
        assert driver.app.clipboard.splitlines()[:2] == [
            "director  Quentin Tarantino  did 21",
            "└ movie  Pulp Fiction  released 1994-10-14  mid 35  did 21",
        ]
        await driver.press("enter")
        driver.shows(
            "director director:21 ", "movie movie:35 ", "joined to director:21 by director.did = movie.did"
        )
        driver.shows(
            "network director{tarantino} - movie{} - plays{} - actor{travolta}", "esc back ↑↓ scroll"
        )
        await driver.press("a", "escape")  # a visit to the query box
        driver.shows("joined to director:21", "esc back ↑↓ scroll")
        await driver.press("escape")
        driver.hides("joined to")
        driver.shows("⏎ open")
        await driver.press("enter", "a", "tab", "escape")
        driver.hides("joined to")


@scenario
async def test_results_are_exported_as_they_are_listed(tmp_path: Path) -> None:
    async with opened(movies("clint OR nolan OR tarantino OR bale")) as driver:
        await driver.advance(0.5)
        driver.shows("▸ all 6", "▸ 1992-10-23 Quentin Tarantino 1")
        await driver.press("escape", "Y")
        driver.shows("result copied as JSON")
        assert json.loads(driver.app.clipboard)["query"] == "clint OR nolan OR tarantino OR bale"

        await driver.press("ctrl+o")
        driver.shows("Export 6 results to (.jsonl, .csv, .parquet): results.jsonl")
        await driver.advance(2)  # and another result arrives
        await driver.answer(str(tmp_path / "r.docx"))
        driver.shows("expected a name that ends in .jsonl, .csv, .parquet")
        await driver.answer("~no-such-user/r.csv")
        driver.shows("~no-such-user/r.csv: there is no such user")
        await driver.answer(str(tmp_path / "r.jsonl"))
        driver.shows("6 results written to")  # those that were listed when the user asked
        assert len((tmp_path / "r.jsonl").read_text().splitlines()) == 6

        for name in ("r.csv", "r.parquet"):
            await driver.press("ctrl+o")
            await driver.answer(str(tmp_path / name))
            driver.shows("7 results written to")
        assert (tmp_path / "r.csv").read_text().count("\n") == 8
        assert pq.read_table(tmp_path / "r.parquet").num_rows == 7
        await driver.press("slash", *"zzz", "enter", "ctrl+o", "enter")
        driver.shows("there are no results to export")


@scenario
async def test_the_list_follows_the_newest_result_until_the_user_moves() -> None:
    async with opened(movies("clint OR nolan OR tarantino OR bale"), size=(80, 24)) as driver:
        await driver.advance(0.5)
        driver.shows("▸ 1992-10-23 Quentin Tarantino", "FOLLOW")
        await driver.press("escape", "j", "j")
        driver.shows("▸ 1992-08-07 Clint Eastwood", "PAUSED ─╯")
        before = driver.lines("#results")
        await driver.advance(1)
        driver.shows("▸ 1992-08-07 Clint Eastwood", "PAUSED · ▲ 1 new: g")
        assert [line[:50] for line in driver.lines("#results")] == [line[:50] for line in before]
        await driver.press("g")
        driver.shows("▸ 2001-03-16 Christopher Nolan")
        driver.hides("PAUSED", "new: g")
        await driver.press("pagedown")
        driver.shows("▸ 1976-11-03 Billy Nolan")
        await driver.press("down", "down")
        driver.shows("▸ 1971-12-23 Clint Eastwood")
        await driver.press("home")
        driver.shows("▸ 2001-03-16 Christopher Nolan")


@scenario
async def test_ended_results_are_dimmed_counted_and_hidden() -> None:
    queries = ("clint", "nolan", "tarantino")
    request = movies(*queries, window=parse_window("300 days"))
    async with opened(request, size=(120, 24)) as driver:
        for _ in range(11):
            await driver.advance(0.05)
        driver.shows(
            "● running", "▸ all 5 clint 2 nolan 1 tarantino 2", "▸ 1992-10-23 tarantino Quentin Tarantino"
        )
        await driver.press("escape", "j", "j")
        driver.shows("▸ 1992-08-07 clint Clint Eastwood")
        for _ in range(40):
            await driver.advance(0.05)
            total, *counts = map(int, re.findall(r"\d+", driver.lines("QueryBar")[0]))
            assert total == sum(counts) == len(driver.lines("#results"))
        driver.shows(
            "■ all read", "▸ all 6 clint 2 nolan 2 tarantino 2", "PAUSED · ▲ 1 new: g", "▸ 1992-08-07 clint"
        )
        assert all(line.endswith("expired") for line in driver.lines("#results"))

        await driver.press("e")
        driver.shows(
            "▸ all 0 clint 0 nolan 0 tarantino 0", "All 6 results of these queries have ended. e lists them"
        )
        await driver.press("]")
        driver.shows("all 0 ▸ clint 0", "All 2 results of 'clint' have ended.")
        await driver.press("e")
        driver.shows("all 6 ▸ clint 2")
        assert len(driver.lines("#results")) == 2


@scenario
async def test_a_result_that_ends_remains_until_the_user_moves() -> None:
    async with opened(movies("clint", window=parse_window("300 days"))) as driver:
        await driver.press("escape", "e")
        driver.shows("▸ all 1 clint 1", "▸ 1971-12-23 Clint Eastwood", "live ones: e lists all")
        for _ in range(3):
            await driver.advance(0.05)
        driver.shows("▸ 1971-12-23 Clint Eastwood 1 expired", "ended expired, 1972-10-18")
        await driver.press("j")
        driver.shows("All 1 result of 'clint' have ended.")


@scenario
async def test_a_result_is_updated_retracted_and_expires_in_place() -> None:
    async with opened(movies(QUERY)) as driver:
        await driver.advance(2)
        await driver.press("escape")
        first, second = (row.result for row in driver.app.view.results.rows())
        for title in ("Cheap Fiction", "Dear Fiction"):
            driver.app.events.put(results=[with_title(first, title)])
            await driver.settle()
            (line,) = (line for line in driver.lines("#results") if "▸ 1994" in line)
            assert title in line
        driver.app.events.put(results=[structs.replace(second, op="-")])
        await driver.settle()
        driver.shows("John Travolta 4 gone")


def with_title(result: Result, title: str) -> Result:
    """An update of a result with another title of its film."""
    tuples = tuple(
        ResultTuple.given(
            member.relation,
            member.id,
            member.keywords,
            {name: title if name == "title" else value for name, value in member.row.items()},
        )
        for member in result.tuples
    )
    more: dict[str, Any] = {"_network": result.network, "_tuples": tuples, "_joins": result.joins}
    return structs.replace(result, op="~", at=result.start, **more)


def colors_of(driver: Driver, keyword: str) -> set[str]:
    """The colors of a keyword, which is underlined everywhere, on the screen."""
    styles = [
        segment.style
        for strip in driver.strips()
        for segment in strip
        if segment.text == keyword and segment.style
    ]
    assert all(style.underline for style in styles)
    return {style.color.name for style in styles if style.color}
