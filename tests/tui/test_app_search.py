"""The search screen: typing, standing queries, following results, filter, detail, copy, export."""

from __future__ import annotations

import json
import re
import sqlite3
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory

import pyarrow.parquet as pq
import pytest
from msgspec import structs
from textual.widgets import Input, Static

from skws.results.result import ResultTuple
from skws_schema.yaml.load import load_schema
from skws_tui.screens.dialogs import PromptScreen
from skws_tui.services.request import UiRequest, live_job
from skws_tui.services.result_drawing import TuplePhrase, sentence
from skws_tui.widgets.search_box import FilterBox, SearchBox, SearchLine
from skws_windows.window import parse_window
from tests.strategies import some
from tests.tui.ui import QUERY, movies, opened, scenario, with_job


@pytest.mark.check
@scenario
async def test_a_typed_query_shows_results_as_the_stream_continues() -> None:
    async with opened(movies()) as driver:
        assert "Type words to search for" in driver.text()
        await driver.press(*"tarantino", "space", *"travolta", "enter")
        assert driver.app.view.queries == (QUERY,)
        assert f"No result for {QUERY!r} yet" in driver.text()
        await driver.advance(2)
        screen_text = driver.text()
        assert "Quentin Tarantino" in screen_text
        assert "John Travolta" in screen_text
        assert "└ movie  Pulp Fiction" in screen_text
        assert "[movie.mid = plays.mid]" not in screen_text  # the only join of the two relations is not named
        assert len(driver.search.results.listed) == 2


@scenario
async def test_an_empty_list_names_the_keyword_without_matches() -> None:
    async with opened(movies("tarantino travlta", "pulp casino")) as driver:
        await driver.advance(2)
        screen_text = " ".join(driver.text().split())
        assert (
            "tarantino travlta: no row of the window matches 'travlta'; did you mean 'travolta'?"
            in screen_text
        )
        assert (
            "pulp casino: every keyword matches some row, but no tree of up to 5 joined rows" in screen_text
        )
        await driver.press("escape", "right_square_bracket")
        screen_text = " ".join(driver.text().split())
        assert "No result for 'tarantino travlta'" in screen_text
        assert "no row of the window matches 'travlta'; did you mean 'travolta'?" in screen_text


@scenario
async def test_the_reason_for_an_empty_list_follows_the_stream() -> None:
    async with opened(movies("pulp zzz")) as driver:
        await driver.advance(0.1)
        assert "no row of the window matches 'pulp'" in " ".join(driver.text().split())
        await driver.advance(2)
        screen_text = " ".join(driver.text().split())
        assert "matches 'zzz'" in screen_text
        assert "matches 'pulp'" not in screen_text


@scenario
async def test_rows_of_a_database_file_have_no_times(tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "shop.db")) as shop, shop:
        shop.execute("CREATE TABLE item (id INTEGER PRIMARY KEY, name TEXT)")
        shop.execute("INSERT INTO item VALUES (1, 'red kettle'), (2, 'lamp')")
    (tmp_path / "shop.yaml").write_text(
        "version: 1\nwindow: none\nrelations:\n"
        "  item: {attributes: {id: integer, name: text}, key: [id], table: true}\n"
    )
    job = live_job(load_schema(tmp_path / "shop.yaml"), f"sqlite:{tmp_path / 'shop.db'}")
    request = UiRequest(job, tmp_path / "shop.yaml", ("red kettel",), restore=False, theme="skws-dark")
    async with opened(request) as driver:
        await driver.advance(2)
        screen_text = driver.text()
        assert "No result for 'red kettel' (2 rows so far)." in screen_text
        assert "no row matches 'kettel'; did you mean 'kettle'?" in screen_text
        assert "Try the suggested word: a, ↑, then Tab." in screen_text
        assert not driver.search.time_line.display  # no row has a time
        assert "■ all read" in screen_text
        assert "rows/s" not in screen_text
        await driver.write("red kettle")
        await driver.press("ctrl+j")
        assert driver.app.view.queries == ("red kettle",)
        assert len(driver.search.results.listed) == 1


