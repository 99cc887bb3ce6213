"""What a user does on the other screens, step by step, with what the screen shows after each step."""

from __future__ import annotations

from pathlib import Path

import pytest

from skws.cli.demo import movie_files
from tests.tui.ui import QUERY, movies, opened, scenario, until


@pytest.fixture
def schema_file(tmp_path: Path) -> Path:
    """A copy of the movies' schema, to be edited."""
    path = tmp_path / "movies.yaml"
    path.write_bytes(movie_files()[0].read_bytes())
    return path


@scenario
async def test_the_operators_of_a_query_are_followed() -> None:
    result = "=> director{tarantino} - movie{} - plays{} - actor{travolta}: 1 result"
    async with opened(movies(QUERY, "tarantino zzyzx")) as driver:
        await driver.press("f4")
        driver.shows("movies › networks", f"{QUERY} 34 shapes of results")
        await driver.advance(2)
        await driver.networks()
        driver.shows(f"{QUERY} 34 shapes of results, 2 have results 7 operators running, 18 sleeping")
        driver.shows("networks pruned by keys: 28", "after 769 rows: 769 live", result)
        driver.hides("actor{tarantino} - plays{} - movie{} - plays{} - actor{travolta}")

        await driver.press("]")
        await driver.networks()
        driver.shows("tarantino zzyzx 34 shapes of results, 0 have results", "asleep: no row has 'zzyzx'")
        await driver.press("[", "slash")
        await driver.write("director{tarantino} actor{travolta}: 1 result")
        await driver.press("enter")
        driver.shows(result)
        driver.hides("networks pruned by keys")
        await driver.press(*"jjjjjj", "enter")
        driver.shows("network director{tarantino} - movie{} - plays{} - actor{travolta}", part="#table")
        driver.shows("director Quentin Tarantino did 21")
        driver.hides("actor Quentin Tarantino")
        await driver.press("escape")
        driver.hides("network director{tarantino}", part="#table")
        assert len(driver.lines("#results")) == 2

        for _ in range(2):
            await driver.press("x")
        await driver.networks()
        driver.shows("No query yet. Press F2, type keywords, press Enter.")


@scenario
async def test_rows_are_followed_from_join_to_join() -> None:
    async with opened(movies(QUERY)) as driver:
        await driver.advance(2)
        await driver.press("escape", "b")
        driver.shows("movies › rows", "director 40 rows did name 1 Don Siegel 2 Francis Ford Coppola")
        await driver.press("]")
        driver.shows("movie 80 rows mid title did released 1 Dirty Harry 1 1971-12-23T00:00:00Z")
        await driver.press("slash")
        await driver.write("pulp")
        await until(lambda: "movie  1 row" in driver.text(), driver.settle)
        driver.shows("35 Pulp Fiction 21")
        await driver.press("enter", "enter")  # to the list, then to the joins of the row
        driver.shows("Rows with", "director.did = 21 movie.did = 21 plays.mid = 35 movie.mid = 35")
        await driver.write("plays")
        await driver.press("enter")
        await until(lambda: "plays.mid = 35  11 rows" in driver.text(), driver.settle)
        driver.shows("35 29 Vincent Vega")
        await driver.press("escape")
        driver.shows("movie 80 rows")
        await driver.press("[")
        driver.shows("director 40 rows")
        await driver.press("escape")
        driver.shows("skws movies ■ all read")

        await driver.press("G", "v")  # from a result
        await driver.write("plays.mid = 35")
        await driver.press("enter")
        await until(lambda: "plays.mid = 35  11 rows" in driver.text(), driver.settle)
        driver.shows("movies › rows", "35 29 Vincent Vega")


@scenario
async def test_the_schema_is_edited_and_applied_to_the_running_search(schema_file: Path) -> None:
    join = "  - director.did = movie.did\n"
    suggestion = "  # - director.did = movie.did  # 0.9 all values are found\n"
    async with opened(movies(QUERY, path=schema_file)) as driver:
        await driver.advance(2)
        driver.shows("▸ all 2")
        await driver.press("f3")
        editor = driver.schema.editor
        text = editor.text
        driver.shows("movies.yaml: saved movie ├─ director (director.did = movie.did)", part="#graph")
        driver.shows(
            "4 relations, 3 joins, window 20000 days Applying it changes nothing that is", part="#graph"
        )
        await driver.press("ctrl+l")
        driver.shows("there is no further suggestion; write a join under joins:")

        editor.load_text(text.replace("key: [did]", "key: [dig]"))
        await driver.settle()
        driver.shows("movies.yaml: edited, not saved Fix 1 error to see the graph.", part="#graph")
        driver.shows("did you mean 'did'?", part="#problems")
        line, column = (int(number) - 1 for number in driver.lines("#problems")[-1].split()[0].split(":"))
        await driver.press("ctrl+l")
        driver.shows("fix the errors first")
        await driver.press("ctrl+j")
        driver.shows("not applied:")
        await driver.click("#problems", (5, 1))
        assert editor.cursor_location == (line, column)

        editor.load_text(text.replace(join, suggestion))
        await driver.settle()
        driver.shows("Applying it removes director.did = movie.did.")
        await driver.press("ctrl+j")
        driver.shows("Applying it changes nothing that is running.")
        await driver.press("f5")
        driver.shows("held in memory now 0 to 769 rows 769")
        await driver.press("f2")
        driver.shows("▸ all 2", "4 gone")
        await driver.press("f3", "ctrl+l")
        driver.shows("Joins that values suggest", "director.did = movie.did all values are found")
        await driver.press("enter")
        driver.shows("added; Ctrl+J applies it, Ctrl+S saves", "Applying it adds director.did = movie.did.")
        assert join in editor.text
        await driver.press("ctrl+j", "f2")
        driver.hides("4 gone")
        await driver.press("f3", "ctrl+z")
        assert editor.text == text.replace(join, suggestion)


