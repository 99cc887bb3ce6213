"""Results put together at once are those that are put together one by one, ids included."""

from __future__ import annotations

import random
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from resource import RUSAGE_SELF, getrusage
from time import process_time

import numpy as np
import orjson
import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

import skws.queries.keywords.columnar
import skws.queries.keywords.result_emitter
import skws_mesh.columnar.hash_index
import skws_mesh.columnar.mesh
from skws.data.batch import RecordBatch
from skws.data.record import Record
from skws.keywords.parse import parse_query
from skws.keywords.plan import Plan
from skws.queries.keywords.columnar import ColumnarEngine
from skws.queries.keywords.result_emitter import Completed, _by_tick_and_id, in_order, in_ranges, retracted
from skws.results.assemble import (
    Assembler,
    Forming,
    Outline,
    Outlines,
    Readings,
    ShownQueries,
    Unformed,
    seconds,
)
from skws.results.model import Op, Result
from skws.results.names import TupleNames, digest, digest_of_join, id_of, ids, lanes, shown_ids
from skws_schema.model import Attribute, AttributeType, Join, Relation, Row, Schema
from skws_schema.yaml.load import parse_schema
from skws_windows.window import FOREVER, CountWindow, TimeWindow, Window
from tests.strategies import WORDS, examples, schemas, streams

COLUMNS = (Attribute("words", AttributeType.TEXT), Attribute("a", AttributeType.INTEGER))
SCHEMA = Schema(
    "parallel and self-joins",
    (
        Relation("r", COLUMNS, search=("words",)),
        Relation("s", (*COLUMNS, Attribute("b", AttributeType.INTEGER)), ("a",), ("words",)),
    ),
    (
        Join("one", "r", "s", (("a", "a"),)),
        Join("other", "s", "r", (("b", "a"),)),
        Join("self", "r", "r", (("a", "a"),)),
    ),
)
PLANS = [Plan(SCHEMA, parse_query(text, SCHEMA), TimeWindow(10), 4) for text in ("ada", "grace", "ada grace")]
DIGESTS = lanes(digest_of_join(join.name) for join in SCHEMA.joins)
NETWORKS = [(number, tree) for number, plan in enumerate(PLANS) for tree in plan.generator().networks()]
OUTLINES = Outlines(SCHEMA)


def outline(network: int) -> Outline:
    return OUTLINES.of(NETWORKS[network][1])


def shown() -> ShownQueries:
    return ShownQueries(lambda query: (PLANS[query].query, query))


@pytest.mark.parametrize("count", [0, 1, 40])
def test_together_as_one_by_one(count: int) -> None:
    drawn, snapshot = random.Random(count), count == 1
    names = TupleNames(SCHEMA, per_position=None)
    # Eleven equal tuples of an instant: the name of the second begins that of the eleventh.
    members = [
        [names.name(0, ("ada", 1), 5, occurrence) for occurrence in range(12)],
        [names.name(1, ("é" * key, key, None), 7, successor=key == 3) for key in range(12)],
    ]
    named = [each for some in members for each in some]
    drawn.shuffle(named)
    expected: list[Result] = []
    which, chosen, spans = [], [], []
    assemblers = [Assembler(plan.query, SCHEMA) for plan in PLANS]
    for _ in range(count):
        network = drawn.randrange(len(NETWORKS))
        query, tree = NETWORKS[network]
        left = {relation: drawn.sample(some, len(some)) for relation, some in enumerate(members)}
        mine = [left[relation].pop() for relation in tree.relations]
        start, end = drawn.choice([None, 10**15 + 1]), drawn.choice([FOREVER, 10**15 + 3])
        expected.append(assemblers[query].result("+", tree, mine, start, end, snapshot))
        which.append(network)
        chosen.append([named.index(each) for each in mine] + [-1] * (4 - len(mine)))
        spans.append(seconds(start, end))
    readings, queries = Readings(outline), shown()
    readings.numbers(sorted({*which[::2]}))  # some networks have been met before
    numbers = dict(zip(set(which), readings.numbers(list(set(which))).tolist(), strict=True))
    numbered = np.array(chosen, dtype=np.int64).reshape(count, 4)
    asked = np.array([NETWORKS[network][0] for network in which], dtype=np.int64)
    networks = np.array([numbers[network] for network in which], dtype=np.int64)
    forming = Forming(Unformed(networks, queries.places(asked), numbered, named), readings, queries, DIGESTS)
    rows = np.array(drawn.sample(range(count), count), dtype=np.int64)
    starts, ends = ([spans[row][part] for row in rows.tolist()] for part in (0, 1))
    made = forming.results("+", rows, starts, ends, snapshot=snapshot)
    assert made == [expected[row] for row in rows.tolist()]
    by_order = [expected[row].id for row in np.argsort(forming.ids[0]).tolist()]
    assert by_order == sorted(result.id for result in made)


