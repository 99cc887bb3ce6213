"""The run behind the UI: its control, and its results compared with a batch search."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from threading import Event
from typing import Any

import pytest

from docs.stepped_run import SteppedRun
from skws.cli.demo import movie_files
from skws.jobs.clock import Turns
from skws.keywords.match import Matcher
from skws.replay_search import Search
from skws.results.result import LiveResult
from skws.spec.enums import EngineName, OnError
from skws.spec.job import Job
from skws_schema.budgets import TimeLimitError
from skws_schema.errors import UsageError
from skws_tui.entry import new_job
from skws_tui.services.live_job import LiveJob
from skws_tui.services.live_rows import LiveRows
from skws_tui.services.request import UiRequest
from skws_tui.services.view import EventQueue, JobEvents
from tests.tui.ui import QUERY, movies, with_job
from tests.waiting import until

QUERIES = (QUERY, "nolan bale", "clint", "trav* uma")


def start_run(request: UiRequest) -> tuple[SteppedRun, EventQueue]:
    queue = EventQueue()
    run = SteppedRun(request, queue)
    run.start()
    return run, queue


def batch_ids(query: str) -> set[str]:
    """Ids of the results of a batch search."""
    request = Job.search(query, movies().job.schema, movie_files()[1], engine=EngineName.LOCAL)
    return {result.id for result in Search(request).results()}


def ids(results: Sequence[LiveResult], query: str) -> set[str]:
    return {result.id for result in results if result.query == query}


def test_queries_have_the_results_of_a_batch_search() -> None:
    run, queue = start_run(movies(*QUERIES))
    results: list[LiveResult] = []
    for _ in range(12):
        run.advance(0.1)
        results += queue.take().results
    for query in QUERIES:
        assert ids(results, query) == batch_ids(query) != set()
    assert len(results) == len({(result.query, result.id) for result in results})


def test_an_invalid_request_is_reported_and_the_run_continues() -> None:
    run, queue = start_run(movies(QUERY))
    for query in (QUERY, "the", "studio:x"):
        run.add_query(query)
    run.remove_query("absent")
    run.advance(2)
    events = queue.take()
    assert [line.level for line in events.lines].count("error") == 4
    assert ids(events.results, QUERY) == batch_ids(QUERY)


def test_a_query_is_removed_once_however_often_it_is_asked_for() -> None:
    run, queue = start_run(movies(QUERY))
    run.advance(0.1)
    assert [run.remove_query(QUERY), run.remove_query(QUERY)] == [True, False]
    run.add_query(QUERY)
    assert run.remove_query(QUERY)
    run.advance(0.1)
    assert [line.text for line in queue.take().lines if line.level in {"warning", "error"}] == []
    assert not run.queries
    run.stop()


def test_a_removed_relation_loses_its_tuples_and_its_records_are_skipped() -> None:
    text = movie_files()[0].read_text()
    actor_offset = text.index("  actor:\n")
    schema_text = text[:actor_offset] + "\njoins:\n  - director.did = movie.did\n  - movie.mid = plays.mid\n"
    run, queue = start_run(movies(QUERY))
    run.advance(0.5)
    run.apply_schema(schema_text)
    run.advance(0)
    run.advance(2)
    events = queue.take()
    assert not [line for line in events.lines if line.level == "error"], events.lines
    metrics = run.metrics()
    rows = run.rows
    assert rows is not None
    words = rows.words()
    assert "tarantino" in words
    assert "travolta" not in words
    assert {relation.name for relation in metrics.relations} == {"director", "movie", "plays"}
    assert events.schema is not None


def test_mesh_statistics_are_reported_by_query() -> None:
    run, queue = start_run(movies(QUERY, "zzyzx nolan"))
    run.advance(2)
    for query in (QUERY, "zzyzx nolan", "absent"):
        run.observe(query)
    run.advance(0)
    states = queue.take().observed
    assert set(states) == {QUERY, "zzyzx nolan"}
    assert sum(states[QUERY].results.values()) == 2
    assert states[QUERY].missing == ()
    assert states["zzyzx nolan"].missing == ("zzyzx",)
    waiting_counts, probes = states[QUERY].waiting, states[QUERY].probes
    assert waiting_counts is not None
    # Waiting partial results have probed once, and nothing has expired yet; bridges probe without waiting.
    assert any(waiting_counts.values())
    assert all(probes[at] == partials for at, partials in waiting_counts.items() if partials)


def failure_events(request: UiRequest) -> JobEvents:
    queue = EventQueue()
    run = new_job(request, queue)
    run.run()
    return queue.take()


def test_a_failed_run_reports_the_reason(tmp_path: Path) -> None:
    assert "nowhere" in failure_events(with_job(movies(), source=str(tmp_path / "nowhere"))).failure
    bad_path = tmp_path / "bad.jsonl"
    bad_path.write_text(movie_files()[1].read_text().partition("\n")[0] + "\nno record\n")
    request = with_job(movies(), source=f"replay:{bad_path}", on_error=OnError.FAIL)
    assert "bad.jsonl:2" in failure_events(request).failure


def test_a_failed_run_explains_what_to_do_and_rejects_queries(tmp_path: Path) -> None:
    queue = EventQueue()
    run = new_job(with_job(movies(), source=str(tmp_path / "nowhere")), queue)
    run.run()
    assert any("start again" in line.text for line in queue.take().lines)
    run.add_query("nolan bale")
    events = queue.take()
    assert [line.level for line in events.lines] == ["error"]
    assert events.queries is None


def test_a_run_waits_for_an_unavailable_database_until_it_is_stopped() -> None:
    queue = EventQueue()
    run = new_job(with_job(movies(), source="postgresql://joe@127.0.0.1:1/none"), queue)
    run.start()
    lines: list[str] = []

    def is_reported() -> bool:
        lines.extend(line.text for line in queue.take().lines)
        return any("trying again in 0.2 s" in line for line in lines)

    until(is_reported)
    run.stop()
    assert not run.control.running
    assert queue.take().failure == ""


def test_the_first_late_record_is_reported_at_once(tmp_path: Path) -> None:
    replay = tmp_path / "movies.jsonl"
    first, *rest = movie_files()[1].read_text().splitlines()
    replay.write_text("\n".join([*rest, first, first]) + "\n")
    run, queue = start_run(with_job(movies(QUERY), source=str(replay)))
    events = queue.take()
    assert sum("came too late" in line.text and "--lateness" in line.text for line in events.lines) == 1
    assert events.metrics is not None
    assert events.metrics.late > 1
    run.stop()


def test_bad_records_are_skipped_and_counted(tmp_path: Path) -> None:
    lines = movie_files()[1].read_text().splitlines()
    stream = tmp_path / "stream.jsonl"
    stream.write_text("\n".join([*lines[:50], "no record", *lines[50:]]))
    run, queue = start_run(with_job(movies(QUERY), source=f"replay:{stream}?speed=1600000000"))
    run.advance(2)
    events = queue.take()
    assert run.metrics().bad == 1
    assert any("1 bad record" in line.text for line in events.lines)
    assert ids(events.results, QUERY) == batch_ids(QUERY)


def test_a_run_in_its_thread_starts_reports_and_stops() -> None:
    reported = Event()
    queue = EventQueue(reported.set)
    run = new_job(movies(QUERY), queue)
    run.start()
    assert reported.wait(30)
    run.stop()
    assert not run.control.running


class BusyRows(LiveRows):
    """Rows that another thread reads for a long time."""

    def __init__(self) -> None:
        super().__init__(lambda: None, Turns().turn)

    def learn(self, limit: int) -> bool:
        raise TimeLimitError(f"no turn to learn {limit} rows")

    def node_counts(self, matcher: Matcher) -> Mapping[tuple[int, int], int]:
        raise TimeLimitError(f"no turn to count {matcher.query.text}")


def test_a_run_continues_while_its_rows_are_read() -> None:
    run, queue = start_run(movies(QUERY))
    run.rows = BusyRows()
    run.observe(QUERY)
    for _ in range(3):
        run.advance(0.2)
    metrics = queue.take().metrics
    assert metrics is not None
    assert metrics.state == "running"
    assert metrics.tuples > 0


def test_a_run_that_ends_reports_all_its_work() -> None:
    """Including records that arrived within a quarter of a second after the last report."""
    request, queue = movies(QUERY), EventQueue()
    source = f"{request.job.source.partition('?')[0]}?speed=1000000000000"
    run = LiveJob(with_job(request, source=source), queue, new_host=LiveJob.host_with)
    run.run()
    metrics = queue.take().metrics
    assert metrics is not None
    assert (metrics.state, metrics.tuples) == ("ended", 769)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"speed": 0}, "--speed 0"),
        ({"speed": float("inf")}, "--speed inf"),
        ({"master": "local[2]"}, "--master needs --engine spark"),
        ({"on_error": OnError.DEAD_LETTER}, "--dead-letters FILE"),
    ],
)
def test_invalid_requests_are_rejected(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        movies(**fields)


def test_a_query_is_reported_before_its_first_results() -> None:
    """The view would not show results of a query that it does not know."""
    queue = EventQueue()
    run = SteppedRun(movies("uma"), queue)
    run.start()
    run.advance(1)
    queue.take()
    run.add_query("john")
    assert queue.take().queries == ("uma", "john")


def test_a_refused_query_is_left_out_and_one_added_twice_stays() -> None:
    refused = "already actor.nosuch:x"  # the answer to a query that is added twice also contains this word
    run, _ = start_run(movies("uma", refused))
    run.add_query("uma")
    run.advance(1)
    assert list(run.queries) == ["uma"]