@scenario
async def test_only_some_searched_attributes_of_a_wide_schema_are_named(tmp_path: Path) -> None:
    columns = ", ".join(f"c{n}: text" for n in range(30))
    schema = tmp_path / "wide.yaml"
    schema.write_text(f"version: 1\nwindow: none\nrelations:\n  wide: {{attributes: {{{columns}}}}}\n")
    (tmp_path / "day.jsonl").write_text('{"relation": "wide", "time": 1, "row": {"c1": "kettle"}}\n')
    job = live_job(load_schema(schema), f"replay:{tmp_path / 'day.jsonl'}")
    async with opened(UiRequest(job, schema, (), restore=False, theme="skws-dark")) as driver:
        await driver.advance(1)
        screen_text = " ".join(driver.text().replace("│", " ").split())
        assert "wide 1 c0, c1, c2" in screen_text
        assert "c12 and 17 more" in screen_text


@scenario
async def test_the_start_screen_suggests_words_with_results_and_earlier_queries() -> None:
    async with opened(movies(), size=(80, 24)) as driver:
        driver.app.session.history.append("uma thurman")
        await driver.advance(2)
        screen_text = driver.text()
        assert "4 relations with 769 rows" in screen_text
        assert "uma thurman" in screen_text
        trials = driver.search.pane.start.trials
        assert len(trials) == 3
        for number, trial in enumerate(trials, start=1):
            await driver.press("escape", str(number))
            assert driver.app.view.queries == (trial.text,)
            assert driver.search.results.listed
            assert driver.app.focused is driver.search.results
            await driver.press("x")
            assert "Type words to search for" in driver.text()  # after the last query is removed


@scenario
async def test_a_running_query_is_not_reported_as_empty() -> None:
    async with opened(movies()) as driver:
        await driver.advance(2)
        await driver.write(QUERY)
        await driver.pilot.press("enter")
        await driver.settle()
        assert f"Searching 769 rows for {QUERY!r}." in driver.text()
        assert driver.search.results.row_width > 60  # the first lines have their final width
        await driver.advance(0)
        assert len(driver.search.results.listed) == 2
        assert "Searching" not in driver.text()


@scenario
async def test_keywords_have_separate_colors_and_are_underlined() -> None:
    async with opened(movies(QUERY)) as driver:
        await driver.advance(2)
        await driver.press("escape")
        styles_by_word = {}
        for strip in driver.strips():
            for segment in strip:
                if segment.text in {"Tarantino", "Travolta"} and segment.style is not None:
                    assert segment.style.underline
                    styles_by_word[segment.text] = segment.style.color
        assert set(styles_by_word) == {"Tarantino", "Travolta"}
        assert styles_by_word["Tarantino"] != styles_by_word["Travolta"]


@scenario
async def test_typed_text_is_analyzed_with_counts_and_suggestions() -> None:
    async with opened(movies()) as driver:
        await driver.advance(2)
        await driver.write("tarantno uma")
        box = driver.app.screen.query_one(SearchBox)
        assert "did you mean tarantino? Tab" in driver.text()
        assert "uma 1" in driver.text()
        assert box.analysis.tuples == 769
        await driver.press("tab")
        assert driver.search.box.value == "tarantino uma"


@scenario
async def test_tab_completes_words_of_live_tuples() -> None:
    async with opened(movies()) as driver:
        await driver.advance(2)
        await driver.write("uma travo")
        await driver.press("tab")
        assert driver.search.box.value == "uma travolta"


@scenario
async def test_an_invalid_query_is_reported_and_stays_in_the_box() -> None:
    async with opened(movies()) as driver:
        await driver.write("studio:pixar")
        await driver.press("enter")
        assert driver.search.box.value == "studio:pixar"
        assert driver.app.view.queries == ()
        assert any("studio" in line.text and line.level == "error" for line in driver.app.view.log)


@scenario
async def test_several_queries_run_and_each_can_be_viewed_and_removed() -> None:
    async with opened(movies(QUERY)) as driver:
        await driver.advance(2)
        await driver.write("nolan bale")
        await driver.press("enter")
        assert driver.search.bar.selected == "nolan bale"
        await driver.press("escape", "right_square_bracket")
        listed = driver.search.results.listed
        assert {row.result.query for row in listed} == {QUERY, "nolan bale"}
        assert all(row.result.snapshot for row in listed if row.result.query == "nolan bale")
        await driver.press("escape", "right_square_bracket")
        assert driver.search.bar.selected == QUERY
        assert {row.result.query for row in driver.search.results.listed} == {QUERY}
        await driver.press("x")
        assert driver.app.view.queries == ("nolan bale",)
        assert {row.result.query for row in driver.search.results.listed} == {"nolan bale"}