@pytest.mark.parametrize("pair", [(0, 0), (0, 1)])
def test_a_tuple_is_made_once_for_each_set_of_its_keywords(pair: tuple[int, int]) -> None:
    names = TupleNames(SCHEMA, per_position=None)
    single = [number for number, (_, tree) in enumerate(NETWORKS) if tree.relations == (0,)]
    readings, queries = Readings(outline), shown()
    numbers = readings.numbers(single)
    assert [each.text.format("ada", "grace") for each in readings.some(numbers)] == [
        "r{ada}",
        "r{ada}",
        "r{ada, grace}",
    ]
    places = queries.places(np.array(pair, dtype=np.int64))
    named = [names.name(0, ("ada grace", 1), 5)]
    rows = Unformed(numbers[list(pair)], places, np.zeros((2, 4), dtype=np.int64), named)
    one, other = Forming(rows, readings, queries, DIGESTS).results("+", np.arange(2), [1.0] * 2, [2.0] * 2)
    assert (one.tuples[0] is other.tuples[0]) == (pair[0] == pair[1])


@given(
    st.lists(st.tuples(st.integers(-3, 3), st.sampled_from([0, 1, 7, 1 << 40, (1 << 64) - 1]))),
    st.lists(st.tuples(st.integers(-3, 3), st.integers(0, (1 << 64) - 1))),
)
def test_results_come_in_order_of_ticks_and_ids(
    some: list[tuple[int, int]], others: list[tuple[int, int]]
) -> None:
    made = sorted(some + others, key=lambda pair: pair[0])
    ticks = np.array([tick for tick, _ in made], dtype=np.int64)
    leading = np.array([number for _, number in made], dtype=np.uint64)
    order = _by_tick_and_id(ticks, np.stack([leading, np.arange(len(made), dtype=np.uint64)]))
    if order is None:
        begun = {(tick, number >> 4) for tick, number in made}
        assert len(begun) < len(set(made)), "none are alike"
    else:
        assert [made[place] for place in order.tolist()] == sorted(made)
        places = order.tolist()
        assert all(one < other for one, other in pairwise(places) if made[one] == made[other]), (
            "results of several queries stay in their order"
        )


def _told(op: Op, tick: int, name: str) -> Result:
    return Result(op, "q", name, tick, None, "n", (), ())


def test_output_is_in_order_whether_it_comes_one_by_one_or_many_at_a_time() -> None:
    many = Completed([1, 2, 2], [_told("+", 1, "c"), _told("+", 2, "a"), _told("+", 2, "b")])
    assert in_order([many]) == many.results
    more = Completed([2, 3], [_told("+", 2, "aa"), _told("+", 3, "a")])
    gone = retracted(2, 2, _told("-", 1, "c"))
    shown = [(result.op, result.id) for result in in_order([more, gone, many])]
    assert shown == [("+", "c"), ("-", "c"), ("+", "a"), ("+", "aa"), ("+", "b"), ("+", "a")]
    assert in_order([]) == []


Joins = list[tuple[int, int, str]]
Drawn = tuple[list[bytes], Joins]
NAMES = ("posted_by", "answers", "on")
TUPLES = [f"tuple {number}".encode() for number in range(6)]


