"""The other screens, the tour, sessions, keys, themes, and errors."""

from __future__ import annotations

from collections.abc import Iterator
from math import inf
from pathlib import Path

import pytest
from textual.color import Color
from textual.widgets import OptionList, Static

from skws.cli.demo import movie_files
from skws_tui.app import SkwsApp
from skws_tui.screens.dialogs import ACTIONS, ConfirmScreen, PickScreen
from skws_tui.screens.live_screen import LiveScreen
from skws_tui.screens.schema_screen import SchemaScreen
from skws_tui.services.user_files import load_session
from skws_tui.widgets.result_pane import ResultList
from skws_tui.widgets.search_box import SearchLine
from tests.strategies import some
from tests.tui.ui import QUERY, Driver, movies, opened, scenario, until, with_job


@pytest.fixture
def schema_file(tmp_path: Path) -> Path:
    """A copy of the movies' schema, to be edited."""
    path = tmp_path / "movies.yaml"
    path.write_bytes(movie_files()[0].read_bytes())
    return path


def schema_screen(screen: object) -> SchemaScreen:
    assert isinstance(screen, SchemaScreen)
    return screen


@scenario
async def test_an_error_in_the_schema_is_shown_with_a_jump_to_its_line(schema_file: Path) -> None:
    async with opened(movies(path=schema_file)) as driver:
        await driver.press("f3")
        screen = schema_screen(driver.app.screen)
        screen.editor.load_text(screen.editor.text.replace("key: [did]", "key: [dig]"))
        await driver.settle()
        (problem,) = screen.draft.problems
        assert "did you mean 'did'?" in problem.message
        assert f"{problem.line}:{problem.column} " in driver.text()
        options = screen.query_one("#problems", OptionList)
        options.focus()
        options.highlighted = 0
        await driver.press("enter")
        assert screen.editor.cursor_location == (problem.line - 1, problem.column - 1)
        assert "Fix 1 error to see the graph" in driver.text()


@scenario
async def test_words_in_the_schema_are_found_one_by_one(schema_file: Path) -> None:
    async with opened(movies(path=schema_file)) as driver:
        await driver.press("f3")
        editor = schema_screen(driver.app.screen).editor
        await driver.press("ctrl+end")
        assert editor.cursor_location == editor.document.end
        await driver.press("ctrl+home")
        assert editor.cursor_location == (0, 0)
        lines = [number for number, line in enumerate(editor.text.splitlines()) if "aid" in line]
        await driver.press("ctrl+f", *"AID", "enter")
        assert (editor.selected_text, editor.cursor_location[0]) == ("aid", lines[0])
        for _ in lines:
            await driver.press("ctrl+f", "enter")
        assert editor.cursor_location[0] in lines[1:]
        await driver.press("ctrl+f", *"zzyzx", "enter")
        assert "is not in the schema" in driver.text()


@scenario
async def test_the_join_graph_follows_the_text_and_edits_are_undone_and_saved(schema_file: Path) -> None:
    async with opened(movies(path=schema_file)) as driver:
        await driver.press("f3")
        screen = schema_screen(driver.app.screen)
        assert "├─ director" in driver.text()
        screen.editor.move_cursor((0, 0))
        screen.editor.insert("# mine\n")
        await driver.settle()
        assert "edited, not saved" in driver.text()
        await driver.press("ctrl+z")
        assert not screen.dirty
        screen.editor.insert("# mine\n")
        await driver.press("ctrl+s")
        assert schema_file.read_text().startswith("# mine\n")
        assert not screen.dirty


@pytest.mark.check
@scenario
async def test_an_edited_schema_is_applied_without_losing_live_tuples(schema_file: Path) -> None:
    async with opened(movies(QUERY, path=schema_file)) as driver:
        await driver.advance(2)
        await driver.press("f3")
        screen = schema_screen(driver.app.screen)
        text = screen.editor.text
        screen.editor.load_text(text.replace("  - director.did = movie.did\n", ""))
        await driver.settle()
        assert "removes director.did = movie.did" in str(screen.query_one("#graph", Static).render())
        await driver.press("ctrl+j")
        results = driver.app.view.results.rows()
        assert [one.ending for one in results if len(one.result.tuples) == 4] == ["gone"]
        assert driver.metrics.live_tuples == 769
        screen.editor.load_text(text)
        await driver.settle()
        await driver.press("ctrl+j")
        assert [one.ending for one in driver.app.view.results.rows()] == [None, None]


