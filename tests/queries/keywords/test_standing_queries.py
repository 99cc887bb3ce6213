"""Standing queries in one engine have the results of separate engines, each from its snapshot on."""

from __future__ import annotations

import gc
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from skws.data.batch import Record, batched
from skws.keywords.parse import parse_query
from skws.keywords.plan import Plan
from skws.queries.keywords.stream_engine import StreamEngine
from skws.queries.keywords.updates import Begin
from skws.results.result import Result
from skws.results.result_builder import NetworkTemplate, ResultLabels
from skws.spec.enums import EvaluatorName
from skws_mesh.mesh_kinds import MeshChoice, MeshKind
from skws_schema.errors import QueryError, UsageError
from skws_schema.model import Attribute, AttributeType, Join, Relation, Schema
from skws_windows.window import CountWindow, TimeWindow, Unbounded, Window
from tests.oracles.oracle import instants
from tests.queries.random_streams import STREAMS
from tests.strategies import WORDS, examples, query_texts, schemas, some, static_rows, streams

A, B, C = WORDS[:3]
QUERIES = [
    A,
    B,
    f"{A} {B}",
    f"{B} {C}",
    f"{A} {C}",
    f"{A} {B} {C}",
    f"{A} {B} -{C}",
    f"({A} OR {B}) {C}",
    f"{A[:3]}* {B}",
    f"{A} ; {B}",
    f"{B} ; {A}",
    f"{A} {B} -r1:",
]
WINDOWS: list[Window] = [TimeWindow(2), TimeWindow(6), CountWindow(4), Unbounded()]
SIZES = (2, 3)


@st.composite
def cases(
    draw: st.DrawFn,
) -> tuple[Schema, list[Record], list[list[Record]], list[tuple[int, str, int, int]]]:
    """A stream by instants, and queries with their first and last instants."""
    schema = draw(schemas(tables=True))
    stream = [records for _, records in instants(draw(streams(schema, 3, max_records=14)))]
    length = len(stream)
    spans = []
    for text in draw(st.lists(st.sampled_from(QUERIES) | query_texts(), min_size=1, max_size=8)):
        first_instant = draw(st.integers(0, length))
        with suppress(QueryError):
            parse_query(text, schema)
            spans.append(
                (first_instant, text, draw(st.sampled_from(SIZES)), draw(st.integers(first_instant, length)))
            )
    return schema, draw(static_rows(schema, 3)), stream, spans


def changes_of(results: Iterable[Result]) -> list[tuple[str, str, float | None]]:
    return sorted((r.op, r.id, r.end) for r in results)


@pytest.mark.check
@pytest.mark.parametrize(
    "evaluator_options",
    [
        {"evaluated_by": EvaluatorName.MESH},
        {"evaluated_by": EvaluatorName.DELTA},
        {"mesh": MeshChoice(MeshKind.FULL)},
        {"mesh": MeshChoice(MeshKind.PARTIAL)},
    ],
    ids=["mesh", "delta", "full", "partial"],
)
@given(cases(), st.sampled_from(WINDOWS))
@examples(200)
def test_shared_queries_have_the_results_of_separate_engines(
    evaluator_options: dict[str, Any],
    case: tuple[Schema, list[Record], list[list[Record]], list[tuple[int, str, int, int]]],
    window: Window,
) -> None:
    schema, static, stream, spans = case
    shared = StreamEngine(schema, window)
    list(shared.load_tables(batched(static)))
    plans = [Plan(schema, parse_query(text, schema), window, size) for _, text, size, _ in spans]
    separate = [StreamEngine.of(plan) for plan in plans]
    for engine in separate:
        list(engine.load_tables(batched(static)))
    for instant in range(len(stream) + 1):
        for number, (first_instant, _, _, last_instant) in enumerate(spans):
            if first_instant == instant:
                snapshot = shared.add(replace(plans[number], name=str(number), **evaluator_options))
                assert all((r.snapshot, r.op, r.name) == (True, "+", str(number)) for r in snapshot)
                snapshot_of_separate = separate[number].add(
                    replace(plans[number], name="again")
                )  # its reported results that are still alive
                assert changes_of(snapshot) == changes_of(snapshot_of_separate)
            if last_instant == instant:
                shared.remove(str(number))
        if instant == len(stream):
            break
        results_of_shared = list(shared.process(stream[instant]))
        expected: list[tuple[str, Result]] = []
        for number, engine in enumerate(separate):
            results = [r for r in engine.process(stream[instant]) if r.name != "again"]
            first_instant, _, _, last_instant = spans[number]
            if first_instant <= instant < last_instant:
                expected += [(str(number), r) for r in results]
        assert sorted((r.name, r.query, *s) for r in results_of_shared for s in changes_of([r])) == sorted(
            (name, r.query, *s) for name, r in expected for s in changes_of([r])
        )
    # All queries are removed, and leave no entries.
    assert shared.footprint().entries == shared.live_tuples


