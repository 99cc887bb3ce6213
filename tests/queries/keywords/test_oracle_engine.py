"""After every instant every engine has exactly the results of brute force, for any query."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from itertools import pairwise
from random import Random

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from skws.data.batch import Record, RecordBatch, batched
from skws.keywords.match import EXCLUDED
from skws.keywords.parse import parse_query
from skws.keywords.plan import Plan
from skws.keywords.scope import with_left_out
from skws.queries.keywords.stream_engine import StreamEngine
from skws.queries.session import Session
from skws.results.result import Result
from skws.sources.kafka.topic_reader import final_rows
from skws.spec.enums import ToldUpdates
from skws.spec.query_spec import PATTERN, Query, Stream
from skws_mesh.candidate_networks import CandidateNetwork
from skws_schema.errors import QueryError
from skws_schema.model import Row, Schema
from skws_schema.yaml.load import parse_schema
from skws_windows.window import MICROSECOND, CountWindow, TimeWindow, Unbounded, Window
from tests.oracles.bitmaps import bitmap
from tests.oracles.oracle import Oracle, shape_of, steps
from tests.paper_modes import SIZES, by_paper, engines, net, ops
from tests.queries.random_streams import DENSE, dense_rows, dense_tables
from tests.strategies import (
    WORDS,
    combinations,
    examples,
    query_texts,
    runs,
    schemas,
    static_rows,
    streams,
    worded,
)

ORDERED = ["alpha ; beta", "beta ; alpha", "alpha gamma ; beta", "alpha ; beta ; gamma", "gamma ; beta alpha"]
WINDOWS: st.SearchStrategy[Window] = st.one_of(
    st.builds(TimeWindow, st.integers(1, 8)), st.builds(CountWindow, st.integers(1, 6)), st.just(Unbounded())
)


@st.composite
def cases(draw: st.DrawFn) -> tuple[Schema, str, list[Record], list[Record]]:
    """A schema, a query of any kind over it, rows of its tables, and a stream."""
    schema, words = draw(schemas(tables=True)), draw(st.integers(1, 3))
    keywords = " ".join(WORDS[:words])
    exclusions = [*(r.name for r in schema.relations), *(join.name for join in schema.joins), "r0.x", "r1.y"]
    names = st.lists(st.sampled_from(exclusions), max_size=2, unique=True)
    with_exclusions = names.map(lambda without: with_left_out(keywords, without))
    text = draw(st.one_of(st.just(keywords), with_exclusions, st.sampled_from(ORDERED), query_texts()))
    stream = draw(streams(schema, 3 if text != keywords else words, max_records=18))
    return draw(st.one_of(st.just(schema), worded(schema))), text, draw(static_rows(schema, words)), stream


def planned(schema: Schema, text: str, window: Window, lateness: int = 0, most: int = 4) -> Plan:
    """A plan for results no larger than brute force can handle."""
    try:
        query = parse_query(text, schema)
    except QueryError:
        assume(False)
        raise
    return Plan(schema, query, window, min(SIZES[len(query.slots)], most), lateness)


def check(plan: Plan, static: list[Record], stream: list[Record]) -> int:
    """Compares every engine with the oracle, also the snapshot of a query that is added at each instant.

    Returns the number of results.
    """
    query, schema = plan.query, plan.schema

    def keyword_bits(relation: int, row: Row) -> int:
        return EXCLUDED if relation in query.without else bitmap(query, schema, relation, row)

    groups, without_joins = query.sequence.groups, query.without_joins
    oracle = Oracle(schema, len(plan.keywords), plan.max_size, keyword_bits, groups, without_joins)
    compared, late = engines(plan), StreamEngine(schema, plan.window)
    snapshot = oracle.load([(r.relation, r.row) for r in static])
    outputs = [list(engine.load_tables(batched(static))) for engine in compared]
    assert all(ops(results, "+") == snapshot for results in outputs)
    list(late.load_tables(batched(static)))
    reported = list(outputs[0])
    for records, expected in steps(plan.window, stream, oracle):
        outputs = [list(engine.process(records)) for engine in compared]
        updates = Counter(
            (shape_of(each), None if each.start is None else round(each.start * MICROSECOND))
            for each in outputs[0]
            if each.op == "~"
        )
        assert (ops(outputs[0], "-"), ops(outputs[0], "+"), updates) == expected
        encodings = [[result.to_json() for result in results] for results in outputs]
        assert encodings == encodings[:1] * len(encodings)
        list(late.process(records))
        assert ops(late.add(plan), "+") == Counter(map(oracle.shape, oracle.found))
        late.remove(query.text)
        reported += outputs[0]
    check_consumer(reported, plan.window)
    assert not any("None" in each.id for result in reported for each in result.tuples), "NULL is no key"
    if isinstance(plan.window, TimeWindow) and not static:
        for engine in compared:
            engine.expire(10**6)
            assert engine.idle
    return sum(result.op == "+" for result in reported)


def check_consumer(reported: list[Result], window: Window) -> None:
    """Checks that no result is reported twice and none is retracted or updated that is not live.

    Under a count window, consumers are not told that a result has expired.
    """
    silent_expiry = isinstance(window, CountWindow)
    live: dict[str, Result] = {}
    for result in reported:
        earlier = live.pop(result.id, None)
        if result.op == "+":
            assert (
                earlier is None
                or silent_expiry
                or (earlier.end is not None and earlier.end <= (result.start or 0))
            )
        else:
            assert earlier is not None
            assert result.start == earlier.start
        if result.op == "~":
            assert earlier is not None
            changes = dict(result.changed)
            rows = {member.id: member.row for member in earlier.tuples}
            for member in result.tuples:
                old_row = rows.pop(member.id)
                assert changes.get(member.id, ()) == tuple(
                    a for a, value in member.row.items() if old_row[a] != value
                )
            assert not rows
        if result.op != "-":
            live[result.id] = result


@pytest.mark.check
@given(cases(), WINDOWS, st.sampled_from([1, 2, 3, 4, 4, 4]))
@examples(400)
def test_results_equal_brute_force_for_any_schema(
    case: tuple[Schema, str, list[Record], list[Record]], window: Window, max_size: int
) -> None:
    schema, text, static, stream = case
    check(planned(schema, text, window, most=max_size), static, stream)


def test_a_result_found_again_within_an_instant_is_reported_twice() -> None:
    """Only a count window ends a result within an instant, and its expiries are not reported."""
    schema = parse_schema("relations: {item: {attributes: {id: integer, name: text}, key: [id]}}")
    rows = [(1, "alpha"), (2, "beta"), (3, "beta"), (1, "alpha beta")]
    plan = planned(schema, "alpha", CountWindow(1))
    assert check(plan, [], [Record(0, 5, row) for row in rows]) == 2


@pytest.mark.check
@combinations(
    "text, window",
    [
        *ORDERED,
        "alpha beta gamma",
        "alpha -gamma beta",
        "alpha beta -link:",
        "alpha beta -plain:",
        "alpha beta -keyed: -fixed:",
        "alhpa~ be*a plain.x<2",
        "!plain.x=1 beta",
        "al?ha !keyed.y:0..1 -keyed.x=0",
        "(gamma OR !fixed.x=1) alpha",
        "alpha betta~ link.y!=0",
        "alpha (plain.x=0 OR plain.y>=1) beta",
    ],
    [TimeWindow(7), CountWindow(9), Unbounded()],
    every=3,
)
def test_results_equal_brute_force_on_dense_streams(text: str, window: Window) -> None:
    plan, count = Plan(DENSE, parse_query(text, DENSE), window, 3), 0
    for seed in runs(3):
        rng = Random(seed)
        static, stream = dense_tables(rng), dense_rows(rng, 42, [0, 0, 1], last=6)
        count += check(plan, static, stream)
    assert count > 2


@given(cases(), WINDOWS, st.sampled_from([0, 0, 3]))
@examples(150)
def test_updates_as_retractions_and_results(
    case: tuple[Schema, str, list[Record], list[Record]], window: Window, lateness: int
) -> None:
    schema, text, static, stream = case
    assume(not (lateness and isinstance(window, CountWindow)))
    check_updates(planned(schema, text, window, lateness, 3), static, stream)


@pytest.mark.parametrize("window", [TimeWindow(7), CountWindow(9), Unbounded()])
def test_updates_of_dense_streams_as_retractions_and_results(window: Window) -> None:
    """Random schemas rarely have updates."""
    rng, count = Random(1), 0
    for text in ("alpha", "alpha beta"):
        plan = Plan(DENSE, parse_query(text, DENSE), window, 3)
        for _ in range(4):
            static, stream = dense_tables(rng), dense_rows(rng, 60, [0, 0, 1])
            count += check_updates(plan, static, stream)
    assert count > 2


def check_updates(plan: Plan, static: list[Record], stream: list[Record]) -> int:
    """Compares replacements with the updates that they replace; returns the number of updates."""
    update_count = 0
    for kind in (StreamEngine.of, by_paper):
        updating, replacing = kind(plan), kind(replace(plan, updates=ToldUpdates.REPLACE))
        updates = [*updating.load_tables(batched(static)), *updating.process(stream)]
        replacements = [*replacing.load_tables(batched(static)), *replacing.process(stream)]
        live: dict[str, Result] = {}
        expected = []
        for result in updates:
            earlier = live.pop(result.id, None)
            if result.op == "~":
                assert earlier is not None
                update_count += 1
                expected.append(("-", earlier.id, shape_of(earlier)))
            expected.append((result.op.replace("~", "+"), result.id, shape_of(result)))
            if result.op != "-":
                live[result.id] = result
        assert sorted(expected) == sorted((each.op, each.id, shape_of(each)) for each in replacements)
        check_consumer(replacements, plan.window)
    return update_count


@pytest.mark.check
@given(cases(), WINDOWS, st.sampled_from([1, 3, 9, 10**6]), st.booleans(), st.data())
@examples(250)
def test_late_records_have_the_results_of_sorted_records(
    case: tuple[Schema, str, list[Record], list[Record]],
    window: Window,
    lateness: int,
    dense: bool,
    data: st.DataObject,
) -> None:
    """All engines treat records within the lateness as if they had arrived in time, and drop the others."""
    schema, text, static, stream = case
    if dense:
        rng = Random(data.draw(st.integers(0, 10**6)))
        schema, text = DENSE, data.draw(st.sampled_from(ORDERED[:3]))
        static, stream = dense_tables(rng), dense_rows(rng, 24, [0, 0, 1])
    assume(not isinstance(window, CountWindow))
    # Records of one identity at one time have an order, which a shuffle must keep.
    stream = [r._replace(time=2 * i + r.time) for i, r in enumerate(stream)]
    arrival_order = data.draw(st.permutations(stream))
    split = data.draw(st.integers(0, len(arrival_order)))  # so that late records meet earlier ones
    dropped: list[list[Record]] = []

    def late_listener() -> object:
        dropped.append([])
        return lambda record, _, mine=dropped[-1]: mine.append(record)

    compared = engines(planned(schema, text, window, lateness, 3), late_listener)  # type: ignore[arg-type]
    outputs = [
        [
            *each.load_tables(batched(static)),
            *each.process(arrival_order[:split]),
            *each.process(arrival_order[split:]),
        ]
        for each in compared
    ]
    assert all(net(results) == net(outputs[0]) for results in outputs)
    assert all(late == dropped[0] for late in dropped)
    assert [engine.counts.late for engine in compared] == [len(dropped[0])] * len(compared)
    if lateness == 10**6:
        sorted_engine = StreamEngine.of(planned(schema, text, window, lateness, 3))
        assert net(outputs[0]) == net(
            [*sorted_engine.load_tables(batched(static)), *sorted_engine.process(stream)]
        )
        assert not dropped[0]
    for history in (history for results in outputs for history in histories(results).values()):
        # A retracted result ends earlier than reported; one that is reported again was retracted.
        assert all(
            ends is not None and end is not None and end < ends if (op, after) == ("-", "-") else op != after
            for (op, ends), (after, end) in pairwise(history)
        )


@pytest.mark.check
@pytest.mark.parametrize("relation", [1, 0], ids=["with a key", "without keys"])
@pytest.mark.parametrize("cuts", [(0, 3), (0, 1, 2, 3), (0, 2, 3)])
def test_a_late_deletion_before_a_result_began(relation: int, cuts: tuple[int, ...]) -> None:
    """Whether reported in one batch or in several, the result does not exist in the end."""
    stream = [
        Record(0, 13, ("alpha", 0, 1)),
        Record(relation, 38, ("beta", relation == 0, relation)),
        Record(0, 17, ("alpha", 0, 1), True),
    ]
    histories_by_engine = []
    for engine in engines(planned(DENSE, "alpha beta", Unbounded(), 10**6, 3)):
        results = [one for first, last in pairwise(cuts) for one in engine.process(stream[first:last])]
        histories_by_engine.append([(one.op, one.id, one.start, one.end) for one in results])
    assert histories_by_engine == [histories_by_engine[0]] * len(histories_by_engine)
    number = 0 if cuts == (0, 3) else 1 if relation else 2
    assert [op for op, *_ in histories_by_engine[0]] == ["+"] * number + ["-"] * number


@pytest.mark.parametrize("updates", ToldUpdates)
def test_late_records_find_and_end_a_result_again(updates: ToldUpdates) -> None:
    """The retraction has the start of the second result, not that of the first."""
    stream = [(10, "ada"), (20, "bob"), (40, "eve"), (25, "ada"), (28, "bob")]
    session = Session(Stream(NAMES, Unbounded(), lateness=20, updates=updates))
    session.add(Query("ada", 1, name="q"))
    times = []
    for batch in (stream[:1], stream[1:3], stream[3:]):
        results = session.take(RecordBatch.of([Record(0, time, (1, name)) for time, name in batch]))
        times.append([(each.op, *[t and round(t * 1e6) for t in (each.start, each.end)]) for each in results])
    assert times == [[("+", 10, None)], [("-", 10, 20)], [("+", 25, None), ("-", 25, 28)]]


def histories(results: list[Result]) -> dict[str, list[tuple[str, float | None]]]:
    """The reports of each result, with its end."""
    reports: dict[str, list[tuple[str, float | None]]] = {}
    for result in results:
        reports.setdefault(result.id, []).append((result.op, result.end))
    return reports


def test_networks_have_no_cyclic_order_and_no_excluded_relation() -> None:
    def networks(text: str) -> list[CandidateNetwork]:
        plan = Plan(DENSE, parse_query(text, DENSE), TimeWindow(9), 3)
        return [CandidateNetwork.of(tree) for tree in plan.generator().networks()]

    unordered, ordered = networks("gamma alpha beta"), networks("gamma alpha ; beta")
    assert {keywords for network in ordered for keywords in network.keywords} == {0, 1, 2, 3, 4}
    assert set(ordered) < set(unordered)
    excluded = {DENSE.index["link"], DENSE.index["fixed"]}
    remaining = networks("gamma alpha beta -link: -fixed:")
    assert set(remaining) == {network for network in unordered if not excluded & {*network.relations}}


NAMES = parse_schema("""
relations:
  person: {attributes: {who: integer, name: text}, key: [who]}
""")
VISITS = parse_schema("""
relations:
  visit: {attributes: {who: integer, door: integer}, key: [who]}
  person: {attributes: {who: integer, name: text}, key: [who], table: true}
""")


def test_keys_with_a_null_identify_no_tuple_of_a_match() -> None:
    session = Session(Stream(VISITS, CountWindow(9)), keywords=False)
    session.add(Query("visit v", 1, PATTERN, name="q"))
    matches = session.take(RecordBatch.of([Record(0, time, (None, 1)) for time in (1, 1, 2)]))
    names = [each.tuples[0].id for each in matches]
    assert len(set(names)) == 3
    assert not any("None" in name for name in names)


def test_all_table_rows_with_a_null_in_the_key_remain() -> None:
    rows = [(None, "ada"), (None, "ada"), (None, "bob"), (1, "x"), (1, "y")]
    items = [Record(1, 1, row) for row in rows]
    remaining = [
        r.row for r in final_rows([*items, items[0]._replace(delete=True)], VISITS) if isinstance(r, Record)
    ]
    assert remaining == [(None, "ada"), (None, "bob"), (1, "y")]
