"""A session keeps one operator a group of queries, however they are added."""

from __future__ import annotations

import random

import pytest

from skws.data.batch import RecordBatch
from skws.data.record import Record
from skws.queries.session import Session
from skws.queries.windowed.kind import WindowedQueries
from skws.queries.windowed.pattern import WindowedPatterns
from skws.results.model import LiveResult
from skws.spec.query import PATTERN, TOP, Query
from skws.spec.stream import Stream
from skws_schema.errors import QueryError, UsageError
from skws_schema.yaml.load import parse_schema
from skws_windows.window import ExpressionWindow, TimeWindow
from tests.jobs.watching import SCHEMA

OVER = ExpressionWindow("longest match [customer] .* [order and time - time[-1] < 2 s] per cid")
QUERIES = (
    Query("ada lamp").named("keywords", 4),
    Query("lamp", kind=TOP, options={"size": "2"}).named("best", 4),
    Query.of_pattern("customer c ; order o where c.cid = o.cid").named("pattern", 4),
    Query("ada lamp").over(OVER, allowed=True).named("windowed", 4),
    Query("lamp").over(OVER, allowed=True).named("also windowed", 4),
    *(
        Query(text).named(text, 4)
        for text in ("ada", "eve lamp", "lamp", "eve or ada", "-ada lamp", "la* eve")
    ),
)


def stream(rng: random.Random, count: int, begin: int) -> RecordBatch:
    records, time = [], begin
    for _ in range(count):
        time += rng.choice((0, 500_000, 1_000_000))
        cid = rng.randint(1, 3)
        row = (cid, rng.choice(("ada", "eve"))) if rng.random() < 0.5 else None
        records.append(Record(0, time, row) if row else Record(1, time, (cid, "lamp")))
    return RecordBatch.of(records)


def lines(results: list[LiveResult]) -> list[bytes]:
    return sorted(result.to_json() for result in results)


@pytest.mark.parametrize("seed", range(5))
def test_adding_many_at_once_is_adding_each(seed: int) -> None:
    together, apart = (Session(Stream(SCHEMA, TimeWindow(60_000_000))) for _ in range(2))
    rng = random.Random(seed)
    before = stream(rng, 20, 0)
    for live in (together, apart):
        live.take(before)
    snapshots = together.add_all(QUERIES)
    assert lines(snapshots) == lines([result for query in QUERIES for result in apart.add(query)])
    found = len(snapshots)
    for part in range(1, 5):
        batch = stream(rng, 12, part * 20_000_000)
        results = together.take(batch)
        assert lines(results) == lines(apart.take(batch))
        found += len(results)
    assert found > 20
    assert len(together.operators) == len(apart.operators) == 4  # keywords, best, pattern, windowed
    assert together.counts() == apart.counts()


def test_a_name_that_is_taken_adds_none() -> None:
    live = Session(Stream(SCHEMA, TimeWindow(5_000_000)))
    live.add(QUERIES[0])
    for queries in ([QUERIES[1], QUERIES[0]], [QUERIES[1], QUERIES[1]]):
        with pytest.raises(UsageError, match="already"):
            live.add_all(queries)
    with pytest.raises(QueryError):
        live.add_all([QUERIES[1], Query('"').named("bad", 4)])
    with pytest.raises(UsageError, match="no standing query"):
        live.remove("bad")


def test_an_operator_goes_with_its_last_query() -> None:
    live = Session(Stream(SCHEMA, OVER), keywords=False)
    patterns = [Query("order o", kind=PATTERN).over(OVER, allowed=True).named(name, 4) for name in "ab"]
    live.add_all([*QUERIES[3:5], *patterns])
    kinds = {WindowedQueries, WindowedPatterns}
    assert {type(each) for each in live.operators.values()} == kinds
    for name in ("windowed", "also windowed", "a"):
        live.remove(name)
    assert {type(each) for each in live.operators.values()} & kinds == {WindowedPatterns}
    live.remove("b")
    assert not live.operators
    live.add(QUERIES[3])
    assert len(live.operators) == 1


def test_a_state_for_one_query_of_a_group() -> None:
    """The other goes on as it was."""
    queries = [*QUERIES[3:5], Query("order o", kind=PATTERN).over(OVER, allowed=True).named("p", 4)]
    rng = random.Random(3)
    live, alone = (Session(Stream(SCHEMA, OVER), keywords=False) for _ in range(2))
    live.add_all(queries)
    alone.add(queries[1])
    for part in range(4):
        batch = stream(rng, 12, part * 20_000_000)
        found = live.take(batch)
        assert lines([r for r in found if r.query == "lamp"]) == lines(alone.take(batch))
        states = live.snapshot()
        live.restore({name: state for name, state in states.items() if name != "also windowed"})
        assert live.snapshot() == states
    assert len(live.operators) == 3  # two of windowed queries, one of patterns


def test_results_of_tables_alone_over_windows() -> None:
    """They are given when tables are loaded, or when a query is added after them; once for each query."""
    schema = parse_schema(
        """
relations:
  item: {attributes: {item: integer, title: text}, table: true, key: [item]}
  sale: {attributes: {item: integer, note: text}}
joins: [{on: sale.item = item.item}]
"""
    )
    window = ExpressionWindow("every open when sale close when sale")
    queries = [Query(text).over(window, allowed=True).named(text, 2) for text in ("lamp", "desk lamp", "red")]
    tables = [Record(0, 0, (1, "desk lamp")), Record(0, 0, (2, "lamp"))]
    before, after = (Session(Stream(schema, window), keywords=False) for _ in range(2))
    before.add_all(queries)
    loaded = before.load_tables(tables)
    assert after.load_tables(tables) == []
    assert lines(loaded) == lines(after.add_all(queries))
    assert [result.query for result in loaded] == ["lamp", "lamp", "desk lamp"]
    sold = RecordBatch.of([Record(1, 1_000_000, (2, "red")), Record(1, 2_000_000, (1, "red"))])
    results = before.take(sold)
    assert lines(results) == lines(after.take(sold))
    assert results