@scenario
async def test_ctrl_j_replaces_the_selected_query() -> None:
    async with opened(movies(QUERY)) as driver:
        await driver.press("escape", "right_square_bracket", "i")
        await driver.write("nolan bale")
        await driver.press("ctrl+j")
        assert driver.app.view.queries == ("nolan bale",)


@scenario
async def test_scrolling_pauses_following_and_new_results_are_counted() -> None:
    async with opened(movies("clint OR nolan OR tarantino OR bale"), size=(80, 24)) as driver:
        await driver.advance(0.5)
        await driver.press("escape", "j", "j")
        selected = driver.search.results.selected
        assert selected is not None
        before = driver.text()
        await driver.advance(2)
        assert driver.search.results.selected is selected
        assert driver.search.results.unseen > 0
        assert f"{driver.search.results.unseen} new: g" in driver.text()
        line = next(row for row in before.splitlines() if row.startswith("│▸"))
        assert line[:50] in driver.text()
        await driver.press("g")
        assert driver.search.results.following
        assert driver.search.results.unseen == 0
        assert driver.search.results.scroll_offset.y == 0


@scenario
async def test_counts_of_queries_are_those_of_the_list() -> None:
    """Even after all listed results have expired while another list was shown."""
    queries = ("clint", "nolan", "tarantino")
    request = movies(*queries, window=parse_window("300 days"))
    async with opened(request, size=(120, 24)) as driver:

        def shown_counts() -> list[int]:
            bar = driver.text().splitlines()[4]
            return [int(re.search(rf"{name} (\d+)", bar)[1]) for name in ("all", *queries)]  # type: ignore[index]

        for _ in range(8):
            await driver.advance(0.05)
        await driver.press("escape", "j", "j")
        assert not driver.search.results.following
        for _ in range(40):
            await driver.advance(0.05)
            driver.app.tick()
            await driver.settle()
            listed, unseen = driver.search.results.listed, driver.search.results.unseen
            assert unseen <= len(listed)
            assert (f"{unseen} new: g" in driver.text()) == (unseen > 0)
            counts = shown_counts()
            assert counts[0] == sum(counts[1:]) == len(listed)
        assert all(row.ending == "expired" for row in listed)
        assert counts[1:] == [query.results for query in driver.metrics.queries]
        await driver.press("e")
        assert driver.search.results.listed == []
        assert shown_counts() == [0, 0, 0, 0]
        assert f"All {len(listed)} results of these queries have ended." in driver.text()
        await driver.press("]")
        assert f"All {counts[1]} results of 'clint' have ended" in driver.text()
        await driver.press("e")
        assert len(driver.search.results.listed) == counts[1]


@scenario
async def test_ended_results_stay_in_a_list_of_live_ones_until_the_reader_moves() -> None:
    request = movies("clint", window=parse_window("300 days"))
    async with opened(request) as driver:
        await driver.press("escape", "e")
        rows_before: list[object] = []
        while not driver.app.view.results.counts(live=True):
            await driver.advance(0.02)
        rows_before = list(driver.search.results.listed)
        for _ in range(60):
            await driver.advance(0.05)
        rows = driver.search.results.listed
        assert set(map(id, rows_before)) <= set(map(id, rows))
        assert all(row.ending == "expired" for row in rows)
        assert "expired" in driver.text()
        await driver.press("j")
        assert driver.search.results.listed == []


@scenario
async def test_ended_results_are_dimmed_with_a_badge_and_never_struck_through() -> None:
    async with opened(movies(QUERY)) as driver:
        await driver.advance(2)
        await driver.press("escape")
        row = driver.search.results.listed[0]
        driver.app.view.results.take([structs.replace(row.result, op="-")])
        driver.app.view.results.expire(float("inf"))
        driver.search.refresh_view()
        await driver.settle()
        assert "gone" in driver.text()
        assert "expired" in driver.text()
        styles = [
            segment.style
            for strip in driver.strips()
            for segment in strip
            if "Tarantino" in segment.text or "Travolta" in segment.text
        ]
        assert styles
        assert all(style and not style.strike and not style.underline for style in styles)