def test_labels_of_a_removed_query_are_freed() -> None:
    engine = StreamEngine(CHAIN, TimeWindow(10))
    engine.add_all([replace(plan("gone soon"), name="one"), replace(plan("soon"), name="other")])
    assert result_count(engine, 0, 1, "gone soon") == 2
    assert {"gone soon", "soon"} <= _texts_read()
    engine.remove("one")
    assert "gone soon" not in _texts_read()
    assert result_count(engine, 0, 2, "gone soon") == 1


def test_networks_of_removed_queries_are_freed() -> None:
    engine = StreamEngine(CHAIN, TimeWindow(10))
    before = _template_count()
    for number in range(20):
        engine.add(replace(plan(f"word{number}"), name="one"))
        assert result_count(engine, 0, number, f"word{number}") == 1
        engine.remove("one")
    assert _template_count() <= before + 1


def _template_count() -> int:
    gc.collect()
    return sum(isinstance(each, NetworkTemplate) for each in gc.get_objects())


def _texts_read() -> set[str]:
    labels = (each for each in gc.get_objects() if isinstance(each, ResultLabels))
    return {text for each in labels for text in each.texts(np.arange(len(each)))}


def test_query_names_are_unique_and_suggested() -> None:
    engine = StreamEngine(CHAIN, TimeWindow(10))
    engine.add(replace(plan("alpha"), name="one"))
    with pytest.raises(UsageError, match="already a query 'one'"):
        engine.add(replace(plan("alpha"), name="one"))
    with pytest.raises(UsageError, match="did you mean 'one'"):
        engine.remove("ones")
    with pytest.raises(UsageError, match="share its schema and window"):
        engine.add(replace(plan("alpha"), window=TimeWindow(1), name="other"))


KINDS = (Attribute("t", AttributeType.TEXT), Attribute("x", AttributeType.INTEGER))
CHAIN = Schema(
    "chain",
    tuple(Relation(name, KINDS, search=("t",)) for name in "abc"),
    (Join("ab", "a", "b", (("x", "x"),)), Join("bc", "b", "c", (("x", "x"),))),
)


def plan(text: str) -> Plan:
    return Plan(CHAIN, parse_query(text, CHAIN), TimeWindow(10), 3)


def result_count(engine: StreamEngine, relation: int, time: int, words: str) -> int:
    return len(list(engine.process([Record(relation, time, (words, 1))])))


def waiting_count(engine: StreamEngine) -> int:
    return sum(use.waiting for use in engine.used())


def test_tuples_that_arrive_during_sleep_are_joined_on_waking() -> None:
    engine = StreamEngine.of(plan("alpha beta"))
    assert result_count(engine, 0, 1, "alpha") == 0
    assert result_count(engine, 1, 2, "pad") == 0
    assert waiting_count(engine) == 0
    assert result_count(engine, 2, 3, "beta") == 1
    assert waiting_count(engine) > 0
    assert result_count(engine, 2, 4, "beta") == 1


