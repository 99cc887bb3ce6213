"""The time for which a request waits for its turn counts towards its time limit."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from time import sleep
from types import SimpleNamespace
from typing import Any, cast

import httpx
import orjson
import pytest

from skws.keywords.match import Span
from skws.queries.keywords.searching import Searched
from skws.serve import routes, served_job
from skws.serve.event_publisher import EventPublisher
from skws.serve.measures import Measures
from skws.serve.request_guard import SearchBody
from skws.serve.routes import AppState, RequestQueue, make_app
from skws.serve.served_job import ServedJob
from skws.serve.server_options import StreamLimits
from skws.serve.streams import EventStreams
from skws_schema.budgets import TimeLimitError, check_time
from tests.jobs.test_sinks import result
from tests.sources.film_database import SCHEMA

LIMIT = 0.4


class BusyTurns:
    @contextmanager
    def turn(self, seconds: float) -> Iterator[None]:
        assert seconds == LIMIT
        sleep(0.75 * LIMIT)
        yield


def work(*_: Any, **__: Any) -> Sequence[Any]:
    sleep(0.5 * LIMIT)
    check_time()
    return ()


@pytest.mark.parametrize(
    "request_of",
    [lambda job: job.complete("lam", 8, LIMIT), lambda job: job.alive(work)],
    ids=["complete", "alive"],
)
def test_the_wait_for_a_turn_counts_towards_the_limit(
    request_of: Callable[[ServedJob], object], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(served_job, "_ALIVE_SECONDS", LIMIT)
    job = object.__new__(ServedJob)
    worker = SimpleNamespace(live=SimpleNamespace(completions=work))
    watch = SimpleNamespace(turns=BusyTurns(), worker=worker, schema=SCHEMA)
    vars(job).update(_ready=True, _watch=watch, hub=SimpleNamespace(log=SimpleNamespace(last=None)))
    with pytest.raises(TimeLimitError):
        request_of(job)


def test_marks_of_long_texts_keep_to_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    def marks(*_: str) -> list[Span]:
        sleep(0.6 * LIMIT)
        return [(0, 3, 0)]

    monkeypatch.setattr(routes, "marks_of", lambda *_: marks)
    searched = Searched([result(number) for number in range(5)], 5, 5, complete=True)
    job = SimpleNamespace(search=lambda *_: (searched, ()), hub=None)
    streams = EventStreams(StreamLimits())
    state = AppState(cast("ServedJob", job), streams, Measures(streams, cast("EventPublisher", None)))
    body = SearchBody.model_validate({"query": "ada", "marks": True})
    answer = orjson.loads(routes.search_answer(state, body, LIMIT))
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
