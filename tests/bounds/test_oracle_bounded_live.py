"""Bounded queries in a live search give all results, also after restarts from constant-size state."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from skws.data.batch import RecordBatch
from skws.data.record import Record
from skws.queries.session import Session
from skws.results.model import LiveResult
from skws.spec.query import Query
from skws.spec.stream import Stream
from skws_windows.window import Unbounded
from tests.bounds.keyword_streams import SCHEMA, SECOND, stream, tables
from tests.strategies import seeds

STREAM = Stream(SCHEMA, Unbounded())
QUERIES = [
    Query("sale:red product:blue", 2, name="a"),
    Query("till:red door:blue", 2, name="b"),
    Query("sale:red price:blue", 3, name="c"),
    Query("till:green", 1, name="d"),
    Query("price:blue", 1, name="e"),
]


def _begun(described: Stream, static: list[Record]) -> Session:
    live = Session(described)
    live.load_tables(static)
    for standing in QUERIES:
        live.add(standing)
    return live


def _restarted(live: Session, static: list[Record]) -> tuple[Session, int]:
    """As a host does it after a failure, and the size of the state."""
    states = live.snapshot()
    again = _begun(live.stream, static)
    again.seek(live.position, live.now)
    again.restore(states)
    again.restore({})
    return again, sum(map(len, states.values()))


def _shown(results: list[LiveResult]) -> list[bytes]:
    return sorted(result.to_json() for result in results)


def _with_deletions(chance: random.Random, records: list[Record]) -> list[Record]:
    """Some tills, doors and prices are deleted again."""
    deleted = [
        r._replace(time=r.time + chance.randrange(1, 5) * SECOND, delete=True)
        for r in records
        if r.relation in (2, 4, 5) and chance.random() < 0.3
    ]
    return sorted([*records, *deleted], key=lambda r: r.time)


@pytest.mark.parametrize("lateness", [0, 2 * SECOND])
@seeds(2, 6)
def test_results_through_restarts(seed: int, lateness: int) -> None:
    chance = random.Random(seed)
    static, records = tables(chance), _with_deletions(chance, stream(chance, 240))
    live = _begun(replace(STREAM, lateness=lateness), static)
    kept = _begun(replace(STREAM, lateness=lateness, force_unbounded=True), static)
    assert not live.keeps
    assert kept.keeps
    first = 0
    while first < len(records):
        size = chance.randrange(1, 30)
        batch = RecordBatch.of(records[first : first + size])
        assert _shown(live.take(batch)) == _shown(kept.take(batch))
        first += size
        live, _ = _restarted(live, static)


def test_the_state_does_not_grow() -> None:
    chance = random.Random(3)
    static = tables(chance)
    live = _begun(STREAM, static)
    sizes = []
    for part in range(6):
        records = [r._replace(time=r.time + part * 10**9) for r in stream(chance, 400) if r.relation != 4]
        live.take(RecordBatch.of(records))
        live, size = _restarted(live, static)
        sizes.append(size)
    assert max(sizes) < 2000, sizes
    assert live.load().live < 60