@st.composite
def results(draw: st.DrawFn) -> Drawn:
    """Trees of distinct tuples."""
    members = draw(st.lists(st.sampled_from(TUPLES), min_size=1, max_size=5, unique=True))
    joins = []
    for node in range(1, len(members)):
        ends = (draw(st.integers(0, node - 1)), node)
        joins.append((*(ends if draw(st.booleans()) else ends[::-1]), draw(st.sampled_from(NAMES))))
    return list(map(digest, members)), joins


def by_columns(alike: Sequence[Drawn]) -> list[str]:
    """The ids of results of one size."""
    known = sorted({member for members, _ in alike for member in members})
    tuples = np.array([[known.index(member) for member in members] for members, _ in alike], dtype=np.int64)
    joins = [[(left, right, NAMES.index(name)) for left, right, name in joins] for _, joins in alike]
    ends = np.array(joins, dtype=np.int64).reshape(len(alike), -1, 3)
    left, right, names = ends.T
    made = ids(lanes(known), tuples.T, lanes(map(digest_of_join, NAMES)), (left, right, names))
    return shown_ids(made)


def as_a_set(members: list[bytes], joins: Joins) -> tuple[frozenset[object], ...]:
    """What makes a result what it is."""
    return frozenset(members), frozenset((members[left], members[right], name) for left, right, name in joins)


@given(st.lists(results(), min_size=1, max_size=6))
def test_ids_by_columns_are_those_one_by_one(drawn: list[Drawn]) -> None:
    size = len(drawn[0][0])
    alike = [result for result in drawn if len(result[0]) == size]
    assert by_columns(alike) == [id_of(members, joins) for members, joins in alike]


@given(results(), st.randoms())
def test_an_id_does_not_depend_on_order(drawn: Drawn, random: object) -> None:
    members, joins = drawn
    order = list(range(len(members)))
    random.shuffle(order)  # type: ignore[attr-defined]
    moved = [members[place] for place in order]
    there = {place: number for number, place in enumerate(order)}
    renumbered = [(there[left], there[right], name) for left, right, name in reversed(joins)]
    assert id_of(moved, renumbered) == id_of(members, joins)


@given(results(), results())
def test_other_results_have_other_ids(one: Drawn, other: Drawn) -> None:
    assert (id_of(*one) == id_of(*other)) == (as_a_set(*one) == as_a_set(*other))


def test_an_id_tells_left_from_right_and_joins_apart() -> None:
    one, other = map(digest, TUPLES[:2])
    made = [
        id_of([one, other], [(0, 1, "on")]),
        id_of([one, other], [(1, 0, "on")]),
        id_of([one, other], [(0, 1, "answers")]),
        id_of([one], []),
        id_of([other], []),
    ]
    assert len(set(made)) == 5
    assert {len(each) for each in made} == {24}


def test_many_ids_are_spread_over_all_their_digits() -> None:
    known = [digest(str(number).encode()) for number in range(2000)]
    pairs = [([known[n], known[n + 1]], [(0, 1, "on")]) for n in range(1999)]
    made = by_columns(pairs)
    assert len(set(made)) == 1999
    for place in range(24):
        counts = [sum(each[place] == digit for each in made) for digit in "0123456789abcdef"]
        assert min(counts) > 60  # 125 on average


@pytest.fixture
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """Everything that is cut is cut to a few."""
    for module in (skws_mesh.columnar.hash_index, skws_mesh.columnar.mesh):
        monkeypatch.setattr(module, "PAIRS", 3)
    monkeypatch.setattr(skws_mesh.columnar.mesh, "_FEW", 0)
    monkeypatch.setattr(skws.queries.keywords.result_emitter, "MOST", 2)
    monkeypatch.setattr(skws.queries.keywords.result_emitter.in_ranges, "__defaults__", (2,))
    monkeypatch.setattr(skws.queries.keywords.columnar, "_FIRST", 2)
    monkeypatch.setattr(skws.queries.keywords.columnar, "RESULTS", 4)


def _told_pieces(plan: Plan, records: list[Record]) -> list[bytes]:
    engine = ColumnarEngine.of(plan)
    return [result.to_json() for result in engine.process_batches([RecordBatch.of(records)])]