def test_partial_results_are_freed_on_falling_asleep() -> None:
    engine = StreamEngine.of(plan("alpha beta"))
    stream = ((2, 1, "beta"), (0, 8, "alpha"), (1, 8, "pad"))
    assert [result_count(engine, *record) for record in stream] == [0, 0, 1]
    assert waiting_count(engine) > 0
    engine.expire(11)
    engine.compact(11)
    assert (engine.live_tuples, waiting_count(engine)) == (2, 0)
    assert result_count(engine, 2, 12, "beta") == 1


def test_a_removed_query_leaves_nothing_in_its_shared_mesh() -> None:
    stream = ((0, 1, "alpha gamma"), (1, 2, "pad"), (2, 3, "beta"), (2, 3, "pad"))
    shared, single = (StreamEngine(CHAIN, TimeWindow(10)) for _ in range(2))
    shared.add(plan("gamma beta"))
    for engine in (shared, single):
        engine.add(plan("alpha beta"))
        for record in stream:
            result_count(engine, *record)
    shared.remove("gamma beta")
    assert shared.entries == single.entries > single.live_tuples
    assert result_count(shared, 2, 4, "beta") == result_count(single, 2, 4, "beta") == 1


@some(
    "window, lateness, logged",
    [
        *((TimeWindow(9), lateness, False) for lateness in (0, 3)),
        *((window, 0, False) for window in (CountWindow(9), Unbounded())),
    ],
    [
        *((TimeWindow(9), lateness, True) for lateness in (0, 3)),
        *((window, 0, True) for window in (CountWindow(9), Unbounded())),
    ],
)
def test_begins_of_updated_results_are_forgotten_with_them(
    window: Window, lateness: int, logged: bool
) -> None:
    """With and without a log; if there is no window, the rows are deleted."""
    engine = StreamEngine(STREAMS, window, lateness=lateness)
    engine.add(Plan(STREAMS, parse_query("alpha", STREAMS), window, 1))
    keyed = STREAMS.index["keyed"]
    for first in range(0, 1_300, 10):
        records = []
        for number in range(first, first + 10):
            rows = [(text, number, 0) for text in ("alpha", "alpha beta")]
            records += [
                Record(keyed, 3 * number + number_of_row, row) for number_of_row, row in enumerate(rows)
            ]
            if isinstance(window, Unbounded):
                records.append(Record(keyed, 3 * number + 2, rows[1], delete=True))
        ops = [each.op for each in engine.process(records)]
        assert [op for op in ops if op != "-"] == ["+", "~"] * 10
        assert not logged or len(engine.begins()) <= 20
    assert len(engine.all_begins()) < 1_100
    assert len(engine.begins()) < 1_100


@pytest.mark.parametrize("window", [TimeWindow(1_000_000), CountWindow(50), Unbounded()])
@pytest.mark.parametrize("replayed_deletions", [False, True])
def test_begins_of_a_log_are_forgotten_with_their_results(window: Window, replayed_deletions: bool) -> None:
    """Whether the results end before or after a restart."""
    engines = []
    for _ in range(2):
        engine = StreamEngine(STREAMS, window)
        engine.add(Plan(STREAMS, parse_query("alpha", STREAMS), window, 1))
        engines.append(engine)
    before, after = engines
    keyed = STREAMS.index["keyed"]
    rows = [(text, number, 0) for number in range(20) for text in ("alpha", "alpha beta")]
    updates = [Record(keyed, time, row) for time, row in enumerate(rows)]
    deletions = [Record(keyed, 100 + number, ("", number, 0), delete=True) for number in range(20)]
    logged = [*updates, *deletions] if replayed_deletions else updates
    for record in logged:
        list(before.process([record]))
        list(after.process([record]))
        after.expect_begins(before.begins())
    assert bool(after.all_begins()) == (not replayed_deletions)
    list(after.process([] if replayed_deletions else deletions))
    assert not after.all_begins()


def test_begins_of_a_log_expire() -> None:
    window = TimeWindow(9)
    engine = StreamEngine(STREAMS, window)
    engine.add(Plan(STREAMS, parse_query("alpha", STREAMS), window, 1))
    list(engine.process([Record(0, 1, ("beta", 1, 1))]))
    engine.expect_begins(Begin("alpha", str(number), 1e-6, 0.0, 9e-6) for number in range(2_000))
    list(engine.process([Record(0, 100, ("beta", 1, 1))]))
    assert not engine.all_begins()