@scenario
async def test_an_inferred_schema_replaces_the_text(schema_file: Path) -> None:
    async with opened(movies(path=schema_file)) as driver:
        await driver.press("f3", "ctrl+t")
        screen = schema_screen(driver.app.screen)
        assert screen.dirty
        assert screen.draft.schema is not None
        assert {r.name for r in screen.draft.schema.relations} == {"director", "movie", "plays", "actor"}
        await driver.press("ctrl+t")
        assert isinstance(driver.app.screen, ConfirmScreen)


@scenario
async def test_a_suggested_join_is_added_and_can_be_undone(schema_file: Path) -> None:
    schema_file.write_text(
        schema_file.read_text().replace(
            "  - director.did = movie.did\n", "  # - director.did = movie.did  # 0.9 all values are found\n"
        )
    )
    async with opened(movies(QUERY, path=schema_file)) as driver:
        await driver.advance(2)
        await driver.press("f3")
        before = schema_screen(driver.app.screen).editor.text
        await driver.press("ctrl+l")
        assert "all values are found" in driver.text()
        await driver.press("enter")
        screen = schema_screen(driver.app.screen)
        assert "  - director.did = movie.did\n" in screen.editor.text
        await driver.press("ctrl+j")
        assert len(driver.app.view.results.rows()) == 2
        await driver.press("ctrl+z")
        assert screen.editor.text == before
        screen.editor.load_text("relations: [")
        await driver.settle()
        await driver.press("ctrl+l")
        assert "fix the errors first" in driver.text()


@scenario
async def test_edits_are_not_discarded_without_asking(schema_file: Path) -> None:
    async with opened(movies(path=schema_file)) as driver:
        await driver.press("f3")
        schema_screen(driver.app.screen).editor.insert("# mine\n")
        await driver.press("ctrl+q")
        assert isinstance(driver.app.screen, ConfirmScreen)
        await driver.press("n")
        assert schema_screen(driver.app.screen).dirty
        await driver.press("ctrl+q", "y")
        assert driver.app.return_code == 0


@scenario
async def test_networks_show_waiting_partials_and_lead_to_their_results() -> None:
    async with opened(movies(QUERY)) as driver:
        await driver.advance(2)
        screen = await driver.networks()
        await driver.press("j")
        screen.look()
        await driver.settle()
        screen_text = driver.text()
        assert "networks pruned by keys: 28" in screen_text
        assert "34 shapes of results, 2 have results" in screen_text
        assert "7 operators running, 18 sleeping" in screen_text
        assert "after 769 rows: 769 live" in screen_text
        result_line = "=> director{tarantino} - movie{} - plays{} - actor{travolta}: 1 result"
        assert result_line in screen_text
        tree = screen.listing
        nodes = map(tree.get_node_at_line, range(tree.last_line + 1))
        line = next(n for n, node in enumerate(nodes) if node and result_line in str(node.label))
        tree.cursor_line = line
        await driver.press("enter")
        assert [len(row.result.tuples) for row in driver.search.results.listed] == [4]
        await driver.press("escape")
        assert len(driver.search.results.listed) == 2


@scenario
async def test_networks_show_why_a_query_sleeps() -> None:
    async with opened(movies("tarantino zzyzx")) as driver:
        await driver.advance(2)
        screen = await driver.networks()
        await driver.press("j")
        screen.look()
        await driver.settle()
        assert "asleep: no row has 'zzyzx'" in driver.text()


@scenario
async def test_rows_are_browsed_by_relation_filter_and_join_value() -> None:
    async with opened(movies(QUERY)) as driver:
        await driver.advance(2)
        await driver.press("escape", "b")
        assert "director  " in driver.text()
        await driver.press("]")
        assert "Pulp Fiction" not in driver.text()
        await driver.press("slash")
        await driver.write("pulp")
        await until(lambda: "Pulp Fiction" in driver.text(), driver.settle)
        assert "movie  1 row" in driver.text()
        await driver.press("enter", "enter")  # to the list, then to the joins of the row
        await driver.write("plays")
        await driver.press("enter")
        assert "plays.mid = 35  " in driver.text()
        await until(lambda: "Vincent Vega" in driver.text(), driver.settle)
        await driver.press("escape")
        assert "movie  " in driver.text()
        await driver.press("escape")
        assert driver.app.current_mode == "search"


@scenario
async def test_a_result_leads_to_all_rows_with_its_join_value() -> None:
    async with opened(movies(QUERY)) as driver:
        await driver.advance(2)
        await driver.press("escape", "G", "v")
        await driver.write("plays.mid = 35")
        await driver.press("enter")
        await until(lambda: "Vincent Vega" in driver.text(), driver.settle)
        assert "movies › rows" in driver.text()
        assert "plays.mid = 35  " in driver.text()


