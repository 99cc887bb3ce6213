"""The search screen: typing, standing queries, results that follow, filter, detail, copy, export."""

from __future__ import annotations

import json
from pathlib import Path
from tempfile import TemporaryDirectory

import pyarrow.parquet as pq
from textual.widgets import Input, Static

from skws_tui.widgets.lines import FilterBox
from skws_tui.widgets.query_panel import AnalysisLines, QueryBox
from skws_windows.window import parse_window
from tests.tui.ui import QUERY, movies, opened, scenario, with_job


@scenario
async def test_a_typed_query_gives_its_results_as_the_stream_goes_on() -> None:
    async with opened(movies()) as driver:
        assert "No query yet" in driver.text()
        await driver.press(*"tarantino", "space", *"travolta", "enter")
        assert driver.app.view.queries == (QUERY,)
        assert "No result for these queries yet" in driver.text()
        await driver.advance(2)
        shown = driver.text()
        assert "Quentin Tarantino" in shown
        assert "John Travolta" in shown
        assert "[movie.mid = plays.mid]" in shown
        assert len(driver.search.results.listed) == 2


@scenario
async def test_keywords_are_coloured_apart_and_underlined() -> None:
    async with opened(movies(QUERY)) as driver:
        await driver.advance(2)
        found = {}
        for strip in driver.app.screen._compositor.render_strips():
            for segment in strip:
                if segment.text in {"Tarantino", "Travolta"} and segment.style is not None:
                    assert segment.style.underline
                    found[segment.text] = segment.style.color
        assert set(found) == {"Tarantino", "Travolta"}
        assert found["Tarantino"] != found["Travolta"]


@scenario
async def test_what_is_typed_is_read_with_counts_and_what_may_be_meant() -> None:
    async with opened(movies()) as driver:
        await driver.advance(2)
        await driver.write("tarantno uma")
        reading = str(driver.app.screen.query_one(AnalysisLines).render())
        assert "did you mean tarantino? (ctrl+d)" in reading
        assert "uma 1" in reading
        assert "of 769 live tuples" in reading
        await driver.press("ctrl+d")
        assert driver.search.box.value == "tarantino uma"


@scenario
async def test_tab_completes_from_the_words_of_live_tuples() -> None:
    async with opened(movies()) as driver:
        await driver.advance(2)
        await driver.write("uma travo")
        await driver.press("tab")
        assert driver.search.box.value == "uma travolta"


@scenario
async def test_a_query_that_cannot_be_read_is_told_and_stays_in_the_box() -> None:
    async with opened(movies()) as driver:
        await driver.write("studio:pixar")
        await driver.press("enter")
        assert driver.search.box.value == "studio:pixar"
        assert driver.app.view.queries == ()
        assert any("studio" in line.text and line.level == "error" for line in driver.app.view.log)


@scenario
async def test_several_queries_stand_and_each_can_be_looked_at_and_removed() -> None:
    async with opened(movies(QUERY)) as driver:
        await driver.advance(2)
        await driver.write("nolan bale")
        await driver.press("enter")
        listed = driver.search.results.listed
        assert {shown.result.query for shown in listed} == {QUERY, "nolan bale"}
        assert all(shown.result.snapshot for shown in listed if shown.result.query == "nolan bale")
        await driver.press("escape", "right_square_bracket")
        assert driver.search.bar.selected == QUERY
        assert {shown.result.query for shown in driver.search.results.listed} == {QUERY}
        await driver.press("x")
        assert driver.app.view.queries == ("nolan bale",)
        assert {shown.result.query for shown in driver.search.results.listed} == {"nolan bale"}


@scenario
async def test_ctrl_j_replaces_the_selected_query() -> None:
    async with opened(movies(QUERY)) as driver:
        await driver.press("escape", "right_square_bracket", "i")
        await driver.write("nolan bale")
        await driver.press("ctrl+j")
        assert driver.app.view.queries == ("nolan bale",)