@pytest.mark.parametrize(
    ("window", "lateness"), [(TimeWindow(90), 0), (TimeWindow(90), 3), (CountWindow(9), 0), (Unbounded(), 0)]
)
def test_queries_with_the_same_text_are_separate(window: Window, lateness: int) -> None:
    """Each reports the same results under its own name, whichever others are added, removed or rebuilt."""
    plan_of_query = Plan(STREAMS, parse_query("alpha", STREAMS), window, 1)
    keyed = STREAMS.index["keyed"]

    def engine_of(*names: str) -> StreamEngine:
        engine = StreamEngine(STREAMS, window, lateness=lateness)
        engine.add_all([replace(plan_of_query, name=name) for name in names])
        return engine

    def process(engine: StreamEngine, time: int) -> list[tuple[str, str, str, float | None]]:
        results = engine.process([Record(keyed, time, (f"alpha {time}", 1, 0))])
        return [(each.op, each.name, each.query, each.start) for each in results]

    begin, engine = 1 / 1_000_000, engine_of("first", "second")
    assert process(engine, 1) == [("+", name, "alpha", begin) for name in ("first", "second")]
    assert process(engine, 2) == [("~", name, "alpha", begin) for name in ("first", "second")]
    engine.remove("first")
    assert process(engine, 3) == [("~", "second", "alpha", begin)]
    (snapshot,) = engine.add(replace(plan_of_query, name="third"))
    assert (snapshot.name, snapshot.start, snapshot.snapshot) == ("third", begin, True)
    assert process(engine, 4) == [("~", name, "alpha", begin) for name in ("second", "third")]
    assert [each.start for name in ("second", "third") for each in engine.alive(name)] == [begin] * 2
    rebuilt = engine_of("third", "second")
    process(rebuilt, 4)
    rebuilt.expect_begins(engine.all_begins())
    assert sorted(process(rebuilt, 5)) == [("~", name, "alpha", begin) for name in ("second", "third")]
    rebuilt.remove("second")
    (retraction,) = rebuilt.process([Record(keyed, 6, ("alpha 5", 1, 0), delete=True)])
    assert (retraction.op, retraction.name, retraction.start) == ("-", "third", begin)
    rebuilt.remove("third")
    assert not rebuilt.all_begins()


@pytest.mark.parametrize("relation", ["plain", "keyed"])
def test_an_equal_query_ignores_results_that_ended_before_it(relation: str) -> None:
    """Late records still change expired results for the earlier query, and add new ones for the later."""
    plan = Plan(STREAMS, parse_query("alpha", STREAMS), TimeWindow(10), 1)
    engine = StreamEngine(STREAMS, TimeWindow(10), lateness=50)
    engine.add(replace(plan, name="first"))
    number = STREAMS.index[relation]
    rows = [("alpha", 1, 0), ("alpha again", 1, 0)]

    def reports_of(record: Record) -> list[tuple[str, str, float | None, float | None]]:
        return [(each.op, each.name, each.start, each.end) for each in engine.process([record])]

    assert reports_of(Record(number, 20, rows[0])) == [("+", "first", 20e-6, 30e-6)]
    assert reports_of(Record(number, 40, ("no", 2, 0))) == []
    assert engine.add_all([replace(plan, name=name) for name in ("second", "third")]) == []
    assert reports_of(Record(number, 25, rows[0], delete=True)) == [("-", "first", 20e-6, 25e-6)]
    reports = reports_of(Record(number, 22, rows[1]))
    if relation == "plain":
        assert reports == [("+", name, 22e-6, 32e-6) for name in ("first", "second", "third")]
    engine.remove("second")
    assert [name for _, name, _, _ in reports_of(Record(number, 45, rows[1]))] == ["first", "third"]
    engine.remove("third")
    engine.add(replace(plan, name="fourth"))
    assert [name for _, name, _, _ in reports_of(Record(number, 46, ("alpha", 3, 0)))] == ["first", "fourth"]
