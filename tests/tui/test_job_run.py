"""The terminal UI on Spark: results and queries reach the outbox, and a paused job stands still."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

import pytest

from skws.choices import EngineName
from skws.movie_stream import movie_files
from tests.tui.ui import QUERY, movies
from tui.services.engines import start_run
from tui.services.news import Outbox
from tui.services.reading import read
from tui.services.run import AddQuery, Observe, RemoveQuery
from tui.services.view import View

SECONDS = 240
_BOTH = (
    '{"relation": "movie", "time": "2031-01-01T00:00:00Z", '
    '"row": {"mid": 999999, "title": "Tarantino meets Travolta", "did": 1, "released": "2031-01-01"}}\n'
)


@pytest.mark.slow
@pytest.mark.spark
def test_queries_come_and_go_while_the_job_runs() -> None:
    # A file is followed for ever; a replay would end the job.
    request = replace(movies(QUERY, engine=EngineName.SPARK), source=str(movie_files()[1]))
    outbox, view = Outbox(), View(request)
    run = start_run(request, outbox)
    run.start()
    run.post(AddQuery("nolan bale"))
    try:
        _until(outbox, view, lambda: len(view.results) == 5)
        assert set(view.queries) == {QUERY, "nolan bale"}
        _until(outbox, view, lambda: run.rows is not None and len(run.rows) == 769)
        reading = read("tarantno uma tra", view, run.rows)
        assert [(slot.text, slot.count) for slot in reading.slots][1] == ("uma", 1)
        assert reading.slots[0].meant == "tarantino"
        assert ("travolta", 1) in reading.completions
        run.post(Observe(QUERY))
        _until(outbox, view, lambda: QUERY in view.observed)
        assert sorted(view.observed[QUERY].results.values()) == [1, 1]
        assert view.observed[QUERY].missing == ()
        assert view.metrics is not None
        run.post(RemoveQuery("nolan bale"))
        _until(outbox, view, lambda: view.queries == (QUERY,))
        assert {shown.result.query for shown in view.results.listed()} == {QUERY}
    finally:
        run.stop()
    view.absorb(outbox.take(), 0)
    assert not view.failure


@pytest.mark.slow
@pytest.mark.spark
def test_a_paused_job_takes_nothing_in(tmp_path: Path) -> None:
    source = tmp_path / "movies.jsonl"
    source.write_bytes(movie_files()[1].read_bytes())
    request = replace(movies(QUERY, engine=EngineName.SPARK), source=str(source))
    outbox, view = Outbox(), View(request)
    run = start_run(request, outbox)
    run.start()
    try:
        _until(outbox, view, lambda: len(view.results) == 2)
        run.pause()
        _until(outbox, view, lambda: view.metrics is not None and view.metrics.state == "paused")
        time.sleep(1)  # a micro-batch that had begun ends
        with source.open("a") as file:
            file.write(_BOTH)
        time.sleep(5)
        view.absorb(outbox.take(), time.monotonic())
        assert len(view.results) == 2
        run.resume()
        _until(outbox, view, lambda: len(view.results) == 3)
    finally:
        run.stop()
    view.absorb(outbox.take(), 0)
    assert not view.failure


def _until(outbox: Outbox, view: View, done: object) -> None:
    assert callable(done)
    end = time.monotonic() + SECONDS
    while not done():
        assert time.monotonic() < end, (view.queries, len(view.results), list(view.log))
        assert not view.failure
        time.sleep(0.1)
        view.absorb(outbox.take(), time.monotonic())
