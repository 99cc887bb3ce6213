"""Keywords in order (``fraud ; refund``): every engine and mode against brute force, after every instant."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skws.data.record import Record
from skws.keywords.parse import parse_query
from skws.keywords.plan import Plan
from skws.queries.keywords.columnar import ColumnarEngine
from skws.queries.keywords.engine import Engine
from skws_mesh.networks import CandidateNetwork
from skws_schema.model import Attribute, AttributeType, Join, Relation, Schema
from skws_windows.window import CountWindow, TimeWindow, Unbounded, Window
from tests.oracles.oracle import Oracle, instants
from tests.paper_modes import MODES, by_delta, ops
from tests.strategies import COLUMNS, examples, runs, schemas, static_rows, streams

QUERIES = ["alpha ; beta", "beta ; alpha", "alpha gamma ; beta", "alpha ; beta ; gamma", "gamma ; beta alpha"]
WINDOWS: list[Window] = [TimeWindow(3), TimeWindow(9), Unbounded()]
SMALL = Schema(
    "small",
    tuple(
        Relation(
            name, (Attribute("t", AttributeType.TEXT), Attribute("x", AttributeType.INTEGER)), search=("t",)
        )
        for name in "ab"
    ),
    (Join("j", "a", "b", (("x", "x"),)),),
)


def engines(plan: Plan) -> list[Engine | ColumnarEngine]:
    tupled = [Engine(replace(plan, mesh=mesh, purge=purge, demand=demand)) for mesh, purge, demand in MODES]
    return [ColumnarEngine.of(plan), by_delta(plan), *tupled]


DENSE = Schema(
    "dense",
    (
        Relation("plain", COLUMNS, search=("t",)),
        Relation("keyed", COLUMNS, key=("y",), search=("t",)),
        Relation("link", COLUMNS),
        Relation("fixed", COLUMNS, search=("t",), table=True),
    ),
    (
        Join("pk", "plain", "keyed", (("x", "x"),)),
        Join("pp", "plain", "plain", (("x", "y"),)),
        Join("lk", "link", "keyed", (("x", "x"),)),
        Join("lp", "link", "plain", (("x", "x"),)),
        Join("fp", "fixed", "plain", (("x", "x"),)),
    ),
)


def rows(random: Random, count: int, relations: int, steps: list[int], last: int = 0) -> list[Record]:
    """Tuples that join, most with a keyword, many at one time; equal ones, replacements and deletions.

    ``last``: of how many records those are that may come again or be deleted; 0 for all.
    """
    stream: list[Record] = []
    for _ in range(count):
        time = (stream[-1].time if stream else 0) + random.choice(steps)
        if stream and random.random() < 0.25:
            stream.append(random.choice(stream[-last:])._replace(time=time, delete=random.random() < 0.6))
            continue
        words = [random.choice(["alpha", "beta", "gamma", "no"]), random.choice(["", "", "", "alpha"])]
        numbers = random.choice([0, 1]), random.choice([0, 1, 2, None])
        stream.append(Record(random.randrange(relations), time, (" ".join(words), *numbers)))
    return stream


def tables(random: Random) -> list[Record]:
    return [r._replace(relation=3, time=0, delete=False) for r in rows(random, 2, 1, [0])]


@pytest.mark.parametrize("text", QUERIES)
@pytest.mark.parametrize("window", WINDOWS)
def test_every_mode_finds_the_trees_in_order(text: str, window: Window) -> None:
    plan = Plan(DENSE, parse_query(text, DENSE), window, 3)
    found = 0
    for seed in runs(4):
        random = Random(seed)
        static, stream = tables(random), rows(random, 50, 3, [0, 0, 0, 1])
        oracle = Oracle(DENSE, len(plan.keywords), 3, plan.matcher.bitmap, plan.query.sequence.groups)
        running = engines(plan)
        snapshot = oracle.load([(r.relation, r.row) for r in static])
        for engine in running:
            assert ops(list(engine.load_tables(static)), "+") == snapshot
        for time, records in instants(stream):
            length = window.length if isinstance(window, TimeWindow) else float("inf")
            retracted, appeared = oracle.instant(time, records, length)
            told = [[r.to_json() for r in engine.process(records)] for engine in running[1:]]
            results = list(running[0].process(records))
            assert (ops(results, "-"), ops(results, "+")) == (retracted, appeared)
            assert told == [[r.to_json() for r in results]] * len(told)
            found += len(results)
    assert found > 2


@pytest.mark.parametrize("text", ["alpha beta", "alpha -gamma beta", *QUERIES[:2]])
@pytest.mark.parametrize("size", [2, 5])
def test_deletions_in_count_windows(text: str, size: int) -> None:
    """Dense with deletions, which are no arrivals; a query that comes then finds what is alive."""
    plan = Plan(DENSE, parse_query(text, DENSE), CountWindow(size), 3)
    retractions = alive = 0
    for seed in (0, 1, 5):
        random = Random(seed)
        static, stream = tables(random), rows(random, 60, 3, [0, 0, 1], last=size + 1)
        oracle = Oracle(DENSE, len(plan.keywords), 3, plan.matcher.bitmap, plan.query.sequence.groups)
        running = [*engines(plan), ColumnarEngine.of(replace(plan, evaluated_by="automata"))]
        late = ColumnarEngine(DENSE, plan.window)
        oracle.load([(r.relation, r.row) for r in static])
        for engine in [*running, late]:
            list(engine.load_tables(static))
        for number, record in enumerate(stream):
            expected = oracle.record(record, size)
            list(late.process([record]))
            if number % 7 == 6:
                assert ops(late.add(plan), "+") == Counter(map(oracle.shape, oracle.found))
                late.remove(text)
            for engine in running:
                results = list(engine.process([record]))
                assert (ops(results, "-"), ops(results, "+")) == expected
            retractions += expected[0].total()
            alive += len(oracle.found)
    assert retractions > size - 2
    assert alive > 10


@given(st.data(), st.sampled_from([TimeWindow(3), CountWindow(4)]))
@examples(40)
def test_any_schema(data: st.DataObject, window: TimeWindow | CountWindow) -> None:
    schema, text = data.draw(schemas(tables=True)), data.draw(st.sampled_from(QUERIES[:2]))
    static, stream = data.draw(static_rows(schema, 2)), data.draw(streams(schema, 2, max_records=20))
    plan = Plan(schema, parse_query(text, schema), window, 3)
    oracle = Oracle(schema, 2, 3, plan.matcher.bitmap, plan.query.sequence.groups)
    running = Engine(plan), ColumnarEngine.of(plan)
    oracle.load([(r.relation, r.row) for r in static])
    for engine in running:
        list(engine.load_tables(static))
    for time, together in instants(stream):
        for records in [[r] for r in together] if isinstance(window, CountWindow) else [together]:
            if isinstance(window, CountWindow):
                expected = oracle.record(records[0], window.size)
            else:
                expected = oracle.instant(time, records, window.length)
            for engine in running:
                results = list(engine.process(records))
                assert (ops(results, "-"), ops(results, "+")) == expected


@pytest.mark.parametrize("lateness", [3, 30])
def test_late_tuples_have_their_place_in_time(lateness: int) -> None:
    """Ends of tuples may be settled late, and tuples joined anew: ties keep their order of arrival."""
    found = 0
    for seed in runs(40):
        random = Random(seed)
        stream = rows(random, 30, 3, [0, 0, 1])
        stream = [r._replace(time=max(0, r.time - random.choice([0, 0, 1, 2]))) for r in stream]
        text = QUERIES[seed % len(QUERIES)]
        plan = Plan(DENSE, parse_query(text, DENSE), TimeWindow(6), 3, lateness=lateness)
        spans = []
        for engine in (Engine(plan), ColumnarEngine.of(plan)):
            told = [*engine.process(stream[:15]), *engine.process(stream[15:])]
            spans.append({r.id: (r.start, r.end) for r in told})
        lived = [
            {i: s for i, s in each.items() if s[0] is None or s[1] is None or s[0] < s[1]} for each in spans
        ]
        assert lived[0] == lived[1]
        found += len(lived[0])
    assert found > 40


def test_standing_queries_with_and_without_order_do_not_disturb_each_other() -> None:
    texts = ["alpha beta", *QUERIES, "gamma ; alpha", "beta gamma"]  # more than are matched one by one
    plans = {text: Plan(DENSE, parse_query(text, DENSE), TimeWindow(9), 3) for text in texts}
    for seed in runs(8):
        stream = rows(Random(seed), 30, 3, [0, 0, 1, 2])
        joint, late = ColumnarEngine(DENSE, TimeWindow(9)), ColumnarEngine(DENSE, TimeWindow(9))
        for plan in plans.values():
            joint.add(plan)
        told = list(joint.process(stream))
        for text, plan in plans.items():
            alone = [r.to_json() for r in ColumnarEngine.of(plan).process(stream)]
            assert [r.to_json() for r in told if r.query == text] == alone
        assert list(late.process(stream)) == []
        for text in QUERIES:
            mine = [r for r in told if r.query == text]
            now = stream[-1].time / 1_000_000
            alive = {r.id for r in mine if r.op == "+" and r.end is not None and r.end > now}
            alive -= {r.id for r in mine if r.op == "-"}
            assert {r.id for r in late.add(plans[text])} == alive


def test_ties_are_ordered_by_arrival_and_a_tuple_does_not_come_before_itself() -> None:
    query = parse_query("fraud ; refund", SMALL)
    rows = [(0, ("fraud", 1)), (1, ("refund", 1)), (0, ("fraud", 1)), (1, ("fraud refund", 1))]
    stream = [Record(relation, 0, row) for relation, row in rows]
    for engine in engines(Plan(SMALL, query, TimeWindow(9), 2)):
        results = list(engine.process(stream))
        assert [t.id for r in results for t in r.tuples if t.keywords == ("fraud",)] == [
            results[0].tuples[0].id
        ]


def test_static_tuples_come_before_all_others_and_not_one_after_another() -> None:
    relations = (SMALL.relations[0], replace(SMALL.relations[1], table=True))
    schema = replace(SMALL, relations=relations)
    static, stream = [Record(1, 0, ("both", 1))], [Record(0, 5, ("word", 1))]
    for text, found in (("both ; word", 1), ("word ; both", 0)):
        for engine in engines(Plan(schema, parse_query(text, schema), TimeWindow(9), 2)):
            list(engine.load_tables(static))
            assert len(list(engine.process(stream))) == found


def test_networks_have_no_node_that_would_come_before_itself() -> None:
    plan = Plan(SMALL, parse_query("fraud alarm ; refund", SMALL), TimeWindow(9), 3)
    networks = [CandidateNetwork.of(tree) for tree in plan.generator().networks()]
    carried = {keywords for network in networks for keywords in network.keywords}
    assert carried == {0, 0b001, 0b010, 0b011, 0b100}
    unordered = Plan(SMALL, parse_query("fraud alarm refund", SMALL), TimeWindow(9), 3)
    assert len(networks) < sum(1 for _ in unordered.generator().networks())
