"""Tables indexed on disk give the same results as tables loaded into memory."""

from __future__ import annotations

import gc
import json
import os
import random
import stat
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from skws.data.batch import Record, batched
from skws.index.reach import StandingKeywordRows
from skws.keywords.parse import parse_query
from skws.keywords.plan import Plan
from skws.queries.keywords.keyword_operator import USUAL_SIZES, Sizes
from skws.queries.keywords.stream_engine import StreamEngine
from skws.results.result import Result
from skws.spec.query_spec import RankingChoice
from skws_schema.errors import QueryError
from skws_schema.model import Attribute, AttributeType, Join, Relation, Row, Schema
from skws_windows.window import CountWindow, TimeWindow, Unbounded, Window
from tests.strategies import WORDS, examples, query_texts, schemas, seeds, static_rows, streams

WINDOWS: list[Window] = [TimeWindow(2), TimeWindow(9), CountWindow(5), Unbounded()]
ROWS_KEPT = [-1, 3, 1 << 17]  # limits on unreferenced table rows: drop them at once, soon, never in this test
KEYWORD_ROWS = [
    -1,
    2,
    1 << 17,
]  # limits on rows with keywords: load all when reached, some, none in this test


@st.composite
def cases(draw: st.DrawFn) -> tuple[Schema, int, list[Record], list[Record]]:
    schema = draw(schemas(tables=True))
    if len(schema.relations) > 1:
        first = replace(schema.relations[0], table=True)
        schema = replace(schema, relations=(first, *schema.relations[1:]))
    words = draw(st.integers(1, 3))
    static = draw(static_rows(schema, words, max_rows=8))
    stream = draw(streams(schema, words, max_records=30))
    if draw(st.booleans()):
        return _with_texts(schema), words, list(map(_as_texts, static)), list(map(_as_texts, stream))
    return schema, words, static, stream


def _with_texts(schema: Schema) -> Schema:
    """The schema with non-integer join values."""
    kinds = [AttributeType.TEXT, AttributeType.STRING, AttributeType.STRING]
    relations = tuple(
        replace(r, attributes=tuple(Attribute(a.name, k) for a, k in zip(r.attributes, kinds, strict=True)))
        for r in schema.relations
    )
    return replace(schema, relations=relations)


def _as_texts(record: Record) -> Record:
    text, *values = record.row
    return record._replace(row=(text, *(None if value is None else f"value {value}" for value in values)))


@pytest.fixture(autouse=True)
def _cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SKWS_CACHE", str(tmp_path))


def indexed(folder: Path, schema: Schema, static: Sequence[Record], *, excluded: str = "") -> Schema:
    """The schema with files of the static rows, for all tables except ``excluded``."""
    relations = list(schema.relations)
    for number, relation in enumerate(relations):
        if relation.table and relation.name != excluded:
            names = [attribute.name for attribute in relation.attributes]
            rows = [dict(zip(names, r.row, strict=True)) for r in static if r.relation == number]
            path = folder / f"{relation.name}.jsonl"
            path.write_text("".join(json.dumps(row) + "\n" for row in rows))
            relations[number] = replace(relation, source=str(path))
    return replace(schema, relations=tuple(relations))


KINDS = (Attribute("t", AttributeType.TEXT), *(Attribute(n, AttributeType.INTEGER) for n in "xy"))


def relations_of(names: Sequence[str], tables: str) -> tuple[Relation, ...]:
    """Relations with a text and two numbers; ``tables``: the names of those that are tables."""
    return tuple(Relation(n, KINDS, search=("t",), table=n in tables.split()) for n in names)


Change = tuple[int, str, int]
"""The step before which a query is added, or removed if it exists, with the maximum size of its results."""