@scenario
async def test_a_removed_query_can_be_restored() -> None:
    async with opened(movies(QUERY)) as driver:
        await driver.advance(2)
        await driver.press("escape")
        assert "undo" not in driver.text().splitlines()[-1]
        await driver.press("x")
        assert list(driver.app.view.queries) == []
        assert "u undo" in driver.text().splitlines()[-1]
        await driver.press("u")
        assert list(driver.app.view.queries) == [QUERY]
        assert len(driver.search.results.listed) == 2
        assert "undo" not in driver.text().splitlines()[-1]


@scenario
async def test_the_list_shows_the_present_version_of_an_updated_result() -> None:
    async with opened(movies(QUERY)) as driver:
        await driver.advance(2)
        row = driver.app.view.results.rows()[0]
        for title in ("Cheap Fiction", "Dear Fiction"):
            tuples = tuple(
                ResultTuple.given(
                    each.relation,
                    each.id,
                    each.keywords,
                    {name: title if name == "title" else value for name, value in each.row.items()},
                )
                for each in row.result.tuples
            )
            network, joins, at = row.result.network, row.result.joins, row.result.start
            update = structs.replace(
                row.result, op="~", at=at, _network=network, _tuples=tuples, _joins=joins
            )
            driver.app.events.put(results=[update])
            await driver.settle()
            (line,) = (line for line in driver.text().splitlines() if "▸ 1994" in line)
            assert title in line


@scenario
async def test_results_are_sorted_and_filtered_by_relation() -> None:
    async with opened(movies(QUERY)) as driver:
        await driver.advance(2)
        await driver.press("escape")
        sizes = []
        for order in ("newest", "oldest", "smallest"):
            assert f"sort: {order}" in driver.text()
            sizes.append([len(row.result.tuples) for row in driver.search.results.listed])
            await driver.press("o")
        assert sizes[0] == sizes[1][::-1]
        assert sizes[2] == sorted(sizes[2])
        assert "sort: newest" in driver.text()
        await driver.press("r")
        await driver.write("director")
        await driver.press("enter")
        (row,) = driver.search.results.listed
        assert "director" in {member.relation for member in row.result.tuples if member.keywords}
        assert "found in director" in driver.text()
        await driver.press("escape")
        assert len(driver.search.results.listed) == 2


@scenario
async def test_whole_trees_are_listed_on_request() -> None:
    async with opened(movies(QUERY), size=(120, 40)) as driver:
        await driver.advance(2)
        await driver.press("escape", "t")
        assert driver.text().count("└ plays") == 5  # three in the list, two in the detail
        await driver.press("t")
        assert driver.text().count("└ plays") == 2


@pytest.mark.check
@some("size", [(80, 24)], [(140, 40)])
@pytest.mark.parametrize("keys", [(), ("escape",), ("f3",), ("f4",), ("f5",), ("f6",)])
def test_the_key_line_fits_and_names_how_to_quit(size: tuple[int, int], keys: tuple[str, ...]) -> None:
    @scenario
    async def run() -> None:
        async with opened(movies(QUERY), size=size) as driver:
            await driver.press(*keys)
            line = driver.text().splitlines()[-1]
            assert len(line) <= size[0]
            assert line.rstrip().endswith("quit")
            assert " menu " in line

    run()


@scenario
async def test_the_placeholder_names_the_searched_attributes() -> None:
    async with opened(movies()) as driver:
        assert "words in director.name, movie.title, plays.role, actor.name" in driver.text()


@scenario
async def test_the_export_has_the_listed_results() -> None:
    async with opened(movies("clint OR nolan OR tarantino OR bale")) as driver:
        await driver.advance(0.4)
        listed_count = len(driver.search.results.listed)
        await driver.press("escape", "ctrl+o")
        assert f"Export {listed_count} results to" in driver.text()
        await driver.advance(2)
        assert len(driver.app.view.results) > listed_count
        with TemporaryDirectory() as folder:
            driver.app.screen.query_one(Input).value = f"{folder}/r.jsonl"
            await driver.press("enter")
            assert len((Path(folder) / "r.jsonl").read_text().splitlines()) == listed_count
        assert any(line.text.startswith(f"{listed_count} results written") for line in driver.app.view.log)


