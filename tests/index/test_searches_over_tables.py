"""Searches find the rows of tables indexed on disk as if the tables were in memory."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from dataclasses import replace as replace_relation
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st
from msgspec.structs import replace

from skws.data.batch import Record, batched
from skws.index import index_cache
from skws.index.database import StoredTuples
from skws.keywords.parse import parse_query
from skws.keywords.plan import Plan
from skws.queries.keywords import indexed_rows
from skws.queries.keywords.keyword_operator import Sizes
from skws.queries.keywords.stream_engine import StreamEngine
from skws.results.result import Result
from skws.spec.query_spec import RankingChoice
from skws_purging import policy
from skws_schema.errors import SourceError
from skws_schema.model import Attribute, AttributeType, Join, Row, Schema
from skws_windows.window import CountWindow, TimeWindow, Unbounded, Window
from tests.index.test_differential_tables import QUERIES, cases, indexed, relations_of, sparse_case
from tests.strategies import WORDS, examples, seeds

WINDOWS: list[Window] = [TimeWindow(9), CountWindow(5), Unbounded()]
ALL = 100_000
TEXTS = (
    "alpha",
    "alpha beta",
    "alpha beta gamma",
    "alp* -gamma",
    '"alpha pad" beta',
    "alpha r0.y!=1",
    "zeta",
)


SMALL_SIZES = Sizes(dead_copies=2, stored_texts=12)


@pytest.fixture(autouse=True)
def _small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Low limits, so that stores are rebuilt and slots renumbered during a test."""
    monkeypatch.setenv("SKWS_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(policy, "LEAST", 4)
    monkeypatch.setattr(index_cache, "SPACE", 6)


def _plan(schema: Schema, text: str, window: Window, size: int) -> Plan:
    ranking = RankingChoice(explain=True)
    return Plan(schema, parse_query(text, schema), window, size, ranking=ranking, name=f"{text}/{size}")


def comparable(results: Sequence[Result]) -> list[dict[str, Any]]:
    """Results in an order independent of equal scores, without the order of joins in explanations."""
    dicts = [replace(result, place=None).to_dict() for result in results]
    for result_dict in dicts:
        for part in result_dict["explanation"]:
            if part["part"] == "specificity":
                part.pop("why", None)
    return sorted(dicts, key=lambda fields: json.dumps(fields, default=str))


def _scores(results: Sequence[Result]) -> list[float]:
    return [result.score.value for result in results if result.score is not None]


def compare_searches(
    folder: Path,
    schema: Schema,
    static: Sequence[Record],
    stream: Sequence[Record],
    window: Window,
    texts: Sequence[str],
    rng: random.Random,
    lateness: int = 0,
) -> int:
    """Compares searches between the records of a stream; returns the number of results."""
    indexed_schema = indexed(folder, schema, static)
    engines = [
        StreamEngine(engine_schema, window, lateness=lateness, sizes=SMALL_SIZES)
        for engine_schema in (schema, indexed_schema)
    ]
    for engine, rows in zip(engines, (static, []), strict=True):
        engine.add(_plan(engine.schema, texts[0], window, 3))
        list(engine.load_tables(batched(rows)))
    total = 0
    for record in [None, *stream]:
        if record is not None:
            for engine in engines:
                list(engine.process([record]))
        if rng.random() < 0.6:
            continue
        text, size = rng.choice(texts), rng.randint(1, 5)
        expected, actual = (e.search(_plan(e.schema, text, window, size), ALL) for e in engines)
        assert comparable(actual.results) == comparable(expected.results)
        assert (actual.found, actual.size, actual.notes) == (expected.found, expected.size, expected.notes)
        assert (actual.why_nothing is None) == (expected.why_nothing is None)
        best_two = engines[1].search(_plan(indexed_schema, text, window, size), 2)
        assert _scores(best_two.results) == _scores(actual.results)[:2]
        total += len(actual.results)
    return total


@given(cases(), st.sampled_from(WINDOWS), st.integers(0, 999))
@examples(150, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_searches_of_indexed_tables_equal_those_of_loaded_tables(
    tmp_path: Path, case: tuple[Schema, int, list[Record], list[Record]], window: Window, seed: int
) -> None:
    schema, words, static, stream = case
    texts = [" ".join(WORDS[:words]), *TEXTS]
    compare_searches(tmp_path, schema, static, stream, window, texts, random.Random(seed))


@pytest.mark.slow
@seeds(2, 40)
def test_searches_of_sparse_joins_equal_those_of_loaded_tables(tmp_path: Path, seed: int) -> None:
    """With keys, deletions and rows that replace others."""
    rng = random.Random(seed)
    schema, static, stream = sparse_case(rng)
    assert compare_searches(tmp_path, schema, static, stream, rng.choice(WINDOWS), QUERIES, rng)


@pytest.mark.slow
@seeds(2, 40)
def test_searches_with_late_records_equal_those_of_loaded_tables(tmp_path: Path, seed: int) -> None:
    """Tuples may live longer than expected, or have expired before they arrive."""
    rng = random.Random(seed)
    schema, static, stream = sparse_case(rng)
    stream = sorted(stream, key=lambda record: record.time + rng.randrange(6))
    window = rng.choice([WINDOWS[0], WINDOWS[2]])
    assert compare_searches(tmp_path, schema, static, stream, window, QUERIES, rng, lateness=5)


def test_a_search_does_not_change_the_live_tuples(tmp_path: Path) -> None:
    """However many table rows it finds."""
    static = [Record(1, 0, ("alpha beta", n, n)) for n in range(100)]
    relations = relations_of(("sale", "product"), "product")
    schema = Schema("shop", relations, (Join("of", "sale", "product", (("x", "x"),)),))
    indexed_schema = indexed(tmp_path, schema, static)
    engine = StreamEngine(indexed_schema, Unbounded(), sizes=SMALL_SIZES)
    assert not list(engine.load_tables([]))
    assert not list(engine.process([Record(0, 0, ("gamma", 7, 0))]))
    live_tuples = engine.live_tuples
    answer = engine.search(_plan(indexed_schema, "gamma beta", Unbounded(), 2), 10)
    assert [len(result.tuples) for result in answer.results] == [2]
    assert engine.search(_plan(indexed_schema, "alpha", Unbounded(), 2), 10).found == 100
    assert engine.live_tuples == live_tuples


def test_the_next_search_builds_a_store_that_failed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also if it replaces a store with mostly dead copies."""
    relations = relations_of(("sale", "product"), "product")
    schema = Schema("shop", relations, (Join("of", "sale", "product", (("x", "x"),)),))
    indexed_schema = indexed(tmp_path, schema, [Record(1, 0, ("beta", n, n)) for n in range(20)])
    engine = StreamEngine(indexed_schema, TimeWindow(3), sizes=Sizes(dead_copies=2, stored_texts=1_000))
    assert not list(engine.load_tables([]))
    plan = _plan(indexed_schema, "gamma beta", TimeWindow(3), 2)
    failures = 0
    for number in range(40):
        assert not list(engine.process([Record(0, number, ("gamma", number % 20, 0))]))
        with monkeypatch.context() as patch:
            if number % 2:
                patch.setattr(indexed_rows, "stored_tuples", raise_source_error)
            try:
                engine.search(plan, 10)
            except SourceError:
                failures += 1
        assert engine.search(plan, 10).found == min(number + 1, 3)
    assert failures


def test_a_store_is_used_again_however_many_texts_the_stream_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only the words of table rows count towards the limit at which it is built again."""
    sale, product = relations_of(("sale", "product"), "product")
    names = tuple(f"t{number}" for number in range(4))
    texts = tuple(Attribute(name, AttributeType.TEXT) for name in names)
    sale = replace_relation(sale, attributes=(*sale.attributes, *texts), search=("t", *names))
    schema = Schema("shop", (sale, product), (Join("of", "sale", "product", (("x", "x"),)),))
    indexed_schema = indexed(tmp_path, schema, [Record(1, 0, ("beta", n, n)) for n in range(3)])
    engine = StreamEngine(indexed_schema, Unbounded(), sizes=SMALL_SIZES)
    assert not list(engine.load_tables([]))
    rows: list[Row] = [("gamma", number % 3, 0, *names) for number in range(20)]
    assert not list(engine.process([Record(0, number, row) for number, row in enumerate(rows)]))
    plan = _plan(indexed_schema, "gamma beta", Unbounded(), 2)
    assert engine.search(plan, 10).found == 20
    monkeypatch.setattr(indexed_rows, "stored_tuples", raise_source_error)
    assert engine.search(plan, 10).found == 20


def raise_source_error(*_: object) -> StoredTuples:
    raise SourceError("the disk is full")