@given(data=st.data(), schema=schemas(), by_count=st.booleans())
@examples(150, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_results_are_those_without_pieces(
    small_pieces: None, data: st.DataObject, schema: Schema, by_count: bool
) -> None:
    records = data.draw(streams(schema, 2, max_records=24))
    window: Window = CountWindow(6) if by_count else TimeWindow(4)
    plan = Plan(schema, parse_query(" ".join(WORDS[:2]), schema), window, 4)
    cut = _told_pieces(plan, records)
    with pytest.MonkeyPatch.context() as whole:
        for module in (skws_mesh.columnar.hash_index, skws_mesh.columnar.mesh):
            whole.setattr(module, "PAIRS", 1 << 18)
        whole.setattr(skws_mesh.columnar.mesh, "_FEW", 1 << 12)
        whole.setattr(skws.queries.keywords.result_emitter, "MOST", 1 << 15)
        whole.setattr(skws.queries.keywords.columnar, "_FIRST", 2048)
        assert _told_pieces(plan, records) == cut


@given(
    st.lists(st.lists(st.integers(-5, 5), max_size=12), min_size=1, max_size=3),
    st.integers(1, 6),
)
def test_ranges_hold_all_keys_once_and_in_order(keys: list[list[int]], most: int) -> None:
    arrays = [np.array(each, dtype=np.int64) for each in keys]
    ranges = list(in_ranges(arrays, most))
    for number, array in enumerate(arrays):
        places = [place for part in ranges for place in part[number].tolist()]
        assert sorted(places) == list(range(len(array)))
    values = [
        [int(arrays[n][place]) for n, part in enumerate(each) for place in part.tolist()] for each in ranges
    ]
    for each in values:
        assert len(each) <= most or len(set(each)) == 1
    filled = [each for each in values if each]
    assert all(max(one) < min(other) for one, other in pairwise(filled))


def _hot(number: int, instants: int) -> list[Record]:
    rows: list[Row] = [("alpha", 1), ("beta", 1)]
    return [Record(i % 2, i * instants // (2 * number), rows[i % 2], False) for i in range(2 * number)]


_MEMORY = """
import resource, sys
from tests.queries.keywords.test_results_together import peak_of_hot
print(peak_of_hot(int(sys.argv[1])))
"""


def peak_of_hot(instants: int) -> int:
    """By how many bytes the peak of this process grows when 600 tuples meet 600 others; all is read."""
    plan = hot_plan()
    assert len(_told_pieces(plan, _hot(20, 1))) == 400
    before = getrusage(RUSAGE_SELF).ru_maxrss
    engine = ColumnarEngine.of(plan)
    found = sum(1 for _ in engine.process_batches([RecordBatch.of(_hot(600, instants))]))
    assert found == 360_000
    return (getrusage(RUSAGE_SELF).ru_maxrss - before) * 1024


def hot_plan() -> Plan:
    relation = "{attributes: {t: text, k: integer}, search: [t]}"
    text = f"window: 20 hours\nrelations: {{a: {relation}, b: {relation}}}\njoins: [a.k = b.k]\n"
    schema = parse_schema(text, default_name="hot")
    return Plan(schema, parse_query("alpha beta", schema), TimeWindow(10**9), 5)


@pytest.mark.parametrize("instants", [1, 600])
def test_a_hot_key_needs_memory_for_columns_not_for_all_results(instants: int) -> None:
    ran = subprocess.run(
        [sys.executable, "-c", _MEMORY, str(instants)], capture_output=True, text=True, check=True
    )
    assert int(ran.stdout) < 200 << 20, "360,000 results as objects take half a gigabyte"


def test_equal_tuples_of_one_instant_are_told_apart_in_linear_time() -> None:
    began = process_time()
    plan = replace(hot_plan(), query=parse_query("alpha", hot_plan().schema))
    records = [Record(0, 1, ("alpha", 1), False)] * 4_000
    ids = {orjson.loads(line)["id"] for line in _told_pieces(plan, records)}
    assert len(ids) == 4_000
    assert process_time() - began < 5
