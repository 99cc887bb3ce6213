"""Heaps, expiry, memory and update time of the evaluation."""

from __future__ import annotations

import gc
import random
import sys
import tracemalloc
from collections.abc import Callable, Iterator
from itertools import islice
from types import FrameType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skws_patterns.hcq import parse_conjunctive_query
from skws_patterns.hcq_automaton import automaton_of
from skws_patterns.pcea import PCEA, Equality, RunSource, Transition, Unary
from skws_patterns.tuple_evaluator import Node, TupleEvaluator, count, insert, valuations
from skws_schema.model import Attribute, AttributeType, Relation, Schema
from skws_windows.window import CountWindow, TimeWindow, Unbounded, Window
from tests.growth.measurements import reachable_objects
from tests.oracles.run_trees import by_label
from tests.strategies import combinations

SCHEMA = Schema(
    "abc",
    (
        Relation("A", (Attribute("x", AttributeType.INTEGER),)),
        Relation("B", tuple(Attribute(a, AttributeType.INTEGER) for a in "xy")),
        Relation("C", tuple(Attribute(a, AttributeType.INTEGER) for a in "xy")),
    ),
    (),
)
NESTED = automaton_of(parse_conjunctive_query("Q(x, y) <- A(x), B(x, y), C(x, y)", SCHEMA))
A = frozenset({"a"})
# Any number of A's, one after the other, with the same x.
REPEATED = PCEA(
    (
        Transition((), Unary(0), A, "q"),
        Transition((RunSource("q", Equality(((0, (0,)),), (0,))),), Unary(0), A, "q"),
    ),
    frozenset({"q"}),
)


def leaf(start: int, position: int) -> Node:
    return (start, None, None, 1, (position, A), None)


def rank(node: Node | None) -> int:
    return 0 if node is None else 1 + rank(node[2])


def members(heap: Node) -> list[tuple[int, int]]:
    """(start, position) of every node; checks that the heap is ordered and left-leaning."""
    nodes, stack = [], [heap]
    while stack:
        node = stack.pop()
        children = [child for child in (node[1], node[2]) if child is not None]
        assert all(child[0] <= node[0] for child in children)
        assert rank(node[1]) >= rank(node[2])
        assert node[3] == rank(node)
        nodes.append((node[0], node[4][0]))
        stack += children
    return nodes


