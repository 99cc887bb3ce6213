"""The time for which a request waits for its turn counts towards its time limit."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from time import sleep
from types import SimpleNamespace
from typing import Any, cast

import orjson
import pytest

from skws.keywords.match import Span
from skws.queries.keywords.searching import Searched
from skws.serve import routes, served_job
from skws.serve.event_publisher import EventPublisher
from skws.serve.measures import Measures
from skws.serve.request_guard import SearchBody
from skws.serve.routes import AppState
from skws.serve.served_job import ServedJob
from skws.serve.server_options import StreamLimits
from skws.serve.streams import EventStreams
from skws_schema.budgets import TimeLimitError, check_time
from tests.jobs.test_sinks import result
from tests.sources.following import SCHEMA

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
    body = SearchBody.model_validate({"query": "ada", "marks": True, "time_limit": LIMIT})
    answer = orjson.loads(routes.search_answer(state, body))
    assert ["marks" in found["tuples"][0] for found in answer["results"]] == [True, True, False, False, False]
    assert answer["notes"] == ["only the best 2 have marks, as time ran out"]
