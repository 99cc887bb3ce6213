"""Results put together at once are those that are put together one by one, ids included."""

from __future__ import annotations

import random
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from skws.keywords.parse import parse_query
from skws.keywords.plan import Plan
from skws.queries.keywords.result_emitter import Completed, _by_tick_and_id, in_order, retracted
from skws.results.assemble import (
    Assembler,
    Outline,
    Outlines,
    Readings,
    ShownQueries,
    Unformed,
    put_together,
    seconds,
)
from skws.results.ids import digest_of_join, lanes
from skws.results.model import Op, Result
from skws.results.names import TupleNames
from skws_schema.model import Attribute, AttributeType, Join, Relation, Schema
from skws_windows.window import FOREVER, TimeWindow

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
    made, order = put_together(
        "+",
        Unformed(networks, queries.places(asked), numbered, named),
        readings,
        queries,
        DIGESTS,
        [start for start, _ in spans],
        [end for _, end in spans],
        snapshot=snapshot,
    )
    assert made == expected
    by_order = [made[place].id for place in np.argsort(order).tolist()]
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
    (one, other), _ = put_together(
        "+",
        Unformed(numbers[list(pair)], places, np.zeros((2, 4), dtype=np.int64), named),
        readings,
        queries,
        DIGESTS,
        [1.0] * 2,
        [2.0] * 2,
        snapshot=False,
    )
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
    named = [_told("+", tick, f"{number:016x}") for tick, number in made]
    order = _by_tick_and_id(ticks, np.array([number for _, number in made], dtype=np.uint64), named)
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