@scenario
async def test_metrics_show_rates_by_relation_and_query() -> None:
    async with opened(movies(QUERY)) as driver:
        for _ in range(8):
            await driver.advance(0.2)
        await driver.press("f5")
        screen_text = driver.text()
        for word in ("rows arriving", "director", QUERY, "99 % of the results", "769", "▁", "a minute ago"):
            assert word in screen_text, word


@scenario
async def test_the_log_has_all_messages_and_can_be_filtered() -> None:
    async with opened(movies()) as driver:
        await driver.write("studio:pixar")
        await driver.press("enter", "f6")
        lines = driver.app.screen.query_one("#log-lines", Static)
        assert "studio" in str(lines.render())
        assert "watching replay:" in str(lines.render())
        await driver.press("slash")
        await driver.write("watching")
        assert "studio" not in str(lines.render())
        assert "watching replay:" in str(lines.render())


@scenario
async def test_a_missing_source_is_reported_and_the_app_stays() -> None:
    request = movies(QUERY)
    request_without_source = with_job(request, source="replay:nowhere.jsonl")
    async with opened(request_without_source, stepped=False) as driver:
        assert driver.app.job is not None
        driver.app.job.stop()
        await driver.settle()
        assert "nowhere.jsonl" in driver.text()
        assert "failed" in driver.text()
        await driver.press("f6")
        assert "nowhere.jsonl" in driver.text()


@scenario
async def test_pausing_stops_the_stream_and_the_speed_is_shown() -> None:
    async with opened(movies()) as driver:
        await driver.advance(0.3)
        await driver.press("escape", "space")
        before = driver.metrics
        await driver.advance(5)
        assert (driver.metrics.state, driver.metrics.tuples) == ("paused", before.tuples)
        await driver.press("space", "plus")
        assert driver.run.control.status().speed == 2
        await driver.advance(5)
        assert "×2" in driver.text()
        assert driver.metrics.tuples == 769
        for step in (1, -1):  # a key that is held down
            for _ in range(1_200):
                driver.app.action_faster(step)
            assert 0 < driver.run.control.status().speed < inf


@pytest.mark.check
@scenario
async def test_the_menu_opens_over_any_screen_and_runs_actions() -> None:
    async with opened(movies(QUERY), size=(80, 24)) as driver:
        await driver.advance(2)
        await driver.press("f5", "f1")
        assert "Enter does it" in driver.text()
        await driver.write("networks")
        assert "Go to the networks" in driver.text()
        await driver.press("enter")
        assert driver.app.current_mode == "networks"
        await driver.press("escape", "escape", "question_mark", "escape")
        assert "Enter does it" not in driver.text()
        await driver.press("a", "f1")  # even while the query box has the focus
        await driver.write("whole trees")
        await driver.press("enter")
        assert driver.search.results.trees


@scenario
async def test_the_menu_has_the_forms_of_queries_and_the_themes() -> None:
    async with opened(movies(), size=(80, 24)) as driver:
        await driver.press("f6", "f1")
        await driver.write("phrase")
        await driver.press("enter")
        assert driver.search.box.value == '"pulp fiction"'
        await driver.press("escape", "f1")
        await driver.write("theme")
        await driver.press("enter")
        await driver.write("textual-light")
        await driver.press("enter")
        assert driver.app.theme == "textual-light"


@scenario
async def test_a_list_of_choices_is_read_once_for_each_filter() -> None:
    """There may be thousands of standing queries to choose from."""

    class Choices(tuple[tuple[str, str], ...]):
        readings = 0

        def __iter__(self) -> Iterator[tuple[str, str]]:
            self.readings += 1
            return super().__iter__()

    choices = Choices((f"query {number}", "1 result") for number in range(50))
    async with opened(movies()) as driver:
        driver.app.push_screen(PickScreen("Queries", choices))
        await driver.settle()
        await driver.write("49")
        assert "query 49  1 result" in driver.text()
    assert choices.readings <= 4


@scenario
async def test_the_list_of_themes_previews_each_and_escape_restores() -> None:
    async with opened(movies(), size=(80, 24)) as driver:
        before = driver.app.theme
        driver.app.action_theme()
        await driver.settle()
        await driver.press("down", "down")
        assert driver.app.theme == sorted(driver.app.available_themes)[1]
        await driver.press("escape")
        assert driver.app.theme == before


