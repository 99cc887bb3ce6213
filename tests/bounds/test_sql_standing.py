"""Queries in SQL as standing queries: through restarts, on shards, and by the command line."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pytest

from skws.data.batch import RecordBatch
from skws.data.record import Record
from skws.queries.kinds import check
from skws.queries.partitioning import Part, Partitioning
from skws.queries.results import read_result
from skws.queries.session import Session
from skws.queries.sql.kind import SqlKind
from skws.queries.sql.result import SqlResult
from skws.spec.query import SQL, Query
from skws.spec.stream import Stream
from skws_bounds.run import Run
from skws_bounds.sql import parse_sql
from skws_schema.errors import BadRecordsError, UsageError
from skws_windows.window import TimeWindow
from tests.bounds.bounds_queries import SECOND, STREAMS
from tests.bounds.standing_runs import through_restarts
from tests.commands import Skws
from tests.strategies import seeds

EXAMPLE = "SELECT s.a, t.b FROM s, t, u WHERE s.i > t.j AND t.j > u.k AND s.a > t.b AND 0 < t.b AND t.b < 5"
KEPT = "SELECT t.b, r.y FROM s, t, r WHERE s.i > t.j AND t.b = r.x AND s.a2 > 1 AND s.a2 < 5 AND s.a2 = r.y"
DISTINCT = "SELECT DISTINCT t.b FROM s, t WHERE s.i > t.j AND t.b > 0 AND t.b < 5 AND s.a > t.b2"
STREAM = Stream(STREAMS, TimeWindow(SECOND))
QUERIES = [Query(text, 5, SQL, name=name) for name, text in (("e", EXAMPLE), ("k", KEPT), ("d", DISTINCT))]


def _records(seed: int, count: int) -> tuple[list[Record], list[Record]]:
    """A table, and a stream with several tuples at one time."""
    chance = random.Random(seed)
    static = [Record(4, 0, (chance.randrange(5), chance.randrange(5))) for _ in range(4)]
    time, stream = 0, []
    for _ in range(count):
        time += chance.choice((0, 0, 1)) * SECOND
        row = (chance.randrange(-1, 6), chance.randrange(-1, 6), time)
        stream.append(Record(chance.randrange(4), time, row))
    return static, stream


def _expected(static: list[Record], stream: list[Record]) -> Counter[tuple[object, ...]]:
    found: Counter[tuple[object, ...]] = Counter()
    times = sorted({record.time for record in stream})
    for standing in QUERIES:
        engine = Run(parse_sql(standing.text, STREAMS), STREAMS, {"r": [r.row for r in static]})
        for time in times:
            rows = {
                name: [r.row for r in stream if r.time == time and STREAMS.relations[r.relation].name == name]
                for name in "stuv"
            }
            for values, count in engine.step(time, rows):
                found[standing.name, time / SECOND, values] += count
    return found


def _found(results: Sequence[object]) -> Counter[tuple[object, ...]]:
    found: Counter[tuple[object, ...]] = Counter()
    for result in results:
        assert isinstance(result, SqlResult)
        found[result.query, result.start, tuple(result.tuples[0].row.values())] += result.count
    assert len(found) == len(results)
    return found


def _begun(static: list[Record]) -> Session:
    live = Session(STREAM, keywords=False)
    live.load_tables(static)
    for standing in QUERIES:
        assert live.add(standing) == []
    return live


@seeds(1, 4)
def test_results_through_restarts_in_the_midst_of_an_instant(seed: int) -> None:
    static, stream = _records(seed, 120)
    results = through_restarts(lambda: _begun(static), stream, seed)
    expected = _expected(static, stream)
    assert len(expected) > 15
    assert _found(results) == expected


def test_the_state_does_not_grow() -> None:
    static, stream = _records(1, 3000)
    live = _begun(static)
    sizes = []
    for first in range(0, 3000, 500):
        live.take(RecordBatch.of(stream[first : first + 500]))
        sizes.append(sum(map(len, live.snapshot().values())))
    assert sizes[-1] < sizes[0] + 100


def test_results_read_back_from_their_lines() -> None:
    result = SqlResult.of("visits", 5.0, {"page": 3, "count": 1}, 1 << 70)
    assert SqlResult.from_dict(result.to_dict()) == result == read_result(result.to_json())
    small = SqlResult.of("visits", 5.0, {"page": 3, "count": 1}, 7)
    assert read_result(small.to_json()) == small
    assert small.id != SqlResult.of("visits", 6.0, {"page": 3, "count": 1}, 7).id


def test_what_is_refused() -> None:
    with pytest.raises(UsageError, match="C3"):
        check(Query("SELECT s.a FROM s, t", 5, SQL, name="x"), STREAM)
    with pytest.raises(UsageError, match="line 1, column 8"):
        check(Query("SELECT s.nope FROM s", 5, SQL, name="x"), STREAM)
    live = _begun([])
    with pytest.raises(BadRecordsError, match="deletes a tuple of s; query 'e'"):
        live.take(RecordBatch.of([Record(0, SECOND, (1, 1, SECOND), True)]))


def test_one_shard_has_the_whole_query() -> None:
    shares = [Part(number, 3, Partitioning.ROOTS) for number in range(3)]
    assert sum(SqlKind().owns(QUERIES[0], STREAM, share) for share in shares) == 1


def test_the_command_over_a_source(tmp_path: Path, skws: Skws) -> None:
    (tmp_path / "shop.yaml").write_text(
        "version: 1\nname: shop\nrelations:\n"
        "  visit: {attributes: {page: {type: integer, min: 1, max: 9}, at: timestamp}, time: at}\n"
        "  orders: {attributes: {amount: integer, at: timestamp, due: timestamp}, time: at}\n"
    )
    rows: list[tuple[str, dict[str, object]]] = [
        ("visit", {"page": 3, "at": 1}),
        ("visit", {"page": 3, "at": 2}),
    ]
    rows.append(("orders", {"amount": 5, "at": 9, "due": "2026-01-01T00:00:00Z"}))
    lines = (json.dumps({"relation": name, "row": row}) for name, row in rows)
    (tmp_path / "shop.jsonl").write_text("\n".join(lines))
    (tmp_path / "visits.sql").write_text(
        "SELECT orders.due, visit.page FROM orders, visit WHERE orders.at > visit.at"
    )
    replay = tmp_path / "shop.jsonl"
    query = ("bounds", "run", tmp_path / "visits.sql", "--schema", tmp_path / "shop.yaml", "--quiet")
    source = ("--source", f"replay:{replay}?speed=1e9", "--engine", "local")
    (told,) = skws(*query, *source).records
    row = {"due": "2026-01-01T00:00:00Z", "page": 3}
    assert (told["query"], told["count"], told["tuples"][0]["row"]) == ("visits", 2, row)
    assert skws(*query, "--replay", replay).records == [{"time": 9.0, "row": row, "count": 2}]
    for more in ((), (*source, "--replay", tmp_path), ("--replay", replay, "--sink", "jsonl:x")):
        assert skws(*query, *more).code == 2
