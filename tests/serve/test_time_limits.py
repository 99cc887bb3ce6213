"""The time for which a request waits for its turn counts towards its time limit."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event
from time import sleep
from types import SimpleNamespace
from typing import Any, cast

import httpx
import orjson
import pytest

from skws.keywords.match import Span
from skws.queries.keywords.searching import Searched
from skws.serve.event_publisher import EventPublisher
from skws.serve.measures import Measures
from skws.serve.request_guard import SearchBody
from skws.serve.routes import AppState, RequestQueue, make_app, search_answer
from skws.serve.saved import SavedSearch
from skws.serve.served_job import ServedJob
from skws.serve.server_options import StreamLimits
from skws.serve.streams import EventStreams
from skws.spec.query_spec import Query
from skws_schema.budgets import TimeLimitError
from tests.jobs.test_sinks import result
from tests.jobs.watching import Notes, request
from tests.waiting import PATIENCE, until

LIMIT = 0.4


@pytest.mark.parametrize(
    "request_of",
    [
        lambda job: job.search(Query("ada"), 8, LIMIT),
        lambda job: job.complete("lam", 8, LIMIT),
        lambda job: job.alive(list, LIMIT),
    ],
    ids=["search", "complete", "alive"],
)
def test_a_request_gives_up_if_another_one_has_the_turn(
    request_of: Callable[[ServedJob], object], tmp_path: Path
) -> None:
    (tmp_path / "in.jsonl").touch()
    job = ServedJob(
        request(tmp_path / "in.jsonl", queries={}), Notes().log, lambda _: None, keep=0, most_saved=0
    )
    has_turn, may_end = Event(), Event()

    def choose() -> Sequence[SavedSearch]:
        has_turn.set()
        assert may_end.wait(PATIENCE)
        return ()

    with ThreadPoolExecutor(2) as executor:
        executor.submit(job.run)
        try:
            until(lambda: job.ready)
            executor.submit(job.alive, choose, PATIENCE)
            assert has_turn.wait(PATIENCE)
            with pytest.raises(TimeLimitError, match="the job is busy"):
                request_of(job)
        finally:
            may_end.set()
            job.stop()


def test_marks_of_long_texts_keep_to_the_limit() -> None:
    def marks(*_: str) -> list[Span]:
        sleep(0.6 * LIMIT)
        return [(0, 3, 0)]

    searched = Searched([result(number) for number in range(5)], 5, 5, complete=True)
    job = SimpleNamespace(search=lambda *_: (searched, ()), marks=lambda _: marks, hub=None)
    streams = EventStreams(StreamLimits())
    state = AppState(cast("ServedJob", job), streams, Measures(streams, cast("EventPublisher", None)))
    body = SearchBody.model_validate({"query": "ada", "marks": True})
    answer = orjson.loads(search_answer(state, body, LIMIT))
    assert ["marks" in found["tuples"][0] for found in answer["results"]] == [True, True, False, False, False]
    assert answer["notes"] == ["only the best 2 have marks, as time ran out"]


@pytest.mark.parametrize("path", ["/search", "/complete"])
def test_the_wait_for_a_thread_counts_towards_the_limit(path: str) -> None:
    """Of requests that arrive together, the last one waited for all others first."""
    begun: list[float] = []

    def answer(*arguments: Any) -> Any:
        begun.append(arguments[-1])
        sleep(0.3)
        return (Searched([], 0, 5, complete=True), ()) if path == "/search" else []

    job = cast("ServedJob", SimpleNamespace(search=answer, complete=answer))
    streams = EventStreams(StreamLimits())
    state = AppState(job, streams, Measures(streams, cast("EventPublisher", None)))
    state.searches = RequestQueue(1, 9)

    async def statuses() -> list[int]:
        transport = httpx.ASGITransport(make_app(state))
        body = {"query": "ada"} | ({"time_limit": 0.5} if path == "/search" else {})
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
            answers = await asyncio.gather(*(client.post(path, json=body) for _ in range(4)))
        return [answer.status_code for answer in answers]

    answered = asyncio.run(statuses())
    assert answered.count(200) == len(begun) in {1, 2}  # the second one, if the machine is quick
    assert answered.count(504) == 4 - len(begun)
    assert all(seconds < 0.3 for seconds in begun[1:])
