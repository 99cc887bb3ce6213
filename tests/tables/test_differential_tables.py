"""Tables that are indexed on disk and probed lead to what tables that are loaded whole lead to."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import skws.batches
import skws.tables.cache
import skws.tables.reserve
from schema.model import Attribute, AttributeType, Join, Relation, Row, Schema
from skws.choices import EvaluatorName
from skws.engine.columnar import ColumnarEngine
from skws.keywords import parse_query
from skws.plan import Plan
from skws.ranking.choice import RankingChoice
from skws.records import Record
from skws.results.model import Result
from skws.tables.make import as_batches
from skws.tables.rows import arrow_schema
from tests.strategies import WORDS, schemas, static_rows, streams
from windows.window import CountWindow, TimeWindow, Unbounded, Window

WINDOWS: list[Window] = [TimeWindow(2), TimeWindow(9), CountWindow(5), Unbounded()]
KEPT = [-1, 3, 1 << 17]  # rows of tables to which nobody refers: let go at once, soon, never here
_NUMBERS = count()


@dataclass(frozen=True)
class Given:
    """A source of rows that are there already."""

    schema: Schema
    number: int
    rows: Sequence[Row]

    def identity(self) -> str:
        return str(next(_NUMBERS))

    def batches(self) -> Iterator[pa.RecordBatch]:
        return as_batches(self.rows, arrow_schema(self.schema.relations[self.number]))


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
    """The schema with join values that are no integers."""
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


def indexed(monkeypatch: pytest.MonkeyPatch, schema: Schema, static: Sequence[Record]) -> Schema:
    """The schema with sources that give the static rows."""

    def source(schema: Schema, number: int) -> Given:
        return Given(schema, number, [r.row for r in static if r.relation == number])

    monkeypatch.setattr(skws.tables.cache, "table_source", source)
    relations = tuple(replace(r, source="given") if r.table else r for r in schema.relations)
    return replace(schema, relations=relations)


def told(engine: ColumnarEngine, static: Sequence[Record], stream: Sequence[Record]) -> list[bytes]:
    return [r.to_json() for r in (*engine.load_tables(static), *engine.process(stream))]


@pytest.mark.parametrize("size", [1, 4, 8192])
@given(
    cases(), st.sampled_from(WINDOWS), st.booleans(), st.booleans(), st.integers(2, 5), st.sampled_from(KEPT)
)
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_equal_to_tables_loaded_whole(
    monkeypatch: pytest.MonkeyPatch,
    size: int,
    case: tuple[Schema, int, list[Record], list[Record]],
    window: Window,
    exclude: bool,
    ranked: bool,
    most: int,
    kept: int,
) -> None:
    monkeypatch.setattr(skws.batches, "BATCH", size)
    monkeypatch.setattr(skws.tables.reserve, "ROWS_KEPT", kept)
    schema, words, static, stream = case
    text = " ".join(WORDS[:words]) + (" -gamma" if exclude and words < 3 else "")
    ranking = RankingChoice(explain=True) if ranked else None
    whole = ColumnarEngine.of(Plan(schema, parse_query(text, schema), window, most, ranking=ranking))
    apart = indexed(monkeypatch, schema, static)
    probing = ColumnarEngine.of(Plan(apart, parse_query(text, apart), window, most, ranking=ranking))
    assert told(probing, [], stream) == told(whole, static, stream)
    assert probing.counts == whole.counts


@given(cases(), st.sampled_from(WINDOWS), st.sampled_from(KEPT), st.data())
@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_equal_for_queries_that_come_and_go(
    monkeypatch: pytest.MonkeyPatch,
    case: tuple[Schema, int, list[Record], list[Record]],
    window: Window,
    kept: int,
    data: st.DataObject,
) -> None:
    monkeypatch.setattr(skws.tables.reserve, "ROWS_KEPT", kept)
    schema, words, static, stream = case
    texts = [*WORDS[:words], " ".join(WORDS[:words]), f"{WORDS[0]} -gamma"]
    texts += ["alp*", '"alpha pad"', "(alpha OR gamma)"]
    change = st.tuples(st.integers(0, len(stream)), st.sampled_from(texts), st.integers(2, 5))
    changes = data.draw(st.lists(change, max_size=6))
    apart = indexed(monkeypatch, schema, static)
    outputs = []
    for given_schema, rows in ((schema, static), (apart, [])):
        engine = ColumnarEngine(given_schema, window)
        out: list[list[Result]] = [list(engine.load_tables(rows))]
        standing: set[str] = set()
        for at in range(len(stream) + 1):
            for place, text, most in changes:
                if place != at:
                    continue
                name = f"{text}/{most}"
                if name in standing:
                    engine.remove(name)
                    standing.remove(name)
                else:
                    plan = Plan(given_schema, parse_query(text, given_schema), window, most)
                    out.append(engine.add(plan, name))
                    standing.add(name)
            out.append(list(engine.process(stream[at : at + 1])))
        outputs.append(out)
    assert outputs[1] == outputs[0]


@pytest.mark.parametrize("kept", KEPT)
@pytest.mark.parametrize("most", [3, 4, 5])
@pytest.mark.parametrize("seed", range(3))
def test_rows_without_keywords_connect(
    monkeypatch: pytest.MonkeyPatch, seed: int, most: int, kept: int
) -> None:
    """Results by way of rows that only join values reach, one or two of them between the keywords."""
    monkeypatch.setattr(skws.tables.reserve, "ROWS_KEPT", kept)
    rng = random.Random(seed)
    kinds = (Attribute("t", AttributeType.TEXT), *(Attribute(n, AttributeType.INTEGER) for n in "xy"))
    names = ("a", "b", "link", "more")
    relations = tuple(Relation(n, kinds, search=("t",), table=n in {"link", "more"}) for n in names)
    on = [
        ("a", "link", "x", "x"),
        ("link", "b", "y", "y"),
        ("link", "more", "y", "x"),
        ("more", "b", "y", "x"),
    ]
    joins = tuple(Join(f"j{n}", left, right, ((x, y),)) for n, (left, right, x, y) in enumerate(on))
    schema = Schema("s", relations, joins)

    def row(text: str) -> Row:
        return (text, rng.randrange(6), rng.randrange(6))

    static = [Record(rng.choice([2, 3]), 0, row("pad")) for _ in range(12)]
    stream = [Record(n % 2, n, row(("alpha", "beta")[n % 2])) for n in range(40)]
    outputs = []
    monkeypatch.setattr(skws.batches, "BATCH", 4)
    for given_schema, rows in ((schema, static), (indexed(monkeypatch, schema, static), [])):
        plan = Plan(given_schema, parse_query("alpha beta", given_schema), TimeWindow(12), most)
        outputs.append(told(ColumnarEngine.of(plan), rows, stream))
    assert outputs[1] == outputs[0]
    assert len(outputs[0]) > 5


def test_rows_that_nobody_refers_to_are_let_go(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of all rows that the stream reaches one after the other, few are here at a time."""
    monkeypatch.setattr(skws.batches, "BATCH", 8)
    monkeypatch.setattr(skws.tables.reserve, "ROWS_KEPT", 8)
    kinds = (Attribute("t", AttributeType.TEXT), Attribute("x", AttributeType.INTEGER))
    relations = tuple(Relation(n, kinds, search=("t",), table=n == "link") for n in ("a", "link"))
    schema = Schema("s", relations, (Join("j", "a", "link", (("x", "x"),)),))
    static = [Record(1, 0, ("pad", n)) for n in range(160)]
    stream = [Record(0, n, (("alpha", "beta")[n % 2], n // 2)) for n in range(320)]
    apart = indexed(monkeypatch, schema, static)
    engine = ColumnarEngine.of(Plan(apart, parse_query("alpha beta", apart), TimeWindow(4), 3))
    found, most = list(engine.load_tables([])), 0
    for first in range(0, len(stream), 8):
        found += engine.process(stream[first : first + 8])
        most = max(most, engine.live_tuples)
    assert len(found) == 160
    # Two sales for each row that is kept, dead ones not yet purged; the window; a batch.
    assert most < 70


def test_automata_beside_rows_that_come_unasked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another query takes rows of a table in; what automata know of the stream's tuples stays right."""
    kinds = (Attribute("t", AttributeType.TEXT), Attribute("x", AttributeType.INTEGER))
    relations = tuple(Relation(n, kinds, search=("t",), table=n == "link") for n in ("a", "b", "link"))
    schema = Schema("s", relations, (Join("ab", "a", "b", (("x", "x"),)),))
    static = [Record(2, 0, ("gamma", n)) for n in range(5)]
    stream = [Record(n % 2, n, (("alpha", "beta")[n % 2], n // 4)) for n in range(40)]
    outputs = []
    for given_schema, rows in ((schema, static), (indexed(monkeypatch, schema, static), [])):
        engine = ColumnarEngine(given_schema, TimeWindow(9))
        texts = ("alpha beta", "gamma")
        plans = [
            Plan(
                given_schema,
                parse_query(t, given_schema),
                TimeWindow(9),
                2,
                evaluated_by=EvaluatorName.AUTOMATA,
            )
            for t in texts
        ]
        out = [*engine.load_tables(rows), *engine.add(plans[0])]
        out += engine.process(stream[:20])
        out += engine.add(plans[1])
        out += engine.process(stream[20:])
        outputs.append([result.to_json() for result in out])
    assert outputs[1] == outputs[0]
    assert len(outputs[0]) > 20
