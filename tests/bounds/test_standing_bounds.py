"""SQL in constant memory as standing queries, across restarts and from the command line."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from skws.data.batch import Record, RecordBatch, batched
from skws.queries.kinds import plan_of
from skws.queries.session import Session
from skws.results.result import Result
from skws.spec.query_spec import SQL, Query, Stream
from skws_bounds.query_run import UnionRun
from skws_bounds.sql_reader import parse_sql
from skws_schema.errors import BadRecordsError
from skws_windows.window import TimeWindow
from tests.bounds.bounds_queries import SECOND, STREAMS
from tests.commands import Skws
from tests.strategies import seeds

SQLS = (
    "SELECT s.a, t.b FROM s, t, u WHERE s.i > t.j AND t.j > u.k AND s.a > t.b AND 0 < t.b AND t.b < 5",
    "SELECT t.b, r.y FROM s, t, r WHERE s.i > t.j AND t.b = r.x AND s.a2 > 1 AND s.a2 < 5 AND s.a2 = r.y",
    "SELECT DISTINCT t.b FROM s, t WHERE s.i > t.j AND t.b > 0 AND t.b < 5 AND s.a > t.b2",
)
ResultCounts = Counter[tuple[str, int, tuple[object, ...]]]
"""The number of times that each query returns a row at a time."""


def random_records(seed: int, count: int) -> tuple[list[Record], list[Record]]:
    """A table, and a stream with several tuples at the same time."""
    rng = random.Random(seed)
    static = [Record(4, 0, (rng.randrange(5), rng.randrange(5))) for _ in range(4)]
    time, stream = 0, []
    for _ in range(count):
        time += rng.choice((0, 0, 1)) * SECOND
        row = (rng.randrange(-1, 6), rng.randrange(-1, 6), time)
        stream.append(Record(rng.randrange(4), time, row))
    return static, stream


QUERIES = [Query(text, 5, SQL, name=text) for text in SQLS]


def new_session(static: Sequence[Record]) -> Session:
    stream = Stream(STREAMS, TimeWindow(SECOND))
    session = Session(stream, keywords=False)
    session.load_tables(batched(static))
    for query in QUERIES:
        plan_of(query, stream)
        assert session.add(query) == []
    return session


def batches(records: Sequence[Record], seed: int) -> Iterator[RecordBatch]:
    """Batches of a few records."""
    rng, first = random.Random(seed), 0
    while first < len(records):
        size = rng.randrange(1, 19)
        yield RecordBatch.of(records[first : first + size])
        first += size


def results_across_restarts(static: Sequence[Record], records: Sequence[Record], seed: int) -> list[Result]:
    """The results of a search that is stopped and resumed from its state after each of ``batches``."""
    session = new_session(static)
    results: list[Result] = []
    for batch in batches(records, seed):
        results += session.take(batch)
        assert not session.keeps
        states, position, now = session.snapshot(), session.position, session.now
        session = new_session(static)
        session.seek(position, now)
        session.restore(states)
    return results + list(session.take(RecordBatch.of(()), ended=True))


def result_counts(results: Sequence[Result]) -> ResultCounts:
    counts: ResultCounts = Counter()
    for result in results:
        assert result.start is not None
        row = tuple(result.tuples[0].row.values())
        counts[result.name, round(result.start * SECOND), row] += result.count or 0
    return counts


def expected_counts(static: Sequence[Record], stream: Sequence[Record]) -> ResultCounts:
    """The results of the SQL queries, instant by instant."""
    counts: ResultCounts = Counter()
    for text in SQLS:
        run = UnionRun(parse_sql(text, STREAMS), STREAMS, {"r": [r.row for r in static]})
        for time in sorted({record.time for record in stream}):
            records = [r for r in stream if r.time == time]
            rows = {name: [r.row for r in records if STREAMS.index[name] == r.relation] for name in "stuv"}
            for values, count in run.step(time, rows):
                counts[text, time, values] += count
    return counts


@seeds(1, 4)
def test_restarts_within_an_instant_do_not_change_results(seed: int) -> None:
    static, stream = random_records(seed, 120)
    expected = expected_counts(static, stream)
    assert len(expected) > 15
    assert result_counts(results_across_restarts(static, stream, seed)) == expected


def test_the_state_of_bounded_queries_does_not_grow() -> None:
    static, records = random_records(1, 3000)
    session, sizes = new_session(static), []
    for first in range(0, 3000, 600):
        session.take(RecordBatch.of(records[first : first + 600]))
        sizes.append({name: len(state) for name, state in session.snapshot().items()})
    assert all(size < sizes[0][name] * 1.1 + 500 for name, size in sizes[-1].items()), sizes


def test_standing_sql_queries_reject_deletions() -> None:
    with pytest.raises(BadRecordsError, match="deletes a tuple of s; query"):
        new_session(()).take(RecordBatch.of([Record(0, SECOND, (1, 1, SECOND), True)]))


def test_bounds_run_reads_a_source(tmp_path: Path, skws: Skws) -> None:
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
    (result,) = skws(*query, *source).records
    row = {"due": "2026-01-01T00:00:00Z", "page": 3}
    assert (result["name"], result["count"], result["tuples"][0]["row"]) == ("visits", 2, row)
    assert skws(*query, "--replay", replay).records == [{"time": 9.0, "row": row, "count": 2}]
    for options in ((), (*source, "--replay", tmp_path), ("--replay", replay, "--sink", "jsonl:x")):
        assert skws(*query, *options).code == 2
