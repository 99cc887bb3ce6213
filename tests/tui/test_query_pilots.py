"""What a user does with queries. Each test is a session at the screen, with what it shows after each step."""

from __future__ import annotations

from pathlib import Path

from skws_tui.services.user_files import SavedSession, save_session
from tests.tui.ui import QUERY, movies, opened, scenario

ATTRIBUTES = "words in director.name, movie.title, plays.role, actor.name"
"""The empty query box."""


@scenario
async def test_a_visit_begins_with_words_to_try(tmp_path: Path) -> None:
    session = tmp_path / "session.json"
    save_session(SavedSession(history=["nolan bale", "uma thurman"]), session)
    async with opened(movies(restore=True), size=(80, 24), session_path=session) as driver:
        driver.shows("● running 1971-12-23 8 rows 0 queries", "Type words to search for", ATTRIBUTES)
        driver.shows("4 relations with 8 rows", "Try (Tab, then 1, 2 or 3) 1 callahan eastwood plays, actor")
        await driver.advance(2)
        driver.shows("■ all read 2023-10-20 0 queries", "4 relations with 769 rows", "director 40 name")
        driver.shows("1 callahan eastwood", "2 siegel dirty", "3 dirty callahan")
        await driver.press("tab")
        for number, words in (("1", "callahan eastwood"), ("2", "siegel dirty"), ("3", "dirty callahan")):
            await driver.press(number)
            driver.shows(f"▸ {words} ", "1 query", "⏎ open")
            driver.hides("Type words to search for", f"▸ {words} 0")
            await driver.press("x")
            driver.shows("Type words to search for", f"{words}: removed, u undoes it")
        driver.shows("Asked before dirty callahan siegel dirty callahan eastwood 4 relations")
        await driver.press("k", "enter")  # the last line that can be chosen
        driver.shows("▸ callahan eastwood 1", "⏎ open")


@scenario
async def test_a_query_is_typed_corrected_and_completed() -> None:
    async with opened(movies()) as driver:
        await driver.write("uma")
        await driver.press("enter")
        driver.shows("▸ uma 0", "No result for 'uma' yet (8 rows so far). no row of the window matches 'uma'")
        await driver.advance(2)
        driver.shows("■ all read 2023-10-20 1 query", "▸ uma 1", "actor Uma Thurman")

        await driver.write("tarantno uma")
        driver.shows("tarantno 0 · uma 1 · did you mean tarantino? Tab")
        await driver.press("tab")
        driver.shows("tarantino uma", "tarantino 2 · uma 1 ─")
        await driver.write(" travo")
        driver.shows("travo 0 · did you mean travolta? · Tab travolta 1")
        await driver.press("tab")
        driver.shows("tarantino uma travolta", "tarantino 2 · uma 1 · travolta 1 ─")
        driver.hides("did you mean")
        await driver.retype('"pulp fic')
        await driver.write('tion"')
        assert driver.lines("SearchLine") == ['"pulp fiction"']  # and no completion after it

        await driver.retype(QUERY)
        await driver.pilot.press("enter")  # and the search has not answered yet
        await driver.settle()
        driver.shows(f"▸ {QUERY} 0", f"Searching 769 rows for '{QUERY}'.", ATTRIBUTES)
        assert driver.search.results.row_width > 60  # the first lines have their final width
        await driver.advance(0)
        driver.shows(f"▸ {QUERY} 2", "Quentin Tarantino", "└ movie Pulp Fiction", "└ actor John Travolta")
        driver.hides("Searching", "movie.mid = plays.mid")  # the only join of two relations is not named


@scenario
async def test_a_query_that_cannot_run_stays_in_the_box_with_the_reason() -> None:
    async with opened(movies(QUERY), size=(140, 30)) as driver:
        await driver.advance(2)
        before = driver.text().splitlines()[4:]
        for text, reason in (
            (
                "studio:x",
                "no relation or attribute 'studio'; if the colon is part of the text, put quotes around it",
            ),
            (
                "travolta price<5",
                "no attribute 'price' to compare with; to search for the text itself, put quotes around it",
            ),
            ("-a -b", "add a keyword; 'a' is a stop word; to search for it, put it in quotes: \"a\""),
            ("[red]nolan[/red]", 'to search for the text itself, write "[red]nolan[/red]"'),
            ("the", "no keyword is left: 'the' is a stop word; to search for it, put it in quotes: \"the\""),
        ):
            await driver.retype(text)
            await driver.press("enter")
            _, line, below = driver.lines("SearchBox")
            assert line.startswith(f"│{text} ")
            assert below.endswith(f"{reason} ─╯")
            assert "✗" in below
            assert driver.text().splitlines()[4:] == before  # it covers no result
        await driver.write(" matrix")
        driver.shows("matrix 1 · the: too common, not searched ─╯")
        driver.hides("✗")
        await driver.press("f6")
        driver.shows(
            "error no relation or attribute 'studio'",
            "error no attribute 'price' to compare with; to search for the text itself, put quotes around it"
            " ⏎ travolta price<5 ⏎ ^",
        )