@scenario
async def test_the_detail_shows_whole_rows_and_the_lifespan() -> None:
    async with opened(movies(QUERY)) as driver:
        await driver.advance(2)
        await driver.press("escape", "j", "enter")
        assert "ends     2031-08-07, in" in driver.text()
        detail = str(driver.search.query_one("#detail-text", Static).render())
        assert "director{tarantino} - movie{} - plays{} - actor{travolta}" in " ".join(detail.split())
        assert "joined to movie:35 by movie.mid = plays.mid" in detail
        assert driver.search.pane.detail.has_focus
        await driver.press("escape")
        assert "joined to" not in driver.text()
        assert driver.search.results.has_focus


@scenario
async def test_escape_leaves_a_whole_result_after_a_visit_to_the_box() -> None:
    async with opened(movies(QUERY), size=(80, 24)) as driver:
        await driver.advance(2)
        await driver.press("escape", "j", "enter", "a", "escape")
        assert driver.search.pane.detail.has_focus
        await driver.press("escape")
        assert not driver.search.pane.whole
        await driver.press("enter", "a", "tab", "escape")
        assert not driver.search.pane.whole


@scenario
async def test_the_filter_applies_and_escape_clears_it() -> None:
    async with opened(movies(QUERY)) as driver:
        await driver.advance(2)
        await driver.press("escape", "slash")
        await driver.write("jimmie")
        assert len(driver.search.results.listed) == 1
        await driver.press("enter", "escape")
        assert len(driver.search.results.listed) == 2
        assert driver.search.query_one(FilterBox).words == ""


@scenario
async def test_a_filter_without_a_match_is_reported() -> None:
    async with opened(movies(QUERY)) as driver:
        await driver.advance(2)
        await driver.press("escape", "slash")
        await driver.write("nothing like it")
        assert "No result matches the filter" in driver.text()


@scenario
async def test_a_result_is_copied_as_tree_or_json() -> None:
    async with opened(movies(QUERY)) as driver:
        await driver.advance(2)
        await driver.press("escape", "y")
        assert "└ movie" in driver.app.clipboard
        await driver.press("Y")
        assert json.loads(driver.app.clipboard)["query"] == QUERY


@pytest.mark.check
@scenario
async def test_listed_results_can_be_exported_in_three_formats(tmp_path: Path) -> None:
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
        assert isinstance(driver.app.screen, PromptScreen)  # until the name is valid
        assert "expected a name that ends in" in driver.text()
        driver.app.screen.query_one(Input).value = "~no-such-user/r.csv"
        await driver.press("enter")
        assert "there is no such user" in driver.text()


@scenario
async def test_earlier_queries_are_recalled_and_selected() -> None:
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
async def test_without_a_source_the_screen_explains_what_to_do(tmp_path: Path) -> None:
    request = with_job(movies(), source="")
    async with opened(request) as driver:
        assert "start with --source or --replay" in driver.text()
        await driver.pilot.press(*"nolan", "enter")
        await driver.settle()
        assert driver.app.view.log[-1].level == "error"


@scenario
async def test_the_screen_is_complete_at_80_by_24() -> None:
    async with opened(movies(QUERY), size=(80, 24)) as driver:
        await driver.advance(2)
        rows = driver.text().splitlines()
        assert len(rows) == 24
        assert max(map(len, rows)) <= 80
        assert "skws  movies" in rows[0]
        assert any("Quentin Tarantino" in row for row in rows)
        assert driver.app.screen.query_one(SearchLine).size.height == 1
        assert any("└ movie" in row for row in rows)
        await driver.press("escape", "enter")
        assert driver.app.screen.query_one("#detail").size.height >= 12


@scenario
async def test_markup_in_data_and_queries_is_shown_unchanged() -> None:
    async with opened(movies("[red]nolan[/red]")) as driver:
        await driver.advance(2)
        assert "[red]nolan[/red]" in driver.text()
        assert not driver.app.view.queries


@scenario
async def test_a_pattern_follows_its_prefix_and_shows_labels() -> None:
    async with opened(movies()) as driver:
        await driver.write("pattern: movie m ; plays p where m.mid = p.mid and p:")
        assert "✗" in driver.text()
        await driver.write('"vincent"')
        assert "✗" not in driver.text()
        await driver.press("enter")
        await driver.advance(2)
        screen_text = driver.text()
        assert "m: Pulp Fiction · p: Vincent Vega" in screen_text
        assert "p: plays  Vincent Hanna" in screen_text
        await driver.press("f4")
        assert "automaton: 2 states" in driver.text()
        assert "plays [:'vincent'] / p--> q1" in driver.text()


