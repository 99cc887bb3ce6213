"""Queries other than plain keywords: with scores, the best results, window expressions, no window."""

from __future__ import annotations

import csv
from pathlib import Path
from time import process_time

import pytest
from textual.theme import BUILTIN_THEMES

from docs.stepped_run import SteppedRun
from skws.queries.keywords.keyword_plans import ranking_of, top_of
from skws.replay_search import Search
from skws.spec.enums import EngineName
from skws.spec.job import Job
from skws.spec.query_spec import TopChoice
from skws_schema.errors import UsageError
from skws_schema.yaml.load import load_schema
from skws_tui.services.result_buffer import ListOrder, ListSelection
from skws_tui.services.typed import TypedText, as_query, parse_typed
from skws_tui.services.user_files import export
from skws_tui.services.view import EventQueue, JobEvents, View
from skws_tui.themes import palette
from skws_tui.widgets.query_bar import draw_windows
from skws_windows.window import parse_window
from tests.tui.ui import QUERY, advance_view, movies, start_view, ward_request

PLAIN = palette(BUILTIN_THEMES["textual-dark"])
FEVER = "open when temp > 38 close when temp < 38 per patient"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("tarantino travolta", TypedText("tarantino travolta")),
        ("  uma ", TypedText("uma")),
        ("all: uma", TypedText("uma", "all: ")),
        ("pattern: a ; b", TypedText("a ; b", "pattern: ", pattern=True)),
        ("rank: uma", TypedText("uma", "rank: ", rank=True)),
        ("rank relevance: uma", TypedText("uma", "rank relevance: ", rank=True, ranking="relevance")),
        ("top 5: uma", TypedText("uma", "top 5: ", top=5)),
        ("top 5 window 1 hour: uma", TypedText("uma", "top 5 window 1 hour: ", top=5, window="1 hour")),
        ("top 5 group: uma", TypedText("uma", "top 5 group: ", top=5, group=True)),
        (
            "top 5 group half-life 2 days window 9 days: uma",
            TypedText(
                "uma",
                "top 5 group half-life 2 days window 9 days: ",
                top=5,
                window="9 days",
                group=True,
                half_life="2 days",
            ),
        ),
        (
            "top 5 half-life 1 hour: uma",
            TypedText("uma", "top 5 half-life 1 hour: ", top=5, half_life="1 hour"),
        ),
        (
            "rank half-life 1 hour: uma",
            TypedText("uma", "rank half-life 1 hour: ", rank=True, half_life="1 hour"),
        ),
        (
            "rank relevance half-life 1 hour: uma",
            TypedText(
                "uma",
                "rank relevance half-life 1 hour: ",
                rank=True,
                ranking="relevance",
                half_life="1 hour",
            ),
        ),
        (f"window {FEVER}: uma", TypedText("uma", f"window {FEVER}: ", window=FEVER)),
        # Keywords for relations with these names, and keywords that begin like a prefix.
        ("rank:uma", TypedText("rank:uma")),
        ("top 5", TypedText("top 5")),
        ("window actor:uma", TypedText("window actor:uma")),
        ("top 5 grouped: uma", TypedText("top 5 grouped: uma")),
        ("topping 5: uma", TypedText("topping 5: uma")),
    ],
)
def test_a_prefix_selects_the_kind_of_query(text: str, expected: TypedText) -> None:
    assert parse_typed(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        "top 1 half-life a" + 6_000 * " window a",
        "top 1 half-life a" + 20_000 * " " + "b",
        "top 1 half-life" + 20_000 * " " + "b",
    ],
)
@pytest.mark.parametrize("end", ["", ": uma"])
def test_a_prefix_is_found_in_linear_time(text: str, end: str) -> None:
    begin = process_time()
    assert parse_typed(text + end).text == ("uma" if end else text)
    assert process_time() - begin < 1


def test_group_and_half_life_reach_the_standing_query() -> None:
    query = as_query(parse_typed("top 5 group half-life 2 hours: uma"))
    assert top_of(query.options) == TopChoice(5, group=True)
    ranking = ranking_of(query.options)
    assert ranking is not None
    assert ranking.half_life == 2 * 3600 * 1_000_000
    with pytest.raises(UsageError, match="half-life 'soon'"):
        as_query(parse_typed("rank half-life soon: uma"))


def live_ids(view: View, query: str) -> list[str]:
    rows = view.results.rows(ListSelection(query, sort=ListOrder.BEST))
    return [row.result.id for row in rows if not row.ending]


@pytest.mark.check
@pytest.mark.parametrize("size", [1, 3])
def test_the_best_are_the_first_of_all_scored_results(size: int) -> None:
    window = parse_window("4000 days")
    ranked_run, ranked_view = start_view(movies("rank: john", window=window))
    name = f"top {size}: john"
    top_run, top_view = start_view(movies(name, window=window))
    ids = set()
    for _ in range(24):
        advance_view(ranked_run, ranked_view, 0.05)
        advance_view(top_run, top_view, 0.05)
        assert live_ids(top_view, name) == live_ids(ranked_view, "rank: john")[:size]
        ids.update(live_ids(top_view, name))
    assert len(ids) > size
    assert {row.ending for row in top_view.results.rows(ListSelection(name))} >= {"outranked"}