@scenario
async def test_queries_are_added_selected_removed_and_replaced() -> None:
    async with opened(movies(QUERY)) as driver:
        await driver.advance(2)
        driver.shows(f"▸ all 2 {QUERY} 2", "sort: newest")
        await driver.write("nolan bale")
        await driver.press("enter")
        driver.shows(f"all 5 {QUERY} 2 ▸ nolan bale 3", "Christopher Nolan", "before the query was added")
        driver.hides("Tarantino")

        await driver.press("escape", "]")
        driver.shows(f"▸ all 5 {QUERY} 2 nolan bale 3", "time query what size", "tarantino tr…")
        assert len(driver.lines("#results")) == 5
        await driver.press("]")
        driver.shows(f"all 5 ▸ {QUERY} 2 nolan bale 3", "time what size")
        assert all("Tarantino" in line for line in driver.lines("#results"))
        assert "undo" not in driver.lines("KeyLine")[0]
        await driver.press("x")
        assert driver.lines("KeyLine") == [f" {QUERY}: removed, u undoes it"]
        driver.shows("▸ all 3 nolan bale 3", "1 query")
        driver.hides("Tarantino")
        await driver.press("escape")
        assert "u undo" in driver.lines("KeyLine")[0]
        await driver.press("u")
        driver.shows(f"all 5 nolan bale 3 ▸ {QUERY} 2")
        assert "undo" not in driver.lines("KeyLine")[0]

        await driver.press("[")
        driver.shows("▸ nolan bale 3")
        await driver.press("i")
        await driver.write("clint")
        await driver.press("ctrl+j")
        driver.shows(f"{QUERY} 2 ▸ clint 2")
        driver.hides("nolan bale")

        await driver.write("uma zzyzx")
        await driver.press("enter")
        driver.shows("▸ uma zzyzx 0", "no row of the window matches 'zzyzx'")
        await driver.write(QUERY)
        await driver.press("enter")  # this query exists already
        driver.shows(f"▸ {QUERY} 2", "3 queries")

        await driver.press("escape", "[", "G")
        driver.shows("▸ all 4")
        await driver.press("x")  # the query of the selected result
        driver.shows(f"{QUERY}: removed", "▸ all 2 clint 2 uma zzyzx 0")
        await driver.click("QueryBar", (13, 0))
        driver.shows("▸ clint 2", "time what size")


@scenario
async def test_earlier_queries_are_recalled_saved_and_picked() -> None:
    async with opened(movies()) as driver:
        await driver.advance(2)
        for text in ("nolan bale", QUERY):
            await driver.write(text)
            await driver.press("enter")
        await driver.press("up", "up")
        assert driver.lines("SearchLine") == ["nolan bale"]
        await driver.press("ctrl+s")
        driver.shows("nolan bale: saved")
        await driver.press("down", "down")
        driver.shows(ATTRIBUTES)

        await driver.press("escape", "ctrl+r")
        driver.shows("Saved and earlier queries", f"nolan bale saved {QUERY}")
        await driver.write("zz")
        driver.shows("There is none.")
        driver.hides("nolan bale saved")
        await driver.press("backspace", "backspace", *"nol", "enter")
        assert driver.lines("SearchLine") == ["nolan bale"]
        await driver.press("ctrl+s")
        driver.shows("nolan bale: no longer saved")


@scenario
async def test_queries_that_do_not_fit_in_a_line_become_a_list() -> None:
    queries = ("nolan bale", "clint", QUERY, "coppola pacino", "scorsese niro", "zzyzx")
    async with opened(movies(*queries), size=(80, 24)) as driver:
        await driver.advance(2)
        driver.shows("▸ all 17 w lists 6 queries sort: newest", "6 queries")
        await driver.press("escape", "w")
        driver.shows("Queries", "all of them 17 results", f"{QUERY} 2 results", "zzyzx 0 results")
        await driver.write("travolta")
        driver.hides("zzyzx 0 results")
        await driver.press("enter")
        driver.shows(f"▸ {QUERY} 2 w lists 6 queries")
        await driver.click("QueryBar", (40, 0))
        await driver.write("all of them")
        await driver.press("enter")
        driver.shows("▸ all 17 w lists 6 queries")


@scenario
async def test_a_list_without_results_shows_the_reason_and_the_next_step() -> None:
    pattern = 'pattern: movie m ; plays p where m.mid = p.mid and p:"zzyzx"'
    async with opened(movies("tarantino travlta", "pulp casino")) as driver:
        await driver.advance(0.1)
        driver.shows(
            "No result for these queries yet (93 rows so far).",
            "pulp casino: no row of the window matches 'pulp'",
        )
        await driver.advance(2)
        driver.shows(
            "No result for these queries (769 rows so far).",
            "tarantino travlta: no row of the window matches 'travlta'; did you mean 'travolta'?",
            "pulp casino: every keyword matches some row, but no tree of up to 5 joined rows within a window"
            " contains all of them; try a larger --max-size or --window",
        )
        await driver.press("tab", "]")  # Tab leaves the box although the list is hidden
        driver.shows("No result for 'tarantino travlta'", "Try the suggested word: a, ↑, then Tab.")
        driver.hides("pulp casino:")
        for _ in range(2):
            await driver.press("x")
        driver.shows("Type words to search for")

        await driver.press("a")
        await driver.write("pulp zzz")
        await driver.press("enter")
        driver.shows(
            "no row of the window matches 'zzz' without 'zzz': pulp", "Try fewer words: a types another"
        )
        await driver.write(pattern)
        await driver.press("enter")
        driver.shows(
            f"No result for '{pattern}'", "Try one of its parts alone, or a longer window; n shows how"
        )
        driver.hides("fewer words")


@scenario
async def test_a_pattern_is_checked_as_it_is_typed_and_shows_its_labels() -> None:
    async with opened(movies(), size=(140, 40)) as driver:
        await driver.write("pattern: movie m ; plays p where m.mid = p.mid and p:")
        driver.shows("✗")
        await driver.write('"vincent"')
        driver.hides("✗")
        await driver.press("enter")
        await driver.advance(2)
        driver.shows("m: Pulp Fiction · p: Vincent Vega", "p: plays Vincent Hanna")
        await driver.press("escape", "ctrl+o")
        await driver.answer("matches.csv")
        driver.shows("matches.csv: results of patterns are exported as .jsonl")
        await driver.press("escape", "f4")
        driver.shows("automaton: 2 states", "plays [:'vincent'] / p--> q1")