@scenario
async def test_a_replay_can_seek_step_and_continue() -> None:
    async with opened(movies(QUERY), size=(120, 36)) as driver:
        await driver.press("escape")
        await driver.advance(0.3)
        assert "rows " in driver.text()
        assert "from 1971-12-23" in driver.text()
        assert "to   2023-10-20" in driver.text()
        await driver.press("at")
        driver.app.screen.query_one(Input).value = "1994-10-14"
        await driver.press("enter")
        assert driver.metrics.event_time == datetime(1994, 10, 14, tzinfo=UTC).timestamp()
        assert len(driver.search.results.listed) == 2
        await driver.press("comma")
        assert "paused" in driver.text()
        assert (driver.metrics.event_time or 0) < datetime(1994, 10, 14, tzinfo=UTC).timestamp()
        assert driver.search.results.listed == []
        await driver.press("full_stop")
        assert len(driver.search.results.listed) == 2
        before = driver.metrics.event_time or 0
        await driver.press("right", "right", "right")
        assert (driver.metrics.event_time or 0) > before
        await driver.press("left", "left", "left", "left")
        assert (driver.metrics.event_time or 0) < before
        await driver.pilot.click("TimeLine", offset=(60, 0))
        await driver.press("space")
        await driver.advance(3)
        assert driver.metrics.state == "ended"
        assert len(driver.search.results.listed) == 2
        await driver.press("at")
        driver.app.screen.query_one(Input).value = "yesterday"
        await driver.press("enter")
        assert "yesterday: expected a day or time" in driver.text()
        driver.app.screen.query_one(Input).value = "1994-10-14"
        await driver.press("enter")
        assert driver.metrics.event_time == datetime(1994, 10, 14, tzinfo=UTC).timestamp()
        await driver.press("comma")  # pauses
        for day in ("1975-01-01", "1976-01-01"):  # the reason shown instead of the list accepts keys, too
            await driver.press("at")
            driver.app.screen.query_one(Input).value = day
            await driver.press("enter")
            await driver.advance(1)
            assert driver.search.results.listed == []
            assert driver.search.pane.empty.has_focus
        await driver.press("at")
        driver.app.screen.query_one(Input).value = "1994-10-14"
        await driver.press("enter")
        await driver.advance(1)
        assert driver.search.results.has_focus


@scenario
async def test_a_new_query_is_selected_with_the_reason_if_it_is_empty() -> None:
    async with opened(movies(QUERY)) as driver:
        await driver.advance(2)
        await driver.write("nolan zzyzx")
        await driver.press("enter")
        assert driver.search.bar.selected == "nolan zzyzx"
        assert "matches 'zzyzx'" in " ".join(driver.text().split())
        await driver.write(QUERY)
        await driver.press("enter")  # the query exists already
        assert driver.search.bar.selected == QUERY


@scenario
async def test_the_query_of_the_selected_result_is_removed() -> None:
    async with opened(movies(QUERY, "nolan bale")) as driver:
        await driver.advance(2)
        await driver.press("escape", "G")
        assert driver.search.bar.selected is None
        selected = driver.search.results.selected
        assert selected is not None
        await driver.press("x")
        assert selected.query not in driver.app.view.queries
        assert len(driver.app.view.queries) == 1


@scenario
async def test_queries_that_do_not_fit_become_a_list_with_counts() -> None:
    queries = ("nolan bale", "clint", QUERY, "coppola pacino", "scorsese niro", "zzyzx")
    async with opened(movies(*queries), size=(80, 24)) as driver:
        await driver.advance(2)
        await driver.press("escape")
        assert "w lists 6 queries" in driver.text()
        await driver.press("w")
        assert re.search(rf"{QUERY} +2 results", driver.text())
        assert re.search(r"zzyzx +0 results", driver.text())
        await driver.write("travolta")
        await driver.press("enter")
        assert driver.search.bar.selected == QUERY
        assert f"▸ {QUERY} 2" in driver.text()
        await driver.press("w")
        await driver.write("all of them")
        await driver.press("enter")
        assert driver.search.bar.selected is None