@scenario
async def test_scrolling_stops_following_and_new_results_are_counted() -> None:
    async with opened(movies("clint OR nolan OR tarantino OR bale"), size=(80, 24)) as driver:
        await driver.advance(0.5)
        await driver.press("escape", "j", "j")
        looked_at = driver.search.results.selected
        assert looked_at is not None
        before = driver.text()
        await driver.advance(2)
        assert driver.search.results.selected is looked_at
        assert driver.search.results.unseen > 0
        assert f"{driver.search.results.unseen} new (g)" in driver.text()
        line = next(row for row in before.splitlines() if row.startswith("▌"))
        assert line in driver.text()
        await driver.press("g")
        assert driver.search.results.following
        assert driver.search.results.unseen == 0
        assert driver.search.results.scroll_offset.y == 0


@scenario
async def test_counts_beside_each_other_count_the_same_results() -> None:
    """Also when all that was listed has expired while something else was looked at."""
    now = [0.0]
    queries = ("clint", "nolan", "tarantino")
    short = movies(*queries, window=parse_window("300 days"))
    async with opened(short, size=(120, 24), clock=lambda: now[0]) as driver:
        for _ in range(8):
            await driver.advance(0.05)
        await driver.press("escape", "j", "j")
        assert not driver.search.results.following
        for _ in range(40):
            await driver.advance(0.05)
            now[0] += 1
            driver.app._tick()
            await driver.settle()
            listed, unseen = driver.search.results.listed, driver.search.results.unseen
            assert unseen <= len(listed)
            assert (f"{unseen} new (g)" in driver.text()) == (unseen > 0)
        now[0] += 10
        driver.app._tick()
        await driver.settle()
        found = {query.name: query.results for query in driver.metrics.queries}
        assert set(found) == set(queries)
        assert min(found.values()) > 0
        assert driver.search.results.listed == []
        shown = driver.text()
        assert f" all {sum(found.values())} " in shown
        assert all(f" {name}  {count}  " in shown for name, count in found.items())
        assert f"All {sum(found.values())} results of these queries have ended (769 tuples so far)." in shown
        assert "No result" not in shown
        assert "new (g)" not in shown
        await driver.press("]")
        assert f"All {found['clint']} results of 'clint' have ended" in driver.text()
        await driver.press("f5")
        await driver.advance(0.1)
        assert "tuples held" in driver.text()
        assert "live tuples" not in driver.text()


@scenario
async def test_what_is_exported_is_what_was_told() -> None:
    async with opened(movies("clint OR nolan OR tarantino OR bale")) as driver:
        await driver.advance(0.4)
        listed = len(driver.search.results.listed)
        await driver.press("escape", "ctrl+o")
        assert f"Export {listed} results to" in driver.text()
        await driver.advance(2)
        assert len(driver.app.view.results) > listed
        with TemporaryDirectory() as folder:
            driver.app.screen.query_one(Input).value = f"{folder}/r.jsonl"
            await driver.press("enter")
            assert len((Path(folder) / "r.jsonl").read_text().splitlines()) == listed
        assert any(line.text.startswith(f"{listed} results written") for line in driver.app.view.log)


@scenario
async def test_the_detail_shows_whole_rows_and_the_lifespan() -> None:
    async with opened(movies(QUERY)) as driver:
        await driver.advance(2)
        await driver.press("escape", "j", "enter")
        assert "alive, ends in" in driver.text()
        detail = str(driver.search.query_one("#detail-text", Static).render())
        assert "director{tarantino} - movie{} - plays{} - actor{travolta}" in detail
        assert "joined to movie:35 by movie.mid = plays.mid" in detail
        await driver.press("enter")
        assert "alive, ends in" not in driver.text()


@scenario
async def test_the_filter_narrows_and_escape_clears_it() -> None:
    async with opened(movies(QUERY)) as driver:
        await driver.advance(2)
        await driver.press("escape", "slash")
        await driver.write("jimmie")
        assert len(driver.search.results.listed) == 1
        await driver.press("enter", "escape")
        assert len(driver.search.results.listed) == 2
        assert driver.search.query_one(FilterBox).words == ""


