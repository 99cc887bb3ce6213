"""Runs of standing queries with state over records, with restarts."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

from skws.data.batch import RecordBatch
from skws.data.record import Record
from skws.queries.session import Session
from skws.results.model import LiveResult


def through_restarts(begun: Callable[[], Session], records: Sequence[Record], seed: int) -> list[LiveResult]:
    """The results of a search that ends and goes on from its state after a few records, again and again."""
    chance, live, first = random.Random(seed), begun(), 0
    results: list[LiveResult] = []
    while first < len(records):
        size = chance.randrange(1, 19)
        results += live.take(RecordBatch.of(records[first : first + size]))
        first += size
        assert not live.keeps
        states, position, now = live.snapshot(), live.position, live.now
        live = begun()
        live.seek(position, now)
        live.restore(states)
    return results + list(live.take(RecordBatch.of(()), ended=True))
