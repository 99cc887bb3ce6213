"""SQL and patterns in constant memory as standing queries: through restarts, and by the command line."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from skws.data.batch import Record, RecordBatch
from skws.queries.kinds import check
from skws.queries.session import Session
from skws.queries.sql import SqlResult
from skws.results.model import LiveResult
from skws.spec.query import PATTERN, SELECT, SELECTED, SQL, Query, Stream
from skws_bounds.run import Run
from skws_bounds.sql import parse_sql
from skws_schema.errors import BadRecordsError, UsageError
from skws_schema.yaml.load import parse_schema
from skws_windows.window import TimeWindow, Unbounded
from tests.bounds import keyword_streams, pattern_streams
from tests.bounds.bounds_queries import SECOND, STREAMS
from tests.commands import Skws
from tests.strategies import seeds

SQLS = (
    "SELECT s.a, t.b FROM s, t, u WHERE s.i > t.j AND t.j > u.k AND s.a > t.b AND 0 < t.b AND t.b < 5",
    "SELECT t.b, r.y FROM s, t, r WHERE s.i > t.j AND t.b = r.x AND s.a2 > 1 AND s.a2 < 5 AND s.a2 = r.y",
    "SELECT DISTINCT t.b FROM s, t WHERE s.i > t.j AND t.b > 0 AND t.b < 5 AND s.a > t.b2",
)
WHOLE = (
    "refund r where r.amount > 1",
    '"leeds" f',
    "login l OR transfer l",
    "rule u ; refund r where u.user = r.user",
    "(rule u AND refund r) where u.user = r.user",
    "login l ; rule u where l.user = u.user",
    "(rule u ; refund r) OR (rule u ; login l) where u.user = 3",
    "rule u ; rule w ; refund r where u.user = w.user = r.user",
    "Q(u, t, a) <- rule(u, t), refund(u, a)",
)
Told = Counter[tuple[str, int, tuple[object, ...]]]
"""How often each query gives a row at a time."""


@dataclass(frozen=True)
class Standing:
    """Queries over a stream, and what to compare them with; ``stream``: rows of tables and records."""

    on: Stream
    queries: Sequence[Query]
    stream: Callable[[int, int], tuple[list[Record], list[Record]]]

    def begun(self, static: Sequence[Record]) -> Session:
        live = Session(self.on, keywords=False)
        live.load_tables(static)
        for query in self.queries:
            check(query, self.on)
            assert live.add(query) == []
        return live


def letters(seed: int, count: int) -> tuple[list[Record], list[Record]]:
    """A table, and a stream with several tuples at one time."""
    chance = random.Random(seed)
    static = [Record(4, 0, (chance.randrange(5), chance.randrange(5))) for _ in range(4)]
    time, stream = 0, []
    for _ in range(count):
        time += chance.choice((0, 0, 1)) * SECOND
        row = (chance.randrange(-1, 6), chance.randrange(-1, 6), time)
        stream.append(Record(chance.randrange(4), time, row))
    return static, stream


def bank(seed: int, count: int) -> tuple[list[Record], list[Record]]:
    return [], pattern_streams.stream(seed, count)


def shop(seed: int, count: int) -> tuple[list[Record], list[Record]]:
    """Some tills, doors and prices are deleted again."""
    chance = random.Random(seed)
    static, records = keyword_streams.tables(chance), keyword_streams.stream(chance, count)
    deleted = [
        r._replace(time=r.time + chance.randrange(1, 5) * SECOND, delete=True)
        for r in records
        if r.relation in (2, 4, 5) and chance.random() < 0.3
    ]
    return static, sorted([*records, *deleted], key=lambda r: r.time)


SHOP = Stream(keyword_streams.SCHEMA, Unbounded())
KEYWORDS = (
    ("sale:red product:blue", 2),
    ("till:red door:blue", 2),
    ("sale:red price:blue", 3),
    ("till:green", 1),
    ("price:blue", 1),
)
BANK = Stream(pattern_streams.SCHEMA, Unbounded())
OF_SQL = Standing(
    Stream(STREAMS, TimeWindow(SECOND)), [Query(text, 5, SQL, name=text) for text in SQLS], letters
)
OF_SELECTED = Standing(
    BANK,
    [
        Query(text, 5, SELECTED, {SELECT: s}, name=f"q{i}")
        for i, (text, s) in enumerate(pattern_streams.PATTERNS)
    ],
    bank,
)
OF_WHOLE = Standing(BANK, [Query(text, 5, PATTERN, name=text) for text in WHOLE], bank)
OF_KEYWORDS = Standing(SHOP, [Query(text, size, name=text) for text, size in KEYWORDS], shop)
KINDS = {"sql": OF_SQL, "selected": OF_SELECTED, "whole tuples": OF_WHOLE, "keywords": OF_KEYWORDS}


def batches(records: Sequence[Record], seed: int) -> Iterator[RecordBatch]:
    """A few records each."""
    chance, first = random.Random(seed), 0
    while first < len(records):
        size = chance.randrange(1, 19)
        yield RecordBatch.of(records[first : first + size])
        first += size


def through_restarts(begun: Callable[[], Session], records: Sequence[Record], seed: int) -> list[LiveResult]:
    """The results of a search that ends and goes on from its state after each of ``batches``."""
    live = begun()
    results: list[LiveResult] = []
    for batch in batches(records, seed):
        results += live.take(batch)
        assert not live.keeps
        states, position, now = live.snapshot(), live.position, live.now
        live = begun()
        live.seek(position, now)
        live.restore(states)
    return results + list(live.take(RecordBatch.of(()), ended=True))


def told(results: Sequence[LiveResult]) -> Told:
    found: Told = Counter()
    for result in results:
        assert isinstance(result, SqlResult)
        row = tuple(result.tuples[0].row.values())
        found[result.query, round(result.start * SECOND), row] += result.count
    return found


def by_runs(static: Sequence[Record], stream: Sequence[Record]) -> Told:
    """Of the queries in SQL, instant by instant."""
    found: Told = Counter()
    for text in SQLS:
        run = Run(parse_sql(text, STREAMS), STREAMS, {"r": [r.row for r in static]})
        for time in sorted({record.time for record in stream}):
            now = [r for r in stream if r.time == time]
            rows = {name: [r.row for r in now if STREAMS.index[name] == r.relation] for name in "stuv"}
            for values, count in run.step(time, rows):
                found[text, time, values] += count
    return found


def by_the_pattern_engine(stream: Sequence[Record]) -> Told:
    found: Told = Counter()
    for query in OF_SELECTED.queries:
        shown = pattern_streams.by_the_pattern_engine(query.text, query.options[SELECT], stream)
        found.update({(query.text, time, row): count for (time, row), count in shown.items()})
    return found


@seeds(1, 4)
def test_results_through_restarts_in_the_midst_of_an_instant(seed: int) -> None:
    static, stream = letters(seed, 120)
    expected = by_runs(static, stream)
    assert len(expected) > 15
    assert told(through_restarts(lambda: OF_SQL.begun(static), stream, seed)) == expected
    _, stream = bank(seed, 80)
    found = told(through_restarts(lambda: OF_SELECTED.begun(()), stream, seed))
    assert found == by_the_pattern_engine(stream)


KEEPING = {query.text: replace(OF_WHOLE, queries=[query]) for query in OF_WHOLE.queries} | {
    f"keywords, {lateness} s late": replace(OF_KEYWORDS, on=replace(SHOP, lateness=lateness * SECOND))
    for lateness in (0, 2)
}


@pytest.mark.parametrize("asked", KEEPING)
@seeds(1, 6)
def test_results_through_restarts_are_those_of_a_run_that_keeps_all(asked: str, seed: int) -> None:
    standing = KEEPING[asked]
    static, records = standing.stream(5 + seed, 240)
    keeping = replace(standing, on=replace(standing.on, force_unbounded=True)).begun(static)
    expected = [result for batch in batches(records, seed) for result in keeping.take(batch)]
    found = through_restarts(lambda: standing.begun(static), records, seed)
    assert len(expected) > 3 or seed > 0  # other seeds may draw few results
    assert sorted(r.to_json() for r in found) == sorted(r.to_json() for r in expected)
    starts = [r.start for r in found if r.start is not None]
    assert starts == sorted(starts) or asked not in WHOLE


@pytest.mark.parametrize("kind", KINDS)
def test_the_state_does_not_grow(kind: str) -> None:
    standing = KINDS[kind]
    static, records = standing.stream(1, 3000)
    live, sizes = standing.begun(static), []
    for first in range(0, 3000, 600):
        live.take(RecordBatch.of(records[first : first + 600]))
        sizes.append({name: len(state) for name, state in live.snapshot().items()})
    assert all(size < sizes[0][name] * 1.1 + 500 for name, size in sizes[-1].items()), sizes


def test_deletions_are_refused() -> None:
    with pytest.raises(BadRecordsError, match="deletes a tuple of s; query"):
        OF_SQL.begun(()).take(RecordBatch.of([Record(0, SECOND, (1, 1, SECOND), True)]))


@pytest.mark.parametrize(
    ("attributes", "why"),
    [
        (
            "{n: integer}, key: [n]",
            "the name of each a tuple depends on whether it replaced another of its key",
        ),
        ("{n: integer}, finite: true", "no max of its time says when it ends"),
    ],
)
def test_what_the_theorem_does_not_speak_of_is_refused(attributes: str, why: str) -> None:
    text = f"version: 1\nname: x\nrelations:\n  a: {{attributes: {attributes}}}\njoins: []\n"
    with pytest.raises(UsageError, match=why):
        check(Query("a x where x.n > 3", 5, PATTERN, name="q"), Stream(parse_schema(text), Unbounded()))


def test_the_commands_show_attributes(tmp_path: Path, skws: Skws) -> None:
    (tmp_path / "shop.yaml").write_text(
        "version: 1\nname: shop\nwindow: none\nrelations:\n"
        "  visit: {attributes: {page: {type: integer, min: 1, max: 9}, at: timestamp}, time: at}\n"
        "  orders: {attributes: {amount: integer, at: timestamp}, time: at}\n"
    )
    rows: list[tuple[str, dict[str, int]]] = [
        ("visit", {"page": 3, "at": 1}),
        ("visit", {"page": 3, "at": 2}),
        ("orders", {"amount": 5, "at": 9}),
    ]
    replay = tmp_path / "shop.jsonl"
    replay.write_text("\n".join(json.dumps({"relation": name, "row": row}) for name, row in rows))
    asked = ("--schema", tmp_path / "shop.yaml", "--engine", "local", "--quiet")
    pattern = ("--pattern", "visit v ; orders o", "--select", "v.page, o.amount")
    search = ("search", *asked, "--replay", replay)
    watch = ("watch", *asked, "--source", f"replay:{replay}?speed=1e9")
    (told,) = skws(*search, *pattern, "--format", "jsonl").records
    assert skws(*watch, *pattern, "--format", "jsonl").records == [told]
    assert (told["count"], told["tuples"][0]["row"]) == (2, {"v.page": 3, "o.amount": 5})
    assert skws(*search, *pattern, "--format", "count").out == "2\n"
    assert skws(*search, *pattern).out.endswith("row(3, 5)  2 times\n")
    for refused in (
        (*search, *pattern, "--format", "csv"),
        (*search, *pattern, "--window", "5 s"),
        (*search, "--pattern", "orders o ; visit v", "--select", "o.amount"),
        (*watch, "--pattern", "orders o ; visit v", "--select", "o.amount"),
        (*search, "red", "--select", "o.amount"),
        (*watch, "red", "--select", "o.amount"),
    ):
        assert skws(*refused).code == 2, refused


def test_the_command_of_sql_over_a_source(tmp_path: Path, skws: Skws) -> None:
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