@scenario
async def test_a_filter_without_a_match_says_so() -> None:
    async with opened(movies(QUERY)) as driver:
        await driver.advance(2)
        await driver.press("escape", "slash")
        await driver.write("nothing like it")
        assert "No result matches the filter" in driver.text()


@scenario
async def test_copying_gives_the_tree_or_the_json() -> None:
    async with opened(movies(QUERY)) as driver:
        await driver.advance(2)
        await driver.press("escape", "y")
        assert "└─ movie" in driver.app.clipboard
        await driver.press("Y")
        assert json.loads(driver.app.clipboard)["query"] == QUERY


@scenario
async def test_what_is_listed_can_be_exported_in_three_formats(tmp_path: Path) -> None:
    async with opened(movies(QUERY)) as driver:
        await driver.advance(2)
        for name in ("r.jsonl", "r.csv", "r.parquet"):
            await driver.press("escape", "ctrl+o")
            driver.app.screen.query_one(Input).value = str(tmp_path / name)
            await driver.press("enter")
        lines = (tmp_path / "r.jsonl").read_text().splitlines()
        assert [json.loads(line)["query"] for line in lines] == [QUERY, QUERY]
        assert len((tmp_path / "r.csv").read_text().splitlines()) >= 3
        assert pq.read_table(tmp_path / "r.parquet").num_rows == 2
        await driver.press("ctrl+o")
        driver.app.screen.query_one(Input).value = str(tmp_path / "r.docx")
        await driver.press("enter")
        assert "expected a name that ends in" in driver.app.view.log[-1].text


@scenario
async def test_history_is_walked_and_picked_from() -> None:
    async with opened(movies()) as driver:
        for text in ("nolan bale", QUERY):
            await driver.write(text)
            await driver.press("enter")
        await driver.press("up", "up")
        assert driver.search.box.value == "nolan bale"
        await driver.press("down", "down")
        assert driver.search.box.value == ""
        await driver.press("escape", "ctrl+r")
        await driver.write("nolan")
        await driver.press("enter")
        assert driver.search.box.value == "nolan bale"


@scenario
async def test_without_a_source_the_screen_says_what_to_do(tmp_path: Path) -> None:
    request = with_job(movies(), source="")
    async with opened(request) as driver:
        assert "start with --source or --replay" in driver.text()
        await driver.pilot.press(*"nolan", "enter")
        await driver.settle()
        assert driver.app.view.log[-1].level == "error"


@scenario
async def test_everything_needed_is_there_on_80_by_24() -> None:
    async with opened(movies(QUERY), size=(80, 24)) as driver:
        await driver.advance(2)
        rows = driver.text().splitlines()
        assert len(rows) == 24
        assert max(map(len, rows)) <= 80
        assert "skws · search" in rows[0]
        assert any("Quentin Tarantino" in row for row in rows)
        assert driver.app.screen.query_one(QueryBox).size.height == 1
        assert driver.app.screen.query_one("#detail").display is False
        await driver.press("escape", "enter")
        assert driver.app.screen.query_one("#detail").size.width >= 70


@scenario
async def test_markup_in_data_and_queries_is_shown_as_it_is() -> None:
    async with opened(movies("[red]nolan[/red]")) as driver:
        await driver.advance(2)
        assert "[red]nolan[/red]" in driver.text()
        assert isinstance(driver.app.screen.query_one("#notice"), Static)


@scenario
async def test_a_pattern_is_asked_for_behind_its_prefix_and_shows_labels() -> None:
    async with opened(movies()) as driver:
        await driver.write("pattern: movie m ; plays p where m.mid = p.mid and p:")
        assert "✗" in driver.text()
        await driver.write('"vincent"')
        assert "✗" not in driver.text()
        await driver.press("enter")
        await driver.advance(2)
        shown = driver.text()
        assert "m: movie" in shown
        assert "p: plays" in shown
        await driver.press("f4")
        assert "automaton: 2 states" in driver.text()
        assert "plays [:'vincent'] / p--> q1" in driver.text()