def compare_engines(
    folder: Path,
    schema: Schema,
    static: Sequence[Record],
    stream: Sequence[Record],
    window: Window,
    changes: Sequence[Change],
    *,
    step: int = 1,
    excluded: str = "",
    sizes: Sizes = USUAL_SIZES,
    **more: Any,
) -> int:
    """Compares an engine with all tables in memory to one with a single one; returns the number of results.

    The first step loads the tables, the others process ``step`` records each. ``more``: arguments of the
    plans.
    """
    indexed_schema = indexed(folder, schema, static, excluded=excluded)
    loaded_rows = [record for record in static if schema.relations[record.relation].name == excluded]
    outputs = []
    for engine_schema, rows in ((schema, static), (indexed_schema, loaded_rows)):
        engine, active = StreamEngine(engine_schema, window, sizes=sizes), set[str]()
        out: list[list[Result]] = []
        for number in range(1 + -(-len(stream) // step)):
            for text, max_size in (
                (text, max_size) for change_step, text, max_size in changes if change_step == number
            ):
                name = f"{text}/{max_size}"
                if name in active:
                    engine.remove(name)
                else:
                    plan = Plan(
                        engine_schema, parse_query(text, engine_schema), window, max_size, name=name, **more
                    )
                    out.append(engine.add(plan))
                active ^= {name}
            start = step * (number - 1)
            results = (
                engine.process(stream[start : start + step]) if number else engine.load_tables(batched(rows))
            )
            # The order in which a tuple completes results of two queries is unspecified.
            out.append(sorted(results, key=lambda result: result.query))
        counts = engine.counts if len(changes) == 1 and not excluded else None
        outputs.append((out, counts))
    assert outputs[1] == outputs[0]
    return sum(map(len, outputs[0][0]))


TEXTS = (
    *("alpha", "beta", "alpha beta", "alpha beta gamma", "alpha -gamma", "alp*", '"alpha pad"', "alhpa~"),
    *("(alpha OR gamma)", "be*a", "alpha beta -r1:", "alpha -r0:", "alpha r0.y!=1", "alpha !r0.x:0..1"),
)


@given(
    cases(),
    st.sampled_from(WINDOWS),
    st.lists(
        st.tuples(st.integers(0, 20), st.sampled_from(TEXTS) | query_texts(), st.integers(1, 5)), max_size=5
    ),
    st.sampled_from([None, RankingChoice(explain=True)]),
    st.builds(Sizes, keyword_rows=st.sampled_from(KEYWORD_ROWS), rows_kept=st.sampled_from(ROWS_KEPT)),
    st.sampled_from([1, 4, 30]),
)
@examples(500, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_indexed_tables_give_the_results_of_loaded_tables(
    tmp_path: Path,
    case: tuple[Schema, int, list[Record], list[Record]],
    window: Window,
    changes: list[Change],
    ranking: RankingChoice | None,
    sizes: Sizes,
    step: int,
) -> None:
    """At least one query exists from the start."""
    schema, words, static, stream = case
    valid_changes: list[Change] = []
    for change_step, text, max_size in changes:
        with suppress(QueryError):
            parse_query(text, schema)
            valid_changes.append((change_step if valid_changes else 0, text, max_size))
    valid_changes = valid_changes or [(0, " ".join(WORDS[:words]), 3)]
    compare_engines(
        tmp_path, schema, static, stream, window, valid_changes, step=step, sizes=sizes, ranking=ranking
    )


@pytest.mark.check
@pytest.mark.parametrize("rows_kept", ROWS_KEPT)
@pytest.mark.parametrize("max_size", [3, 4, 5])
@seeds(1, 3)
def test_table_rows_without_keywords_connect_results(
    tmp_path: Path, seed: int, max_size: int, rows_kept: int
) -> None:
    """One or two table rows without keywords connect the rows with keywords."""
    rng = random.Random(seed)
    relations = relations_of(("a", "b", "link", "more"), "link more")
    join_columns = [
        ("a", "link", "x", "x"),
        ("link", "b", "y", "y"),
        ("link", "more", "y", "x"),
        ("more", "b", "y", "x"),
    ]
    joins = tuple(Join(f"j{n}", left, right, ((x, y),)) for n, (left, right, x, y) in enumerate(join_columns))
    schema = Schema("s", relations, joins)

    def row(text: str) -> Row:
        return (text, rng.randrange(6), rng.randrange(6))

    static = [Record(rng.choice([2, 3]), 0, row("pad")) for _ in range(12)]
    stream = [Record(n % 2, n, row(("alpha", "beta")[n % 2])) for n in range(40)]
    changes, sizes = [(0, "alpha beta", max_size)], Sizes(rows_kept=rows_kept)
    assert compare_engines(tmp_path, schema, static, stream, TimeWindow(12), changes, step=4, sizes=sizes) > 5


def sparse_case(rng: random.Random) -> tuple[Schema, list[Record], list[Record]]:
    """Two streams and three tables; most rows join no live tuple, and a few join many."""
    names = "abtuv"
    relations = tuple(
        replace(relation, key=("x",) if rng.random() < 0.4 else ())
        for relation in relations_of(names, "t u v")
    )
    joins = tuple(
        Join(f"j{n}", rng.choice(names), rng.choice(names), ((rng.choice("xy"), rng.choice("xy")),))
        for n in range(rng.randint(3, 6))
    )
    domain = rng.choice([4, 12, 30])

    def row(words: Sequence[str], probability: float) -> Row:
        text = " ".join(word for word in words if rng.random() < probability) or "pad"
        return (text, *(rng.randrange(domain) if rng.random() < 0.95 else None for _ in "xy"))

    static = [Record(rng.choice([2, 3, 4]), 0, row(("alpha", "beta", "gamma"), 0.4)) for _ in range(40)]
    stream: list[Record] = []
    time = 0
    for _ in range(50):
        time += rng.choice([0, 1, 1, 2, 6])
        repeated = rng.choice(stream) if stream and rng.random() < 0.15 else None
        if repeated is None:
            stream.append(Record(rng.choice([0, 1]), time, row(("alpha", "beta", "gamma"), 0.15)))
        else:
            stream.append(repeated._replace(time=time, delete=rng.random() < 0.7))
    return Schema("sparse", relations, joins), static, stream


QUERIES = [
    "alpha",
    "alpha beta",
    "beta gamma",
    "alpha beta gamma",
    "alpha -gamma",
    "beta t:alpha",
    "gam* beta",
    "gmama~ beta u.x<10",
    "alpha !t.y<5",
    "b*a v.x>=3 t.y!=2",
]


@seeds(2, 12)
def test_table_rows_with_keywords_are_loaded_when_joined(tmp_path: Path, seed: int) -> None:
    """Queries with few and with many matching rows are added and removed, as are rows that join these."""
    rng = random.Random(seed)
    sizes = Sizes(keyword_rows=rng.choice([-1, 10, 20]), rows_kept=rng.choice([-1, -1, 10]))
    schema, static, stream = sparse_case(rng)
    window = rng.choice(WINDOWS[:3])
    step = rng.choice([1, 3, 10])
    ranking = rng.choice([None, RankingChoice(explain=True)])
    changes = [
        (rng.randrange(len(stream) // step + 1), rng.choice(QUERIES), rng.choice([2, 3, 3, 4]))
        for _ in range(8)
    ]
    excluded_table = rng.choice(["", "", "v"])
    options: dict[str, Any] = {"step": step, "excluded": excluded_table, "sizes": sizes, "ranking": ranking}
    compare_engines(tmp_path, schema, static, stream, window, changes, **options)


def _shop(folder: Path, static: Sequence[Record]) -> Schema:
    """Sales (0) of products (1) of makers (2)."""
    relations = relations_of(("sale", "product", "maker"), "product maker")
    joins = (Join("of", "sale", "product", (("x", "x"),)), Join("by", "product", "maker", (("y", "x"),)))
    return indexed(folder, Schema("shop", relations, joins), static)


@pytest.mark.parametrize("max_size", [3, 4])
@pytest.mark.parametrize("text", ["alpha beta", "beta alpha"])
def test_removing_a_query_loads_rows_it_held_back(tmp_path: Path, text: str, max_size: int) -> None:
    """The maker looked up its products while another query kept them from being loaded."""
    static = [Record(2, 0, ("alpha", 0, 0)), *(Record(1, 0, ("gamma", n, n % 2)) for n in range(6))]
    schema = _shop(tmp_path, static)
    engine = StreamEngine(schema, TimeWindow(9), sizes=Sizes(keyword_rows=1))
    assert not list(engine.load_tables([]))
    for query_text in ("gamma delta", text):
        assert not engine.add(Plan(schema, parse_query(query_text, schema), TimeWindow(9), max_size))
    assert not list(engine.process([Record(0, 0, ("beta", 9, 0))]))  # wakes the query
    assert engine.live_tuples == 2
    engine.remove("gamma delta")
    (result,) = engine.process([Record(0, 1, ("beta", 4, 0))])
    assert sorted(str(member.row["t"]) for member in result.tuples) == ["alpha", "beta", "gamma"]


def test_only_joined_rows_of_many_matching_ones_are_in_memory(tmp_path: Path) -> None:
    """They are loaded with a sale that has a keyword, and dropped with it; the others are only counted."""
    static = [Record(1, 0, ("alpha gamma" if n % 5 else "alpha", n, n)) for n in range(400)]
    static += [Record(2, 0, ("pad", n, 0)) for n in range(400)]
    schema = _shop(tmp_path, static)
    engine = StreamEngine(schema, TimeWindow(6), sizes=Sizes(keyword_rows=8, rows_kept=8))
    engine.add(Plan(schema, parse_query("alpha beta -gamma", schema), TimeWindow(6), 3))
    assert not list(engine.load_tables([]))
    assert (engine.live_tuples, engine.counts.static, engine.counts.excluded) == (0, 800, 320)
    assert engine.carried == 1
    results, peak = 0, 0
    for first in range(0, 400, 8):
        sales = [Record(0, n, ("pad" if n % 2 else "beta", n, 0)) for n in range(first, first + 8)]
        results += len(list(engine.process(sales)))
        peak = max(peak, engine.live_tuples)
    assert (results, engine.counts.excluded) == (40, 320)
    # The window, a batch, rows in reach since the last time rows were dropped, and dead ones not yet purged.
    assert peak < 60


def test_unreferenced_table_rows_are_released(tmp_path: Path) -> None:
    """Of the table rows that the stream joins one after the other, few are in memory at a time."""
    schema = Schema("s", relations_of(("a", "link"), "link"), (Join("j", "a", "link", (("x", "x"),)),))
    static = [Record(1, 0, ("pad", n, 0)) for n in range(160)]
    stream = [Record(0, n, (("alpha", "beta")[n % 2], n // 2, 0)) for n in range(320)]
    indexed_schema = indexed(tmp_path, schema, static)
    engine = StreamEngine(indexed_schema, TimeWindow(4), sizes=Sizes(rows_kept=8))
    engine.add(Plan(indexed_schema, parse_query("alpha beta", indexed_schema), TimeWindow(4), 3))
    results, peak = list(engine.load_tables([])), 0
    for first in range(0, len(stream), 8):
        results += engine.process(stream[first : first + 8])
        peak = max(peak, engine.live_tuples)
    assert len(results) == 160
    # Two sales for each cached row, dead ones not yet purged; the window; a batch.
    assert peak < 70


def _open_files() -> int:
    """The number of open regular files of this process, without pipes and sockets of other tests."""
    count = 0
    for descriptor in os.listdir("/dev/fd"):
        with suppress(OSError):  # the descriptor of the listing itself is closed
            count += stat.S_ISREG(os.fstat(int(descriptor)).st_mode)
    return count


def test_a_schema_change_closes_the_old_table_files(tmp_path: Path) -> None:
    """The engine opens the files anew, long before the garbage collector may run."""
    schema = _shop(tmp_path, [Record(1, 0, ("alpha", n, n)) for n in range(9)])
    engine = StreamEngine.of(Plan(schema, parse_query("alpha beta", schema), TimeWindow(9), 3))
    assert not list(engine.load_tables([]))
    gc.collect()  # garbage of earlier tests must not close its files in the meantime
    open_files, gc_was_on = _open_files(), gc.isenabled()
    gc.disable()
    try:
        for time in range(4):
            engine.change_schema(replace(schema, joins=schema.joins[: 1 + time % 2]), time)
            assert len(list(engine.process([Record(0, time, ("beta", time, 0))]))) == 1
        assert _open_files() <= open_files
    finally:
        if gc_was_on:
            gc.enable()


def test_a_row_may_belong_to_any_number_of_queries() -> None:
    """Its counter had 16 bits: the row was no longer inserted for the 65,536th query."""
    every_row = np.ones(1, dtype=bool)
    table: Any = SimpleNamespace(size=1, bound=lambda _: 1, keyword_flags=lambda _: every_row)
    reach: Any = SimpleNamespace(set_targets=lambda _: None)
    matcher: Any = None
    rows = StandingKeywordRows({0: table}, reach, at_once=0)
    for query in range(1 << 16):
        rows.add(query, matcher, 3)
    assert rows.lazy_flags(0, np.zeros(1, dtype=np.int64)).all()
