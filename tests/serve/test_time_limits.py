"""The time for which a request waits for its turn counts towards its time limit."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from time import sleep
from types import SimpleNamespace
from typing import Any

import pytest

from skws.serve import served_job
from skws.serve.served_job import ServedJob
from skws_schema.budgets import TimeLimitError, check_time
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
