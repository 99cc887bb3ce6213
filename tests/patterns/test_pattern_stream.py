"""A pattern over batches: rebuilt in the middle of a stream, added late, and partitioned by its root."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from msgspec import structs

from skws.data.batch import Record, RecordBatch
from skws.queries.patterns.pattern_text import PatternQuery, read_query
from skws.queries.patterns.stream import PatternStream
from skws.results.result import Result
from skws_patterns.hcq import ConjunctiveQuery, root_of_query
from skws_patterns.hcq_automaton import automaton_of
from skws_patterns.language.compile import compile_pattern
from skws_patterns.language.pattern_parser import Pattern
from skws_patterns.pcea import RootKey
from skws_schema.errors import PatternError
from skws_schema.model import Attribute, AttributeType, Relation, Row, Schema
from skws_windows.window import CountWindow, TimeWindow, Unbounded, Window
from tests.patterns import hierarchical_queries as formal
from tests.patterns import pattern_matches as written
from tests.patterns.pattern_matches import contains
from tests.strategies import examples
from tests.strategies import streams as record_streams

WINDOWS: list[Window] = [CountWindow(3), TimeWindow(4), TimeWindow(8), Unbounded()]
SCHEMA = Schema(
    "kept",
    tuple(
        Relation(
            name,
            (
                Attribute("t", AttributeType.TEXT),
                Attribute("x", AttributeType.INTEGER),
                Attribute("y", AttributeType.INTEGER),
            ),
            key=key,
            search=("t",),
        )
        for name, key in (("A", ()), ("B", ("x",)), ("C", ()))
    ),
    (),
)
PATTERN = 'A a AND * b where a.x = b.x and b:"alpha"'


def results_of(stream: PatternStream, records: list[Record]) -> list[Result]:
    return list(stream.process(RecordBatch.of(records)))


@examples(150)
@given(st.data(), st.sampled_from(WINDOWS))
def test_a_stream_rebuilt_from_two_windows_continues_unchanged(data: st.DataObject, window: Window) -> None:
    records = data.draw(record_streams(SCHEMA, 2, max_records=24))
    split = data.draw(st.integers(0, len(records)))
    query = read_query(PATTERN, SCHEMA)
    original = PatternStream(query, SCHEMA, window)
    results_of(original, records[:split])
    position, expected = original.position, results_of(original, records[split:])
    positions = np.cumsum([0, *(not record.delete for record in records)]).tolist()
    first = split
    while first and _needed(records[first - 1], positions[first - 1], records[:split], position, window):
        first -= 1
    rebuilt = PatternStream(query, SCHEMA, window)
    rebuilt.seek(positions[first])
    list(rebuilt.process(RecordBatch.of(records[first:split])))
    assert Counter(results_of(rebuilt, records[split:])) == Counter(expected)


def test_versions_of_one_key_and_time_are_separate_results() -> None:
    """They have the same ids in a shard that does not have all versions."""
    query = read_query("B b", SCHEMA)
    records = [Record(1, time, (None, 7, y)) for time, y in ((0, 1), (0, 1), (0, 2), (1, 2), (1, 2))]
    results = results_of(PatternStream(query, SCHEMA, TimeWindow(8)), records)
    assert [result.tuples[0].id for result in results] == [
        "B:7",
        "B:7@0.0.1",
        "B:7@0.0.2",
        "B:7@1e-06",
        "B:7@1e-06.1",
    ]
    assert len({result.id for result in results}) == 5
    shard = PatternStream(query, SCHEMA, TimeWindow(8), own=lambda _, row: row[2] == 2)
    assert results_of(shard, records) == results[2:]


def _needed(record: Record, position: int, records: list[Record], end_position: int, window: Window) -> bool:
    """True if a record started less than two windows before the end of the input."""
    match window:
        case TimeWindow(length):
            return record.time > records[-1].time - 2 * length
        case CountWindow(size):
            return position >= end_position - 2 * (size + 1)
        case _:
            return True


@examples(100)
@given(record_streams(SCHEMA, 2, max_records=20), st.sampled_from(WINDOWS))
def test_a_snapshot_has_the_live_results(records: list[Record], window: Window) -> None:
    query = read_query(PATTERN, SCHEMA)
    original = PatternStream(query, SCHEMA, window)
    results = results_of(original, records)
    snapshot = PatternStream(query, SCHEMA, window).alive_after([(RecordBatch.of(records), None)])
    assert all(result.snapshot and '"snapshot":true' in result.to_json().decode() for result in snapshot)
    live_results = Counter(structs.replace(result, snapshot=False) for result in snapshot)
    match window:
        case TimeWindow():
            now = records[-1].time / 1_000_000 if records else 0.0
            assert live_results == Counter(r for r in results if r.end is not None and r.end > now)
        case CountWindow(size):
            assert live_results == Counter(
                r for r in results if (r.tuples[0].position or 0) + size + 1 > original.position - 1
            )
        case _:
            assert live_results == Counter(results)


def sharded_results(
    query: PatternQuery, root: RootKey, schema: Schema, stream: list[tuple[int, Row]], window: Window
) -> list[Result]:
    """The results of three shards, each with its own tuples and their positions in the whole stream."""
    results: list[Result] = []
    for shard in range(3):
        positions = [i for i, (relation, row) in enumerate(stream) if root.shard(relation, row, 3) == shard]
        batch = RecordBatch.of([Record(stream[i][0], i, stream[i][1]) for i in positions])
        results += PatternStream(query, schema, window).process(batch, np.array(positions, dtype=np.int64))
    return results


def _unsharded_results(
    query: PatternQuery, schema: Schema, stream: list[tuple[int, Row]], window: Window
) -> list[Result]:
    records = [Record(relation, time, row) for time, (relation, row) in enumerate(stream)]
    return results_of(PatternStream(query, schema, window), records)


@examples(200)
@given(formal.hierarchical_queries(), formal.streams(), st.sampled_from(WINDOWS))
def test_shards_by_the_root_of_a_query_find_each_result_once(
    query: ConjunctiveQuery, stream: list[tuple[int, Row]], window: Window
) -> None:
    root = root_of_query(query)
    assume(root is not None)
    assert root is not None
    pattern = PatternQuery("Q", automaton_of(query), None, query, {}, root)
    results = sharded_results(pattern, root, formal.SCHEMA, stream, window)
    assert Counter(results) == Counter(_unsharded_results(pattern, formal.SCHEMA, stream, window))


@examples(200)
@given(written.patterns(), written.streams(9), st.sampled_from(WINDOWS))
def test_shards_by_the_root_of_a_pattern_find_each_result_once(
    pattern: Pattern, stream: list[tuple[int, Row]], window: Window
) -> None:
    try:
        compiled = compile_pattern(pattern, written.SCHEMA, contains)
    except PatternError:
        assume(False)
        raise
    assume(compiled.root is not None)
    assert compiled.root is not None
    query = PatternQuery("P", compiled.pcea, None, compiled, {}, compiled.root)
    results = sharded_results(query, compiled.root, written.SCHEMA, stream, window)
    assert Counter(results) == Counter(_unsharded_results(query, written.SCHEMA, stream, window))


@pytest.mark.parametrize(
    ("text", "name", "columns"),
    [
        ("Q(x, y) <- A(_, x, _), B(_, x, y), C(_, x, y)", "x", ((0, (1,)), (1, (1,)), (2, (1,)))),
        ("Q(x, y) <- A(_, x, y), B(_, y, x)", "x; y", ((0, (1, 2)), (1, (2, 1)))),
        ("Q(x, y) <- A(_, x, y), A(_, y, x)", None, ()),
        ("Q(x, y) <- A(_, x, _), B(_, _, y)", None, ()),
        ("A a AND B b ; C c where a.x = b.y = c.x", "a.x = b.y = c.x", ((0, (1,)), (1, (2,)), (2, (1,)))),
        ("A a ; A b where a.x = b.y", None, ()),
        ("A a ; A b where a.x = b.x", "a.x = b.x", ((0, (1,)),)),
        ("A a ; B b", None, ()),
    ],
)
def test_the_root_has_one_column_in_each_relation(
    text: str, name: str | None, columns: tuple[object, ...]
) -> None:
    root = read_query(text, SCHEMA).root
    assert (root and (root.name, root.columns)) == (name and (name, columns))


def test_equal_values_of_different_types_belong_to_one_shard() -> None:
    root = RootKey("x", ((0, (0,)), (1, (0,))))
    assert root.shard(0, (3,), 1000) == root.shard(1, (3.0,), 1000)
    assert root.shard(0, (-0.0,), 1000) == root.shard(1, (0,), 1000)
    assert root.shard(2, (3,), 1000) is None


def test_keyword_errors_point_into_the_pattern() -> None:
    with pytest.raises(PatternError, match="no partner") as error:
        read_query("A a where a:'\"x'", SCHEMA)
    assert str(error.value).splitlines()[1:] == ["  A a where a:'\"x'", "            ^^^^^^"]