@scenario
async def test_the_schema_is_searched_inferred_and_saved(schema_file: Path) -> None:
    async with opened(movies(path=schema_file)) as driver:
        await driver.press("f3")
        editor = driver.schema.editor
        await driver.press("ctrl+end")
        assert editor.cursor_location == editor.document.end
        await driver.press("ctrl+home")
        assert editor.cursor_location == (0, 0)
        found_lines = [number for number, line in enumerate(editor.text.splitlines()) if "aid" in line]
        await driver.press("ctrl+f", *"AID", "enter")
        assert (editor.selected_text, editor.cursor_location[0]) == ("aid", found_lines[0])
        for _ in range(3):
            await driver.press("ctrl+f", "enter")
        assert editor.cursor_location[0] in found_lines[1:]
        await driver.press("ctrl+f", *"zzyzx", "enter")
        driver.shows("'zzyzx' is not in the schema")

        await driver.press("escape", "ctrl+home", *"# mine", "enter")
        driver.shows("movies.yaml: edited, not saved", "1 # mine", "2 # Films")
        await driver.press("ctrl+q")
        driver.shows("The schema has unsaved edits. Quit and lose them? (y) yes (n) no")
        await driver.press("n", "ctrl+t")
        driver.shows("Infer a schema and lose the unsaved edits?")
        await driver.press("n")
        driver.shows("1 # mine", "2 # Films")
        await driver.press("ctrl+s")
        driver.shows("movies.yaml: saved", " saved")
        assert schema_file.read_text().startswith("# mine\n")
        await driver.press("ctrl+z")
        driver.shows("movies.yaml: edited, not saved")
        await driver.press("ctrl+s", "ctrl+t")
        await until(lambda: "edited, not saved" in driver.text(), driver.settle)
        driver.shows("4 relations, 3 joins", "Inferred from samples.", "name: text # 0.95")
        driver.hides("# Films")
        await driver.press("ctrl+q", "y")
        assert driver.app.return_code == 0


@scenario
async def test_metrics_and_the_log_tell_what_the_search_has_done() -> None:
    async with opened(movies(QUERY)) as driver:
        for _ in range(8):
            await driver.advance(0.2)
        await driver.write("studio:pixar")
        await driver.press("enter", "f5")
        driver.shows("movies › metrics", "source replay:", "engine local, up 2 s", "event time 2023-10-20")
        driver.shows("rows 769 read, 0 deleted, 0 late, 0 bad", "rows arriving a second so far 0 to ")
        figures = {
            line.split("  ")[1].strip(): line for line in driver.lines("#figures") if line.startswith("  ")
        }
        assert figures["director"].split()[2] == "40"
        assert figures[QUERY].split()[3] == "2"
        assert figures["rows"].endswith("██")
        driver.shows("99 % of the results 0.0 ms", "a minute ago")

        await driver.press("f6")
        driver.shows("movies › log", "info watching replay:", "error no relation or attribute 'studio'")
        await driver.press("y")
        driver.shows("log copied")
        assert "watching replay:" in driver.app.clipboard
        await driver.press("slash")
        await driver.write("watching")
        driver.shows("info watching replay:")
        driver.hides("studio")
        await driver.press("escape")
        driver.shows("error no relation or attribute 'studio'")
        await driver.press("escape")
        driver.shows("skws movies ■ all read")


@scenario
async def test_keys_and_the_menu_lead_to_screens_forms_of_queries_and_themes(schema_file: Path) -> None:
    text = schema_file.read_text()
    async with opened(movies(QUERY, path=schema_file), size=(80, 24)) as driver:
        await driver.advance(2)
        for key, name in (
            ("f3", "schema"),
            ("f4", "networks"),
            ("f5", "metrics"),
            ("f6", "log"),
            ("f7", "rows"),
        ):
            await driver.press(key)
            driver.shows(f"movies › {name}")
            await driver.press("escape")
            driver.hides("›")
        await driver.press("f3", "escape", "z", "escape", "f3", "f6")
        driver.shows("movies › log")
        await driver.press("f3")
        driver.shows("movies.yaml: saved")
        assert driver.schema.editor.text == text  # keys after Escape edit nothing

        await driver.press("f5", "f1")
        driver.shows("Type to find an action, Enter does it", "Pause or resume the stream space")
        await driver.write("networks")
        driver.shows("Go to the networks n, f4")
        await driver.press("enter")
        driver.shows("movies › networks")
        for key in ("question_mark", "ctrl+p"):
            await driver.press("f6", key)
            driver.shows("Enter does it")
            await driver.press("escape")
            driver.shows("movies › log")
            await driver.press("escape")
            driver.shows("skws movies ■ all read")

        await driver.press("a", "f1")  # even while the query box has the focus
        await driver.write("whole trees")
        await driver.press("enter")
        driver.shows("John Travolta 5 actor Quentin Tarantino aid 100 └ plays Jimmie", part="#results")
        await driver.press("f6", "f1")
        await driver.write("phrase")
        await driver.press("enter")
        assert driver.lines("SearchLine") == ['"pulp fiction"']
        await driver.press("escape", "f1")
        await driver.write("theme")
        await driver.press("enter")
        driver.shows("Themes: ↓ shows each, Esc goes back")
        await driver.press("down", "down")
        assert driver.app.theme == sorted(driver.app.available_themes)[1]
        await driver.press("escape")
        assert driver.app.theme == "skws-dark"
        await driver.press("f1")
        await driver.write("theme")
        await driver.press("enter")
        await driver.write("textual-light")
        await driver.press("enter")
        assert driver.app.theme == "textual-light"
