"""After every instant every engine has exactly the results of brute force, for any query."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from itertools import pairwise
from random import Random

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from skws.data.batch import Record, RecordBatch
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
    plain = " ".join(WORDS[:words])
    known = [*(r.name for r in schema.relations), *(join.name for join in schema.joins), "r0.x", "r1.y"]
    names = st.lists(st.sampled_from(known), max_size=2, unique=True)
    left_out = names.map(lambda without: with_left_out(plain, without))
    text = draw(st.one_of(st.just(plain), left_out, st.sampled_from(ORDERED), query_texts()))
    stream = draw(streams(schema, 3 if text != plain else words, max_records=18))
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
    """Compares every engine with the oracle, and the first results of a query that is added at each instant.

    Returns the number of results.
    """
    query, schema = plan.query, plan.schema

    def carried(relation: int, row: Row) -> int:
        return EXCLUDED if relation in query.without else bitmap(query, schema, relation, row)

    groups, without_joins = query.sequence.groups, query.without_joins
    oracle = Oracle(schema, len(plan.keywords), plan.max_size, carried, groups, without_joins)
    running, late = engines(plan), StreamEngine(schema, plan.window)
    snapshot = oracle.load([(r.relation, r.row) for r in static])
    told = [list(engine.load_tables(static)) for engine in running]
    assert all(ops(results, "+") == snapshot for results in told)
    list(late.load_tables(static))
    reported = list(told[0])
    for records, expected in steps(plan.window, stream, oracle):
        told = [list(engine.process(records)) for engine in running]
        updated = Counter(
            (shape_of(each), None if each.start is None else round(each.start * MICROSECOND))
            for each in told[0]
            if each.op == "~"
        )
        assert (ops(told[0], "-"), ops(told[0], "+"), updated) == expected
        shown = [[result.to_json() for result in results] for results in told]
        assert shown == shown[:1] * len(shown)
        list(late.process(records))
        assert ops(late.add(plan), "+") == Counter(map(oracle.shape, oracle.found))
        late.remove(query.text)
        reported += told[0]
    check_consumer(reported, plan.window)
    assert not any("None" in each.id for result in reported for each in result.tuples), "NULL is no key"
    if isinstance(plan.window, TimeWindow) and not static:
        for engine in running:
            engine.expire(10**6)
            assert engine.idle
    return sum(result.op == "+" for result in reported)


def check_consumer(reported: list[Result], window: Window) -> None:
    """A consumer that keeps live results by id gets none that it has, and loses none that it lacks.

    Under a count window, consumers are not told that a result has expired.
    """
    untold = isinstance(window, CountWindow)
    live: dict[str, Result] = {}
    for result in reported:
        known = live.pop(result.id, None)
        if result.op == "+":
            assert known is None or untold or (known.end is not None and known.end <= (result.start or 0))
        else:
            assert known is not None
            assert result.start == known.start
        if result.op == "~":
            assert known is not None
            changed = dict(result.changed)
            rows = {each.id: each.row for each in known.tuples}
            for each in result.tuples:
                former = rows.pop(each.id)
                assert changed.get(each.id, ()) == tuple(
                    a for a, value in each.row.items() if former[a] != value
                )
            assert not rows
        if result.op != "-":
            live[result.id] = result


@given(cases(), WINDOWS, st.sampled_from([1, 2, 3, 4, 4, 4]))
@examples(400)
def test_results_equal_brute_force_for_any_schema(
    case: tuple[Schema, str, list[Record], list[Record]], window: Window, most: int
) -> None:
    schema, text, static, stream = case
    check(planned(schema, text, window, most=most), static, stream)


def test_a_result_found_again_within_an_instant_is_reported_twice() -> None:
    """Only a count window ends a result within an instant, and its expiries are not reported."""
    schema = parse_schema("relations: {item: {attributes: {id: integer, name: text}, key: [id]}}")
    rows = [(1, "alpha"), (2, "beta"), (3, "beta"), (1, "alpha beta")]
    plan = planned(schema, "alpha", CountWindow(1))
    assert check(plan, [], [Record(0, 5, row) for row in rows]) == 2


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
    plan, found = Plan(DENSE, parse_query(text, DENSE), window, 3), 0
    for seed in runs(3):
        rng = Random(seed)
        static, stream = dense_tables(rng), dense_rows(rng, 42, [0, 0, 1], last=6)
        found += check(plan, static, stream)
    assert found > 2


@given(cases(), WINDOWS, st.sampled_from([0, 0, 3]))
@examples(150)
def test_updates_as_retractions_and_results(
    case: tuple[Schema, str, list[Record], list[Record]], window: Window, lateness: int
) -> None:
    schema, text, static, stream = case
    assume(not (lateness and isinstance(window, CountWindow)))
    plan = planned(schema, text, window, lateness, 3)
    for kind in (StreamEngine.of, by_paper):
        whole, replacing = kind(plan), kind(replace(plan, updates=ToldUpdates.REPLACE))
        told = [*whole.load_tables(static), *whole.process(stream)]
        replaced = [*replacing.load_tables(static), *replacing.process(stream)]
        live: dict[str, Result] = {}
        expected = []
        for result in told:
            known = live.pop(result.id, None)
            if result.op == "~":
                assert known is not None
                expected.append(("-", known.id, shape_of(known)))
            expected.append((result.op.replace("~", "+"), result.id, shape_of(result)))
            if result.op != "-":
                live[result.id] = result
        assert sorted(expected) == sorted((each.op, each.id, shape_of(each)) for each in replaced)
        check_consumer(replaced, window)


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
    shuffled = data.draw(st.permutations(stream))
    cut = data.draw(st.integers(0, len(shuffled)))  # so that late records meet earlier ones
    dropped: list[list[Record]] = []

    def heard() -> object:
        dropped.append([])
        return lambda record, _, mine=dropped[-1]: mine.append(record)

    running = engines(planned(schema, text, window, lateness, 3), heard)  # type: ignore[arg-type]
    told = [
        [*each.load_tables(static), *each.process(shuffled[:cut]), *each.process(shuffled[cut:])]
        for each in running
    ]
    assert all(net(results) == net(told[0]) for results in told)
    assert all(late == dropped[0] for late in dropped)
    assert [engine.counts.late for engine in running] == [len(dropped[0])] * len(running)
    if lateness == 10**6:
        in_order = StreamEngine.of(planned(schema, text, window, lateness, 3))
        assert net(told[0]) == net([*in_order.load_tables(static), *in_order.process(stream)])
        assert not dropped[0]
    for history in (history for results in told for history in histories(results).values()):
        # A retracted result ends earlier than reported; one that is reported again was retracted.
        assert all(
            ends is not None and end is not None and end < ends if (op, after) == ("-", "-") else op != after
            for (op, ends), (after, end) in pairwise(history)
        )


@pytest.mark.parametrize("other", [1, 0], ids=["with a key", "without keys"])
@pytest.mark.parametrize("cuts", [(0, 3), (0, 1, 2, 3), (0, 2, 3)])
def test_a_late_deletion_before_a_result_began(other: int, cuts: tuple[int, ...]) -> None:
    """Whether reported in one batch or in several, the result does not exist in the end."""
    stream = [
        Record(0, 13, ("alpha", 0, 1)),
        Record(other, 38, ("beta", other == 0, other)),
        Record(0, 17, ("alpha", 0, 1), True),
    ]
    told = []
    for engine in engines(planned(DENSE, "alpha beta", Unbounded(), 10**6, 3)):
        results = [one for first, last in pairwise(cuts) for one in engine.process(stream[first:last])]
        told.append([(one.op, one.id, one.start, one.end) for one in results])
    assert told == [told[0]] * len(told)
    number = 0 if cuts == (0, 3) else 1 if other else 2
    assert [op for op, *_ in told[0]] == ["+"] * number + ["-"] * number


def histories(results: list[Result]) -> dict[str, list[tuple[str, float | None]]]:
    """The reports of each result, with its end."""
    told: dict[str, list[tuple[str, float | None]]] = {}
    for result in results:
        told.setdefault(result.id, []).append((result.op, result.end))
    return told


def test_networks_have_no_cyclic_order_and_no_excluded_relation() -> None:
    def networks(text: str) -> list[CandidateNetwork]:
        plan = Plan(DENSE, parse_query(text, DENSE), TimeWindow(9), 3)
        return [CandidateNetwork.of(tree) for tree in plan.generator().networks()]

    every, ordered = networks("gamma alpha beta"), networks("gamma alpha ; beta")
    assert {keywords for network in ordered for keywords in network.keywords} == {0, 1, 2, 3, 4}
    assert set(ordered) < set(every)
    without = {DENSE.index["link"], DENSE.index["fixed"]}
    left = networks("gamma alpha beta -link: -fixed:")
    assert set(left) == {network for network in every if not without & {*network.relations}}


VISITS = parse_schema("""
relations:
  visit: {attributes: {who: integer, door: integer}, key: [who]}
  person: {attributes: {who: integer, name: text}, key: [who], table: true}
""")


def test_keys_with_a_null_identify_no_tuple_of_a_match() -> None:
    live = Session(Stream(VISITS, CountWindow(9)), keywords=False)
    live.add(Query("visit v", 1, PATTERN, name="q"))
    found = live.take(RecordBatch.of([Record(0, time, (None, 1)) for time in (1, 1, 2)]))
    names = [each.tuples[0].id for each in found]
    assert len(set(names)) == 3
    assert not any("None" in name for name in names)


def test_all_table_rows_with_a_null_in_the_key_remain() -> None:
    rows = [(None, "ada"), (None, "ada"), (None, "bob"), (1, "x"), (1, "y")]
    items = [Record(1, 1, row) for row in rows]
    left = [
        r.row for r in final_rows([*items, items[0]._replace(delete=True)], VISITS) if isinstance(r, Record)
    ]
    assert left == [(None, "ada"), (None, "bob"), (1, "y")]
