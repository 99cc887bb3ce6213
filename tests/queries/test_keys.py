"""Tuples divided by a key: the shards together have the results of one session."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from skws.data.batch import Record, RecordBatch, batched
from skws.queries.partitioning.parts import (
    WHOLE,
    KeyPartitioning,
    Part,
    Partitioning,
    key_partitioning,
    plan_keys,
)
from skws.queries.session import Session
from skws.results.result import Result
from skws.spec.query_spec import Query, Stream
from skws_schema.evolution import SchemaChange
from skws_schema.model import Join, Row, Schema
from skws_schema.yaml.load import parse_schema
from skws_windows.window import CountWindow, TimeWindow, Unbounded
from tests.queries.random_streams import split_into_batches
from tests.strategies import JOINABLE, WORDS, Case, cases, examples, schemas, static_rows, streams

TRACES = """
relations:
  service: {attributes: {name: string, text: text}, key: [name], table: true}
  request: {attributes: {tenant: integer, trace: string, path: text}, key: [tenant, trace]}
  span: {attributes: {tenant: integer, trace: string, service: string, text: text}}
  log: {attributes: {tenant: integer, trace: string, line: text}}
joins:
  - {name: of_span, on: [span.tenant = request.tenant, span.trace = request.trace]}
  - {name: of_log, on: [log.tenant = request.tenant, log.trace = request.trace]}