def test_the_best_in_their_own_window_run_beside_keywords() -> None:
    run, view = start_view(movies("clint", "top 2 window 100 days: nolan bale"))
    for _ in range(24):
        advance_view(run, view, 0.05)
    assert not [line for line in view.log if line.level == "error"]
    # Films within so few days do not join, though the window of the other queries is the whole stream.
    assert live_ids(view, "top 2 window 100 days: nolan bale") == []
    assert live_ids(view, "clint")


def test_the_same_keywords_can_run_as_two_kinds() -> None:
    run, view = start_view(movies(QUERY))
    advance_view(run, view, 2)
    top_query = f"top 1: {QUERY}"
    run.add_query(top_query)
    advance_view(run, view)
    assert view.queries == (QUERY, top_query)
    assert [len(live_ids(view, name)) for name in (QUERY, top_query)] == [2, 1]
    run.remove_query(QUERY)
    advance_view(run, view)
    assert list(view.queries) == [top_query]
    assert len(view.results.rows(ListSelection())) == len(live_ids(view, top_query)) == 1


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("top 0: uma", "--top 0: expected a number above 0"),
        ("rank fame: uma", "ranking 'fame': expected one of"),
        ("window 1 hour: uma", "share the window of the stream"),
        ("window open when nothing: uma", "window: expected 'close'"),
        (f"top 2 window {FEVER}: hopper", "cannot be combined with a window expression"),
        ("top 3: the", "no keyword is left"),
        ("pattern: nonsense ;", "the text ends here"),
    ],
)
def test_an_unsupported_query_is_rejected_without_other_changes(text: str, reason: str) -> None:
    run, view = start_view(movies(QUERY))
    run.add_query(text)
    advance_view(run, view, 2)
    assert view.queries == (QUERY,)
    assert reason in " ".join(line.text for line in view.log if line.level == "error")
    assert len(live_ids(view, QUERY)) == 2


@pytest.mark.parametrize(
    ("query", "window"),
    [
        ("hopper", FEVER),
        (f"window {FEVER}: hopper", "1 hour"),
    ],
)
def test_results_in_expression_windows_equal_those_of_a_search(
    tmp_path: Path, query: str, window: str
) -> None:
    run, view = start_view(ward_request(tmp_path, query, window=window))
    for _ in range(12):
        advance_view(run, view, 1)
    search = Job.search(
        "hopper",
        load_schema(tmp_path / "ward.yaml"),
        tmp_path / "ward.jsonl",
        window=parse_window(FEVER),
        engine=EngineName.LOCAL,
    )
    expected = {result.id for result in Search(search).results()}
    assert len(expected) == 1
    assert set(live_ids(view, query)) == expected  # they do not expire with their window
    spans = [(span.key, span.end is None) for span in view.windows[query]]
    assert sorted(spans) == [(("ann",), False), (("bob",), True)]
    drawn_lines = draw_windows(view, None, PLAIN, 80)
    assert drawn_lines is not None
    lines = drawn_lines.plain.splitlines()
    assert lines[0].startswith("windows  1 open, 1 ended lately  1970-01-01T00:00:00Z ─")
    assert [line.split()[0] for line in lines[1:]] == ["bob", "ann"]
    assert lines[1].endswith(">")
    assert all(len(line) <= 80 for line in lines)


def test_windows_that_pile_up_are_rejected_unless_allowed(tmp_path: Path) -> None:
    query = "window every open when temp > 38 close when temp < 38: hopper"
    run, view = start_view(ward_request(tmp_path, window="1 hour"))
    run.add_query(query)
    advance_view(run, view, 12)
    assert view.queries == ()
    assert any("pile up without bound" in line.text for line in view.log)
    run, view = start_view(ward_request(tmp_path, query, window="1 hour", allow_unbounded_windows=True))
    for _ in range(12):
        advance_view(run, view, 1)
    assert len(live_ids(view, query)) == 1


def test_queries_before_the_start_of_the_engine_are_shown_at_once() -> None:
    queue = EventQueue()
    request = movies(QUERY)
    run, view = SteppedRun(request, queue), View(request)
    for query in ("nolan bale", f"top 1: {QUERY}", "clint"):
        run.add_query(query)
    run.remove_query("clint")
    view.apply_events(queue.take())
    assert list(view.queries) == [QUERY, "nolan bale", f"top 1: {QUERY}"]
    run.start()
    for _ in range(4):
        advance_view(run, view, 1)
    assert list(view.queries) == [QUERY, "nolan bale", f"top 1: {QUERY}"]
    assert len(live_ids(view, QUERY)) == 2
    assert len(live_ids(view, f"top 1: {QUERY}")) == 1
    assert len(live_ids(view, "nolan bale")) == 3


def test_an_export_has_the_scores(tmp_path: Path) -> None:
    run, view = start_view(movies(f"top 1: {QUERY}", "nolan bale"))
    advance_view(run, view, 2)
    path = tmp_path / "found.csv"
    export([row.result for row in view.results.rows()], path)
    with path.open() as file:
        rows = list(csv.DictReader(file))
    ranks = {row["query"]: row["rank"] for row in rows}
    assert ranks == {QUERY: "1", "nolan bale": ""}
    assert all((row["score"] != "") == (row["query"] == QUERY) for row in rows)


def test_a_rejected_query_keeps_the_results_of_the_same_keywords() -> None:
    run, view = start_view(movies(QUERY))
    advance_view(run, view, 2)
    view.apply_events(JobEvents(queries=(QUERY, f"top 1: {QUERY}")))
    view.apply_events(JobEvents(queries=(QUERY,)))
    assert len(live_ids(view, QUERY)) == 2
