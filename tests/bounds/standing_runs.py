"""Standing queries that keep a state, run over records by way of restarts."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

from skws.batches import RecordBatch
from skws.live.search import LiveSearch
from skws.records import Record
from skws.results.model import LiveResult


def through_restarts(
    begun: Callable[[], LiveSearch], records: Sequence[Record], seed: int
) -> list[LiveResult]:
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
        live.stand_at(position, now)
        live.restore(states)
    return results + list(live.take(RecordBatch.of(()), ended=True))
