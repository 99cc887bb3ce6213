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
from schema.model import Attribute, AttributeType, Join, Relation, Row, Schema
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
@given(cases(), st.sampled_from(WINDOWS), st.booleans(), st.booleans(), st.integers(2, 5))
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_equal_to_tables_loaded_whole(
    monkeypatch: pytest.MonkeyPatch,
    size: int,
    case: tuple[Schema, int, list[Record], list[Record]],
    window: Window,
    exclude: bool,
    ranked: bool,
    most: int,
) -> None:
    monkeypatch.setattr(skws.batches, "BATCH", size)
    schema, words, static, stream = case
    text = " ".join(WORDS[:words]) + (" -gamma" if exclude and words < 3 else "")
    ranking = RankingChoice(explain=True) if ranked else None
    whole = ColumnarEngine.of(Plan(schema, parse_query(text, schema), window, most, ranking=ranking))
    apart = indexed(monkeypatch, schema, static)
    probing = ColumnarEngine.of(Plan(apart, parse_query(text, apart), window, most, ranking=ranking))
    assert told(probing, [], stream) == told(whole, static, stream)
    assert probing.counts == whole.counts


@given(cases(), st.sampled_from(WINDOWS), st.data())
@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_equal_for_queries_that_come_and_go(
    monkeypatch: pytest.MonkeyPatch,
    case: tuple[Schema, int, list[Record], list[Record]],
    window: Window,
    data: st.DataObject,
) -> None:
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


@pytest.mark.parametrize("most", [3, 4, 5])
@pytest.mark.parametrize("seed", range(3))
def test_rows_without_keywords_connect(monkeypatch: pytest.MonkeyPatch, seed: int, most: int) -> None:
    """Results by way of rows that only join values reach, one or two of them between the keywords."""
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
    for given_schema, rows in ((schema, static), (indexed(monkeypatch, schema, static), [])):
        plan = Plan(given_schema, parse_query("alpha beta", given_schema), TimeWindow(12), most)
        outputs.append(told(ColumnarEngine.of(plan), rows, stream))
    assert outputs[1] == outputs[0]
    assert len(outputs[0]) > 5