"""


def schema_of(text: str) -> Schema:
    return parse_schema(text, default_name="test")


def test_relations_are_divided_by_the_attributes_of_every_join() -> None:
    schema = schema_of(TRACES)
    partitioning = key_partitioning(schema, 5)
    assert isinstance(partitioning, KeyPartitioning)
    assert partitioning.columns == (None, (0, 1), (0, 1), (0, 1))
    assert partitioning.shown(schema) == (
        "request.tenant+request.trace, span.tenant+span.trace, log.tenant+log.trace; all parts have service"
    )


@pytest.mark.parametrize(
    ("change", "max_size", "reason"),
    [
        (
            ("joins:", "joins:\n  - span.service = service.name"),
            3,
            "the table service does not have it and may join",
        ),
        (("joins:", "joins:\n  - span.service = service.name"), 2, None),
        (
            ("key: [tenant, trace]", "key: [path]"),
            5,
            "request.tenant comes closest, but the key of request does not contain it",
        ),
        (("joins:", "joins:\n  - span.tenant = log.tenant"), 5, None),  # by tenant only
        (
            ("joins:", "joins:\n  - span.service = log.line"),
            5,
            "the join span.service = log.line does not equate it",
        ),
        (("joins:", "joins:\n  - span.service = log.line"), 1, None),
    ],
)
def test_schemas_without_a_key_say_why(change: tuple[str, str], max_size: int, reason: str | None) -> None:
    partitioning = key_partitioning(schema_of(TRACES.replace(*change, 1)), max_size)
    assert isinstance(partitioning, str) if reason else isinstance(partitioning, KeyPartitioning)
    assert reason is None or reason in str(partitioning)


@pytest.mark.parametrize("join", ["span.tenant = log.tenant", "span.service = log.line"])
def test_a_removed_relation_keeps_its_partitioning(join: str) -> None:
    """Its records are still in the log, and its results are retracted."""
    before = schema_of(TRACES.replace("joins:", f"joins:\n  - {join}"))
    remaining = [one for one in before.relations if one.name != "log"]
    joins = [one for one in before.joins if "log" not in (one.left, one.right)]
    after = SchemaChange.between(
        before, replace(before, relations=tuple(remaining), joins=tuple(joins))
    ).after
    partitioning = key_partitioning(after, 5)
    assert partitioning == key_partitioning(before, 5)
    assert isinstance(partitioning, KeyPartitioning) or f"{join} does not equate it" in partitioning


def test_a_table_joined_once_at_most_needs_no_key() -> None:
    text = TRACES.replace(
        "table: true}", "table: true}\n  note: {attributes: {text: text, trace: string}, table: true}"
    )
    partitioning = key_partitioning(
        schema_of(
            text.replace("joins:", "joins:\n  - note.trace = request.trace").replace(
                "key: [tenant, trace]", "key: [trace]"
            )
        ),
        5,
    )
    assert isinstance(partitioning, KeyPartitioning)
    assert partitioning.columns == (None, None, (1,), (1,), (1,))


def test_queries_that_depend_on_other_keys_are_not_divided() -> None:
    schema = schema_of(TRACES)
    window = TimeWindow(3_600_000_000)
    stream = Stream(schema, window, finite=True)
    keywords = Query("a b", name="q")
    assert isinstance(plan_keys([keywords], stream, window), KeyPartitioning)
    assert isinstance(plan_keys([keywords], stream, Unbounded()), KeyPartitioning)
    assert "counts all tuples" in str(plan_keys([keywords], stream, CountWindow(10)))
    assert "order of all tuples" in str(plan_keys([keywords, Query.of_pattern("request")], stream, window))
    scored_query = replace(keywords, options={"rank": "relevance"})
    assert "statistics" in str(plan_keys([scored_query], stream, window))


def test_equal_values_of_different_types_belong_to_one_part() -> None:
    schema = schema_of(
        """
        relations: {r: {attributes: {a: number, b: text}}, s: {attributes: {a: integer, b: text}}}
        joins: [r.a = s.a]
        """
    )
    division = key_partitioning(schema, 3)
    assert isinstance(division, KeyPartitioning)

    def part(relation: int, rows: list[Row]) -> list[int]:
        batch = RecordBatch.of([Record(relation, 0, row) for row in rows])
        parts = division.divided(batch, 7)
        return [n for row in rows for n, one in enumerate(parts) if row in set(one.rows)]

    values = [0, 1, -1, 2**53, -(2**62)]
    integer_parts = part(1, [(v, "x") for v in values])
    assert integer_parts == part(1, [*((v, "x") for v in values), (None, "x")])[:-1]
    assert integer_parts[:-1] == part(0, [(float(v), "x") for v in values[:-1]])
    assert part(0, [(float("nan"), "x"), (0.5, "x"), (float("inf"), "x")])
    assert len({*part(1, [(v, "x") for v in range(100)])}) == 7


def json_counts(results: list[Result]) -> Counter[str]:
    return Counter(str(result.to_dict()) for result in results)


@st.composite
def keyed_cases(draw: st.DrawFn) -> Case:
    """A schema with one attribute per relation that is in all joins, with rows and a stream."""
    schema = draw(schemas(tables=True))
    column = {r.name: draw(st.sampled_from(JOINABLE)) for r in schema.relations}
    relations = tuple(
        replace(r, search=("t",), key=() if r.table or column[r.name] not in r.key else r.key)
        for r in schema.relations
    )
    joins = [
        replace(join, on=tuple(dict.fromkeys([(column[join.left], column[join.right]), *join.on[1:]])))
        for join in schema.joins
    ]
    pairs = st.tuples(*[st.sampled_from([r.name for r in relations])] * 2)
    for number, (left, right) in enumerate(draw(st.lists(pairs, min_size=1, max_size=2))):
        joins.append(Join(f"more{number}", left, right, ((column[left], column[right]),)))
    schema = replace(schema, relations=relations, joins=tuple(joins))
    words = draw(st.integers(2, 3))
    return schema, words, draw(static_rows(schema, words)), draw(streams(schema, words, 30, 10))


@pytest.mark.check
@examples(600, deadline=None)
@given(
    case=st.one_of(keyed_cases(), keyed_cases(), cases(max_records=24)),
    max_size=st.sampled_from([1, 2, 3, 3, 4]),
    parts=st.integers(2, 4),
    window=st.sampled_from([TimeWindow(4), TimeWindow(20), Unbounded()]),
    lateness=st.sampled_from([0, 3]),
    is_shuffled=st.booleans(),
    cuts=st.lists(st.integers(0, 100), max_size=3),
    seed=st.integers(0, 100),
)
def test_oracle_parts_together_have_the_results_of_one_session(
    case: Case,
    max_size: int,
    parts: int,
    window: TimeWindow | Unbounded,
    lateness: int,
    is_shuffled: bool,
    cuts: list[int],
    seed: int,
) -> None:
    schema, words, tables, records = case
    stream = Stream(schema, window, lateness, max_size, finite=True)
    query = Query(" ".join(WORDS[:words]), max_size, name="q")
    division = plan_keys([query], stream, window)
    if isinstance(division, str):
        return
    for relation, columns in zip(schema.relations, division.columns, strict=True):
        assert columns is None or not relation.key or {*columns} <= {*relation.key_columns}, "rows move"
    if is_shuffled:
        order = np.random.default_rng(seed).permutation(len(records)).tolist()
        records = [records[place] for place in order]
    late: list[Record] = []
    single = Session(stream, WHOLE, lambda record, _: late.append(record))
    expected = [*single.load_tables(batched(tables)), *single.add(query)]
    shares = [Part(n, parts, Partitioning.KEYS) for n in range(parts)]
    late_in_parts: list[Record] = []
    sessions = [Session(stream, share, lambda record, _: late_in_parts.append(record)) for share in shares]
    results_of_parts: list[Result] = []
    for session, share in zip(sessions, shares, strict=True):
        results = [*session.load_tables(batched(tables)), *session.add(query)]
        results_of_parts += results if share.first else []
    for batch in split_into_batches(records, cuts):
        expected += single.take(batch)
        for session, own_records in zip(sessions, division.divided(batch, parts), strict=True):
            results_of_parts += session.take(own_records)
        for session in sessions:
            session.seek(session.position, max(one.now for one in sessions))
    assert json_counts(results_of_parts) == json_counts(expected)
    assert Counter(late_in_parts) == Counter(late)
    counts = [session.counts() for session in sessions]
    assert sum(one.tuples for one in counts) == single.counts().tuples
    assert sum(one.unmatched_deletions for one in counts) == single.counts().unmatched_deletions
