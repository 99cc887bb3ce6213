"""If rows live until they are deleted, keywords show the best results of a search of the same data."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import orjson
import pytest

from skws.cli.demo import movie_files
from skws.replay_search import Search
from skws.spec.enums import EngineName
from skws.spec.job import Job
from skws.spec.query_spec import Query, RankingChoice
from skws_tui.services.live_job import MOST_BEST
from skws_tui.services.request import UiRequest
from skws_tui.services.result_buffer import BestResults, ListOrder, ListSelection
from skws_tui.services.view import View
from skws_windows.window import parse_window
from tests.tui.ui import QUERY, advance_view, movies, start_view

FOREVER = parse_window("none")


def movies_without_expiry(*queries: str, **more: Any) -> UiRequest:
    return movies(*queries, window=FOREVER, no_expiry=True, **more)


def best_of_search(text: str) -> BestResults:
    """The best results of ``skws search``."""
    query = Query.of_keywords(text, RankingChoice(explain=True))
    job = Job.search(
        query, movies_without_expiry().job.schema, movie_files()[1], window=FOREVER, engine=EngineName.LOCAL
    )
    best = Search(job).best(MOST_BEST)
    return BestResults(best.results, best.found, best.complete and best.size >= job.max_size)


def listed_ids(view: View) -> list[str]:
    return [row.result.id for row in view.results.rows(ListSelection(sort=ListOrder.BEST))]


@pytest.mark.parametrize("text", [QUERY, "john OR man", "coppola pacino", "zzyzx uma"])
def test_the_best_results_equal_a_search_of_the_same_data(text: str) -> None:
    run, view = start_view(movies_without_expiry(text))
    for _ in range(6):
        advance_view(run, view, 0.3)  # rows arrive, and better results with them
    expected = best_of_search(text)
    assert listed_ids(view) == [result.id for result in expected.results]
    assert len(listed_ids(view)) <= MOST_BEST
    assert view.best[text].part == expected.part
    assert not run.unanswered


def test_a_query_added_later_finds_the_best_live_results() -> None:
    run, view = start_view(movies_without_expiry())
    advance_view(run, view, 2)
    run.add_query("john OR man")
    advance_view(run, view)
    expected = best_of_search("john OR man")
    assert listed_ids(view) == [result.id for result in expected.results]
    assert view.best["john OR man"].part == f"{MOST_BEST} of {expected.of}"
    assert run.networks
    run.remove_query("john OR man")
    advance_view(run, view)
    assert (view.queries, listed_ids(view)) == ((), [])
    assert not run.networks
    assert not run._searched_positions  # noqa: SLF001 - nothing else shows that it grows


def test_all_results_are_not_suggested_for_an_invalid_query() -> None:
    run, view = start_view(movies_without_expiry("travolta price<5"))
    advance_view(run, view, 2)
    [line] = [line for line in view.log if line.level == "error"]
    assert line.text.startswith("travolta price<5: no attribute 'price' to compare with")
    assert "all:" not in line.text
    assert view.queries == ()


def test_deleted_rows_are_removed_from_the_best_results(tmp_path: Path) -> None:
    path = tmp_path / "movies.jsonl"
    lines = movie_files()[1].read_bytes().splitlines()
    deletion = {**orjson.loads(next(line for line in lines if b"Pulp Fiction" in line)), "op": "-"}
    deletion["time"] = orjson.loads(lines[-1])["time"]
    path.write_bytes(b"\n".join([*lines, orjson.dumps(deletion)]) + b"\n")
    request = movies_without_expiry(QUERY)
    run, view = start_view(request)
    advance_view(run, view, 2)
    before = listed_ids(view)
    job = Job({}, request.job.schema, f"replay:{path}", sinks=(), window=FOREVER, engine=EngineName.LOCAL)
    run, view = start_view(UiRequest(job, request.schema_path, (QUERY,), restore=False, no_expiry=True))
    for _ in range(4):
        advance_view(run, view, 10**9)
    assert set(listed_ids(view)) < set(before)
    assert "Pulp Fiction" not in str([row.result for row in view.results.rows()])


def test_the_all_prefix_shows_all_results_in_order_of_time() -> None:
    run, view = start_view(movies_without_expiry("john OR man"))
    advance_view(run, view, 2)
    run.add_query("all: john OR man")
    advance_view(run, view)
    assert view.queries == ("all: john OR man",)
    assert not view.scored("all: john OR man")
    assert len(listed_ids(view)) > MOST_BEST
    run.add_query("john OR man")
    for _ in range(3):
        advance_view(run, view)
    assert view.queries == ("john OR man",)
    assert view.scored("john OR man")
    assert len(listed_ids(view)) == MOST_BEST


def test_a_stream_with_a_window_and_a_cluster_have_standing_queries() -> None:
    assert movies_without_expiry().best_first(QUERY)
    assert not movies().best_first(QUERY)
    assert not movies_without_expiry(engine=EngineName.SPARK).best_first(QUERY)
    for prefix in ("all:", "rank:", "top 3:", "pattern:"):
        assert not movies_without_expiry().best_first(f"{prefix} {QUERY}"), prefix


def test_a_query_that_cannot_run_is_reported_and_removed() -> None:
    run, view = start_view(movies_without_expiry("studio:x", QUERY))
    advance_view(run, view, 2)
    assert view.queries == (QUERY,)
    assert any(line.level == "error" and "studio" in line.text for line in view.log)
