"""The terminal UI on Spark: results and queries reach the queue, and a paused job makes no progress."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from skws.cli.demo import movie_files
from skws.spec.enums import EngineName
from skws_tui.entry import new_job
from skws_tui.services.view import EventQueue, View
from tests.tui.ui import QUERY, movies, with_job

SECONDS = 240
_BOTH = (
    '{"relation": "movie", "time": "2031-01-01T00:00:00Z", '
    '"row": {"mid": 999999, "title": "Tarantino meets Travolta", "did": 1, "released": "2031-01-01"}}\n'
)


@pytest.mark.slow
@pytest.mark.spark
def test_queries_are_added_and_removed_while_the_job_runs() -> None:
    # A file is followed forever; a replay would end the job.
    request = with_job(movies(QUERY, engine=EngineName.SPARK), source=str(movie_files()[1]))
    queue, view = EventQueue(), View(request)
    run = new_job(request, queue)
    run.start()
    run.add_query("nolan bale")
    try:
        _until(queue, view, lambda: len(view.results) == 5)
        assert set(view.queries) == {QUERY, "nolan bale"}
        _until(queue, view, lambda: len(run.rows or ()) == 769)
        analysis = view.analyzer.analyse("tarantno uma tra", run.rows)
        assert [(slot.text, slot.count) for slot in analysis.slots][1] == ("uma", 1)
        assert analysis.slots[0].correction == "tarantino"
        assert ("travolta", 1) in analysis.completions
        run.observe(QUERY)
        _until(queue, view, lambda: QUERY in view.observed)
        assert sorted(view.observed[QUERY].results.values()) == [1, 1]
        assert view.observed[QUERY].missing == ()
        assert view.metrics is not None
        run.remove_query("nolan bale")
        _until(queue, view, lambda: view.queries == (QUERY,))
        assert {row.result.query for row in view.results.rows()} == {QUERY}
    finally:
        run.stop()
    view.apply_events(queue.take())
    assert not view.failure


def test_a_query_may_be_removed_while_another_is_added(monkeypatch: pytest.MonkeyPatch) -> None:
    run = new_job(movies("uma", "john"), EventQueue())

    def text_after_removal(name: str) -> str:
        run.queries.pop("uma", None)  # as the job's thread does
        return name

    monkeypatch.setattr("skws_tui.services.live_job.text_of", text_after_removal)
    run.add_query("nolan bale")
    assert list(run.queries) == ["john", "nolan bale"]


@pytest.mark.slow
@pytest.mark.spark
def test_a_paused_job_reads_nothing(tmp_path: Path) -> None:
    source = tmp_path / "movies.jsonl"
    source.write_bytes(movie_files()[1].read_bytes())
    request = with_job(movies(QUERY, engine=EngineName.SPARK), source=str(source))
    queue, view = EventQueue(), View(request)
    run = new_job(request, queue)
    run.start()
    try:
        _until(queue, view, lambda: len(view.results) == 2)
        run.control.pause()
        _until(queue, view, lambda: view.metrics is not None and view.metrics.state == "paused")
        time.sleep(1)  # lets a running micro-batch end
        with source.open("a") as file:
            file.write(_BOTH)
        time.sleep(5)
        view.apply_events(queue.take())
        assert len(view.results) == 2
        run.control.resume()
        _until(queue, view, lambda: len(view.results) == 3)
    finally:
        run.stop()
    view.apply_events(queue.take())
    assert not view.failure


def _until(queue: EventQueue, view: View, condition: Callable[[], bool]) -> None:
    end = time.monotonic() + SECONDS
    while not condition():
        assert time.monotonic() < end, (view.queries, len(view.results), list(view.log))
        assert not view.failure
        time.sleep(0.1)
        view.apply_events(queue.take())