@given(st.lists(st.tuples(st.integers(0, 30), st.integers(0, 30)), min_size=1, max_size=40))
def test_insertion_keeps_live_nodes_and_leaves_older_heaps_unchanged(
    steps: list[tuple[int, int]],
) -> None:
    heap, live_nodes, low = leaf(99, -1), {(99, -1)}, 0
    for position, (start, grows) in enumerate(steps):
        low = max(low, grows // 3)
        earlier_heap, earlier_nodes = heap, members(heap)
        heap = insert(heap, leaf(start, position), low)
        live_nodes.add((start, position))
        assert members(earlier_heap) == earlier_nodes
        nodes = members(heap)
        assert len(set(nodes)) == len(nodes)
        assert {m for m in nodes if m[0] >= low} == {m for m in live_nodes if m[0] >= low}


STARTS: dict[str, Callable[[int], int]] = {
    "in turn": lambda i: i if i % 2 else 10**6 + i,  # long paths if only a direction bit keeps the balance
    "falling": lambda i: 10**6 - i,
    "scattered": lambda i: i * 7919 % 4099,
}


@pytest.mark.parametrize("order", STARTS)
def test_insertion_paths_are_logarithmic_for_any_order_of_starts(order: str) -> None:
    heap = leaf(10**9, -1)
    for i in range(4096):
        heap = insert(heap, leaf(STARTS[order](i), i), 0)
        assert rank(heap) <= 13
    assert len(members(heap)) == 4097


def random_stream(seed: int, count: int, keys: int) -> list[tuple[int, tuple[int, ...]]]:
    source = random.Random(seed)
    stream: list[tuple[int, tuple[int, ...]]] = []
    for _ in range(count):
        relation = source.randrange(3)
        x, y = source.randrange(keys), source.randrange(keys)
        stream.append((relation, (x,) if relation == 0 else (x, y)))
    return stream


@pytest.mark.check
@combinations("repeated, window", [False, True], [CountWindow(50), TimeWindow(51)])
def test_memory_is_bounded_by_the_window(repeated: bool, window: Window) -> None:
    """After fifty windows the evaluator holds no more than after a few, although no key returns."""
    pcea = REPEATED if repeated else NESTED
    evaluator = TupleEvaluator(pcea, 3, window)
    sizes, entries = [], []
    tracemalloc.start()
    try:
        for position in range(50 * 50):
            x = position // 20  # runs of one key, followed by a new one
            evaluator.update(position % 3, (x,) if position % 3 == 0 else (x, 0), position)
            if position % 500 == 499:
                gc.collect()
                sizes.append(tracemalloc.get_traced_memory()[0])
                entries.append(evaluator.entries())
    finally:
        tracemalloc.stop()
    sources = {(s.state, s.equality.left) for t in pcea.transitions for s in t.sources}
    assert max(entries) <= 2 * 50 * len(sources)
    assert max(sizes[2:]) <= 1.5 * sizes[1] + 20_000


def test_an_endless_chain_keeps_only_its_window() -> None:
    """Every run of a repetition refers to the previous one: exactly the expired ones must be dropped."""
    evaluator = TupleEvaluator(REPEATED, 3, CountWindow(8))
    sizes = []
    for position in range(1500):
        evaluator.update(0, (1,))
        assert evaluator.count() == 2**8 if position >= 8 else 2**position
        if position % 500 == 499:
            gc.collect()
            sizes.append(reachable_objects(evaluator))
    assert max(sizes[1:]) <= sizes[0] + 20


def test_runs_expire_by_count_and_by_time() -> None:
    for window, inside in ((CountWindow(3), 3), (TimeWindow(3), 2)):
        for distance in range(1, 6):
            evaluator = TupleEvaluator(REPEATED, 3, window)
            evaluator.update(0, (7,), 0)
            for position in range(1, distance):
                evaluator.update(1, (0, 0), position)
            longest = max(len(v) for v in evaluator.feed(0, (7,), distance))
            assert longest == (2 if distance <= inside else 1)


@pytest.mark.parametrize("low", range(7))
def test_expired_heap_nodes_appear_in_no_result(low: int) -> None:
    """A run over a heap whose parts expire one after the other, left and right."""
    leftmost = (2, leaf(1, 11), None, 1, (12, A), None)
    heap: Node = (5, (4, leftmost, leaf(3, 13), 2, (14, A), None), leaf(2, 22), 2, (15, A), None)
    root: Node = (5, None, None, 1, (30, A), [(heap,)])
    least_starts = {11: 1, 12: 2, 13: 3, 14: 4, 15: 5, 22: 2}
    positions = [{position for position, _ in v} - {30} for v in valuations(root, low)]
    assert sorted(positions, key=sorted) == [
        {position} for position in sorted(least_starts) if least_starts[position] >= low
    ]
    assert count(root, low) == len(positions)


def test_everything_expires_during_a_long_pause() -> None:
    evaluator = TupleEvaluator(REPEATED, 3, TimeWindow(10))
    evaluator.update(0, (7,), 0)
    assert evaluator.update(0, (7,), 1000)
    assert evaluator.count() == 1
    assert evaluator.entries() == 1


def test_an_earlier_time_is_rejected() -> None:
    evaluator = TupleEvaluator(REPEATED, 3, TimeWindow(10))
    evaluator.update(0, (7,), 5)
    with pytest.raises(ValueError, match="position 1 has an earlier time"):
        evaluator.update(0, (7,), 4)


def test_results_are_returned_one_at_a_time() -> None:
    """2^200 results are never collected: the first ones are returned at once."""
    evaluator = TupleEvaluator(REPEATED, 3, Unbounded())
    for _ in range(200):
        evaluator.update(0, (1,))
    results = evaluator.results()
    first = [by_label(next(results))["a"] for _ in range(1000)]
    assert len(set(first)) == 1000
    assert all(199 in positions for positions in first)


def chain(*relations: int) -> PCEA:
    """One tuple of each relation, in this order, with the same x."""
    same_x = Equality(tuple((relation, (0,)) for relation in range(3)), (0,))
    steps = [Transition((), Unary(relations[0]), A, 0)]
    steps += [Transition((RunSource(i, same_x),), Unary(r), A, i + 1) for i, r in enumerate(relations[1:])]
    return PCEA(tuple(steps), frozenset({len(relations) - 1}))


@pytest.mark.parametrize(
    "pcea", [NESTED, chain(2, 1, 0), chain(2, 2, 1, 0)], ids=["nested", "chain", "with a repeated step"]
)
def test_the_delay_between_results_is_constant(pcea: PCEA) -> None:
    """Counts lines of Python, which do not depend on the machine, before each result and after the last."""
    line_counts = []
    for size in (4, 40, 400):
        evaluator = TupleEvaluator(pcea, 3, CountWindow(2 * size))
        for relation, row in ((2, (1, 0)), (1, (1, 0))):
            for _ in range(size):
                evaluator.update(relation, row)
        assert evaluator.update(0, (1,))
        assert evaluator.count() >= size * size - size
        line_counts.append(_most_lines_between(islice(evaluator.results(), 5000)))
    assert line_counts[2] <= line_counts[0] + 5


def _most_lines_between(results: Iterator[object]) -> int:
    line_count, most_lines = 0, 0

    def trace(_frame: FrameType, event: str, _argument: Any) -> Any:
        nonlocal line_count
        line_count += event == "line"
        return trace

    earlier_trace = sys.gettrace()
    sys.settrace(trace)
    try:
        while next(results, None) is not None:
            most_lines, line_count = max(most_lines, line_count), 0
    finally:
        sys.settrace(earlier_trace)
    return max(most_lines, line_count)


def test_update_work_does_not_grow_with_the_results() -> None:
    """Counts calls in Python, which do not depend on the machine: as many for 1 result as for 90,000."""
    star = automaton_of(parse_conjunctive_query("Q(x) <- A(x), B(x, _), C(x, _)", SCHEMA))
    calls = []
    for size in (1, 10, 300):
        evaluator = TupleEvaluator(star, 3, Unbounded())
        for i in range(size):
            evaluator.update(1, (1, i))
            evaluator.update(2, (1, i))
        call_count = 0

        def profile(_frame: object, event: str, _argument: object) -> None:
            nonlocal call_count
            call_count += event in ("call", "c_call")

        sys.setprofile(profile)
        try:
            evaluator.update(0, (1,))
        finally:
            sys.setprofile(None)
        assert evaluator.count() == size * size
        calls.append(call_count)
    assert len(set(calls)) == 1


def test_runs_may_be_as_long_as_the_window() -> None:
    """Enumerating and counting do not recurse deeply, and counting does not enumerate 2^3000 results."""
    evaluator = TupleEvaluator(REPEATED, 3, CountWindow(3000))
    for _ in range(5000):
        evaluator.update(0, (1,))
    longest = next(evaluator.results())
    assert len(longest) <= 3001
    assert evaluator.count() == 2**3000