@scenario
async def test_a_rejection_is_explained_at_the_box_and_covers_no_results() -> None:
    async with opened(movies(QUERY), size=(140, 30)) as driver:
        await driver.advance(2)
        before = driver.text().splitlines()[5:24]
        await driver.write("studio:x")
        await driver.press("enter")
        assert driver.search.box.value == "studio:x"
        screen_text = driver.text().splitlines()
        assert "✗ " in screen_text[3]
        assert "studio" in screen_text[3]
        assert "studio" not in screen_text[-1]
        driver.app.tell("error", "the disk is full", shown=True)
        await driver.settle()
        assert driver.text().splitlines()[-1].strip() == "the disk is full"
        assert driver.text().splitlines()[5:24] == before


@scenario
async def test_a_rejection_fits_one_line_with_the_caret_below() -> None:
    message = "no attribute 'price' to compare with; to search for the text itself, put quotes around it"
    async with opened(movies(), size=(140, 30)) as driver:
        await driver.write("travolta price<5")
        await driver.press("enter")
        assert f"✗ {message} ─" in driver.text().splitlines()[3]
        driver.app.tell("error", driver.app.view.log[-1].text, shown=True)
        await driver.settle()
        assert driver.text().splitlines()[-1].strip() == message
        assert "price<5" in driver.app.view.log[-1].text


@scenario
async def test_a_rejection_disappears_when_the_text_changes() -> None:
    async with opened(movies(), size=(80, 24)) as driver:
        await driver.write("the")
        await driver.press("enter")
        await driver.settle()
        assert "is a stop word" in driver.text().splitlines()[-2]
        await driver.write(" matrix")
        await driver.settle()
        assert "is a stop word" not in driver.text()
        assert "add" in driver.text().splitlines()[-1]
        driver.app.tell("error", "the disk is full", shown=True)
        await driver.write(" x")
        await driver.settle()
        assert "the disk is full" in driver.text()


@scenario
async def test_a_message_has_three_lines_at_most() -> None:
    async with opened(movies(), size=(80, 24)) as driver:
        driver.app.tell("error", "word " * 20, shown=True)
        await driver.settle()
        assert [line.count("word") for line in driver.text().splitlines()[-2:]] == [15, 5]
        driver.app.tell("error", "word " * 90, shown=True)
        await driver.settle()
        assert driver.text().endswith("l: the whole message")
        driver.app.tell("error", "w" * 40 + " " + "x" * 37, shown=True)
        await driver.settle()
        assert driver.text().endswith("w " + "x" * 37)  # no empty line below
        driver.app.tell("error", "本" * 60, shown=True)
        await driver.settle()
        assert [line.count("本") for line in driver.text().splitlines()[-2:]] == [39, 21]
        driver.app.tell("error", "本" * 200, shown=True)
        await driver.settle()
        assert driver.text().endswith("l: the whole message")


@scenario
async def test_the_list_shows_whether_it_follows() -> None:
    async with opened(movies("clint OR nolan OR tarantino OR bale"), size=(80, 24)) as driver:
        await driver.advance(0.3)
        assert "FOLLOW" in driver.text()
        await driver.press("escape", "j")
        assert "PAUSED" in driver.text()
        await driver.press("g")
        assert "FOLLOW" in driver.text()
        await driver.press("space")
        assert "PAUSED: space continues" in driver.text()


def test_distinguishing_values_of_connecting_rows_remain() -> None:
    phrases = [
        TuplePhrase("Quentin Tarantino"),
        TuplePhrase("Pulp Fiction", matched=False, names=True),
        TuplePhrase("Vincent Vega of the town", matched=False),
        TuplePhrase("John Travolta"),
    ]
    assert [each.text for each in sentence(phrases, 55)] == [
        "Quentin Tarantino", "Pulp Fiction", "…", "John Travolta",
    ]  # fmt: skip
    assert [each.text for each in sentence(phrases, 40)] == [
        "Quentin Ta…", "Pulp Ficti…", "John Travol…",
    ]  # fmt: skip
    assert [each.text for each in sentence(phrases, 28)] == ["Quenti…", "Pulp F…", "John Tr…"]
    assert [each.text for each in sentence(phrases, 20)] == ["Quentin T…", "John Trav…"]