@pytest.mark.check
@scenario
async def test_queries_history_and_theme_are_restored(tmp_path: Path) -> None:
    path = tmp_path / "state" / "session.json"
    request = movies(restore=True, theme=None)
    async with opened(request, session_path=path) as driver:
        await driver.write(QUERY)
        await driver.press("enter")
        await driver.press("escape", "t")
        driver.app.theme = "textual-light"
        await driver.settle()
    session = load_session(path)
    assert (session.queries, session.theme) == ([QUERY], "textual-light")
    assert (session.selected, session.trees) == (QUERY, True)
    async with opened(request, session_path=path) as driver:
        await driver.advance(2)
        assert driver.app.view.queries == (QUERY,)
        assert driver.app.theme == "textual-light"
        assert len(driver.search.results.listed) == 2
        assert driver.search.bar.selected == QUERY
        assert driver.search.results.trees


@scenario
async def test_other_screens_can_be_reached_from_the_editor() -> None:
    async with opened(movies()) as driver:
        await driver.press("f3")
        assert "undo" in driver.text()
        await driver.press("f6")
        assert "movies › log" in driver.text()
        await driver.press("escape")
        assert driver.app.current_mode == "search"


@pytest.mark.check
@scenario
async def test_escape_leaves_every_screen_and_later_keys_edit_nothing(schema_file: Path) -> None:
    before = schema_file.read_text()
    async with opened(movies(QUERY, path=schema_file)) as driver:
        for key in ("f3", "f4", "f5", "f6", "f7"):
            await driver.press(key)
            assert driver.app.current_mode != "search"
            await driver.press("escape")
            assert driver.app.current_mode == "search", key
        await driver.press("f3", "escape", "z", "escape", "f3")
        assert schema_screen(driver.app.screen).editor.text == before
        for key in ("question_mark", "ctrl+p"):
            await driver.press("f6", key)
            await driver.press("escape", "escape", "escape")
            assert driver.app.current_mode == "search", key


@scenario
async def test_a_rejected_query_is_not_shown_as_the_state_of_the_engine() -> None:
    async with opened(movies()) as driver:
        driver.app.view.metrics = None  # as before the engine starts
        driver.run.log("info", "Spark is starting")
        await driver.write("-a -b")
        await driver.press("enter")
        driver.app.view.metrics = None
        driver.search.refresh_view()
        await driver.pilot.pause()
        assert any(line.level == "error" for line in driver.app.view.log)
        assert "The engine is starting: Spark is starting." in driver.text()


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


@scenario
async def test_keys_can_be_remapped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    (tmp_path / "skws").mkdir()
    (tmp_path / "skws" / "keys.yaml").write_text("remove-query: ctrl+x\ngo-metrics: m\n")
    async with opened(movies(QUERY)) as driver:
        await driver.press("escape", "x")
        assert driver.app.view.queries == (QUERY,)
        await driver.press("ctrl+x")
        assert not list(driver.app.view.queries)
        await driver.press("m")
        assert driver.app.current_mode == "metrics"


@scenario
async def test_an_invalid_keymap_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    (tmp_path / "skws").mkdir()
    (tmp_path / "skws" / "keys.yaml").write_text("remove-qury: x\n")
    async with opened(movies()) as driver:
        assert any("did you mean 'remove-query'?" in line.text for line in driver.app.view.log)


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


@scenario
async def test_resizing_keeps_everything_on_the_screen() -> None:
    async with opened(movies(QUERY), size=(160, 50)) as driver:
        await driver.advance(2)
        await driver.press("escape", "enter")
        wide_region = driver.search.query_one("#detail").region
        await driver.pilot.resize_terminal(80, 24)
        await driver.settle()
        narrow_region = driver.search.query_one("#detail").region
        assert wide_region.x > 60
        assert narrow_region.x == 0
        assert narrow_region.bottom <= 23
        assert len(driver.text().splitlines()) == 24


@scenario
async def test_clicking_selects_a_result_and_a_query() -> None:
    async with opened(movies(QUERY, "nolan bale")) as driver:
        await driver.advance(2)
        await driver.pilot.click(ResultList, offset=(10, 1))
        await driver.settle()
        assert driver.search.results.selected is driver.search.results.listed[1]
        await driver.pilot.click("QueryBar", offset=(16, 0))
        await driver.settle()
        assert driver.search.bar.selected == QUERY


def test_bindings_with_ids_are_exactly_the_actions_of_the_keymap() -> None:
    classes: list[type] = [SkwsApp, SearchLine, ResultList]
    classes += [type(make()) for make in SkwsApp.MODES.values() if callable(make)]
    binding_ids: set[str] = set()
    for owner in classes:
        binding_ids |= {
            binding.id for binding in owner.__dict__.get("BINDINGS", []) if getattr(binding, "id", None)
        }
    assert binding_ids == ACTIONS
    assert all(issubclass(screen, LiveScreen) for screen in classes[3:])
