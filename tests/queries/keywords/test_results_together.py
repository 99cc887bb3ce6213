"""Ids computed by columns equal single ids; results of one instant need memory only for columns."""

from __future__ import annotations

import gc
import subprocess
import sys
import tracemalloc
from collections.abc import Sequence
from dataclasses import replace
from itertools import islice, pairwise, product
from resource import RUSAGE_SELF, getrusage
from time import process_time
from unittest.mock import Mock

import numpy as np
import orjson
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from bench.child import plan_of
from bench.load import Load
from skws.data.batch import Record, RecordBatch
from skws.keywords.parse import parse_query
from skws.keywords.plan import Plan
from skws.queries.keywords.result_emitter import (
    COMPLETED,
    RETRACTED,
    Event,
    by_tick_and_id,
    events_in_order,
)
from skws.queries.keywords.stream_engine import StreamEngine
from skws.results.names import digest, digest_of_join, id_of, ids, lanes, shown_ids
from skws_schema.model import Row
from skws_schema.yaml.load import parse_schema
from skws_windows.window import TimeWindow


def test_events_are_in_order_of_ticks_then_kinds_then_times_then_ids() -> None:
    result = Mock()
    keys = list(product((1, 2), (RETRACTED, COMPLETED), (3, 4), ("a", "b")))
    assert keys == sorted(keys)
    ordered = events_in_order(Event(*key, result) for key in reversed(keys))
    assert [event[:4] for event in ordered] == keys


@given(
    st.lists(st.tuples(st.integers(-3, 3), st.sampled_from([0, 1, 7, 1 << 40, (1 << 64) - 1]))),
    st.lists(st.tuples(st.integers(-3, 3), st.integers(0, (1 << 64) - 1))),
)
def test_results_are_in_order_of_ticks_and_ids(
    close_pairs: list[tuple[int, int]], random_pairs: list[tuple[int, int]]
) -> None:
    pairs = sorted(close_pairs + random_pairs, key=lambda pair: pair[0])
    ticks = np.array([tick for tick, _ in pairs], dtype=np.int64)
    first_words = np.array([number for _, number in pairs], dtype=np.uint64)
    order = by_tick_and_id(ticks, np.stack([first_words, np.arange(len(pairs), dtype=np.uint64)]))
    if order is None:
        bounds = len({tick for tick, _ in pairs}) - 1, len(pairs)
        dropped_bits = sum(max(1, bound.bit_length()) for bound in bounds)
        prefixes = {(tick, number >> dropped_bits) for tick, number in pairs}
        assert len(prefixes) < len(set(pairs)), "no two prefixes are equal"
    else:
        assert [pairs[place] for place in order.tolist()] == sorted(pairs)
        positions = order.tolist()
        assert all(one < other for one, other in pairwise(positions) if pairs[one] == pairs[other]), (
            "results of several queries stay in their order"
        )


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


def by_columns(trees: Sequence[Drawn]) -> list[str]:
    """The ids of results of one size."""
    digests = sorted({member for members, _ in trees for member in members})
    tuples = np.array([[digests.index(member) for member in members] for members, _ in trees], dtype=np.int64)
    joins = [[(left, right, NAMES.index(name)) for left, right, name in joins] for _, joins in trees]
    ends = np.array(joins, dtype=np.int64).reshape(len(trees), -1, 3)
    left, right, names = ends.T
    id_lanes = ids(lanes(digests), tuples.T, lanes(map(digest_of_join, NAMES)), (left, right, names))
    return shown_ids(id_lanes)


def identity_of(members: list[bytes], joins: Joins) -> tuple[frozenset[object], ...]:
    """The identity of a result."""
    return frozenset(members), frozenset((members[left], members[right], name) for left, right, name in joins)


@given(st.lists(results(), min_size=1, max_size=6))
def test_ids_by_columns_equal_single_ids(trees: list[Drawn]) -> None:
    size = len(trees[0][0])
    same_size = [result for result in trees if len(result[0]) == size]
    assert by_columns(same_size) == [id_of(members, joins) for members, joins in same_size]


@given(results(), st.randoms())
def test_an_id_does_not_depend_on_order(tree: Drawn, random: object) -> None:
    members, joins = tree
    order = list(range(len(members)))
    random.shuffle(order)  # type: ignore[attr-defined]
    shuffled_members = [members[place] for place in order]
    new_positions = {place: number for number, place in enumerate(order)}
    shuffled_joins = [
        (new_positions[left], new_positions[right], name) for left, right, name in reversed(joins)
    ]
    assert id_of(shuffled_members, shuffled_joins) == id_of(members, joins)


ONE, OTHER = map(digest, TUPLES[:2])


@example(([ONE, OTHER], [(0, 1, "on")]), ([ONE, OTHER], [(1, 0, "on")]))
@example(([ONE, OTHER], [(0, 1, "on")]), ([ONE, OTHER], [(0, 1, "answers")]))
@example(([ONE], []), ([OTHER], []))
@given(results(), results())
def test_different_results_have_different_ids(first: Drawn, second: Drawn) -> None:
    assert (id_of(*first) == id_of(*second)) == (identity_of(*first) == identity_of(*second))


def test_the_digits_of_ids_are_evenly_distributed() -> None:
    digests = [digest(str(number).encode()) for number in range(2000)]
    pairs = [([digests[n], digests[n + 1]], [(0, 1, "on")]) for n in range(1999)]
    ids_of_pairs = by_columns(pairs)
    assert (len(set(ids_of_pairs)), {len(each) for each in ids_of_pairs}) == (1999, {24})
    for position in range(24):
        counts = [sum(each[position] == digit for each in ids_of_pairs) for digit in "0123456789abcdef"]
        assert min(counts) > 60  # 125 on average


def _json_of(plan: Plan, records: list[Record]) -> list[bytes]:
    engine = StreamEngine.of(plan)
    return [result.to_json() for result in engine.process_batches([RecordBatch.of(records)])]


def hot_records(number: int, instants: int) -> list[Record]:
    rows: list[Row] = [("alpha", 1), ("beta", 1)]
    return [Record(i % 2, i * instants // (2 * number), rows[i % 2], False) for i in range(2 * number)]


_MEMORY = """
import resource, sys
from tests.queries.keywords.test_results_together import peak_memory_growth
print(peak_memory_growth(int(sys.argv[1])))
"""


def peak_memory_growth(instants: int) -> int:
    """The growth of this process's peak memory in bytes while the results of 600 x 600 tuples are read."""
    plan = hot_plan()
    assert len(_json_of(plan, hot_records(20, 1))) == 400
    before = getrusage(RUSAGE_SELF).ru_maxrss
    engine = StreamEngine.of(plan)
    count = sum(1 for _ in engine.process_batches([RecordBatch.of(hot_records(600, instants))]))
    assert count == 360_000
    return (getrusage(RUSAGE_SELF).ru_maxrss - before) * 1024


def hot_plan() -> Plan:
    relation = "{attributes: {t: text, k: integer}, search: [t]}"
    text = f"window: 20 hours\nrelations: {{a: {relation}, b: {relation}}}\njoins: [a.k = b.k]\n"
    schema = parse_schema(text, default_name="hot")
    return Plan(schema, parse_query("alpha beta", schema), TimeWindow(10**9), 5)


@pytest.mark.check
@pytest.mark.parametrize("instants", [1, 600])
def test_a_hot_key_needs_memory_only_for_columns(instants: int) -> None:
    process = subprocess.run(
        [sys.executable, "-c", _MEMORY, str(instants)], capture_output=True, text=True, check=True
    )
    assert int(process.stdout) < 200 << 20, "360,000 results as objects take half a gigabyte"


def test_ids_of_equal_tuples_take_linear_time() -> None:
    start = process_time()
    plan = replace(hot_plan(), query=parse_query("alpha", hot_plan().schema))
    records = [Record(0, 1, ("alpha", 1), False)] * 4_000
    ids = {orjson.loads(line)["id"] for line in _json_of(plan, records)}
    assert len(ids) == 4_000
    assert process_time() - start < 5


def memory_after(minutes: int) -> tuple[int, int]:
    """Bytes and entries in use after a stream of this length, with a window of one minute."""
    load = Load(relations=4, minutes=1, kwf=0.1, selectivity=50)
    engine = StreamEngine.of(plan_of(load))
    records = load.records(minutes * 60)
    gc.collect()
    tracemalloc.start()
    try:
        while step := list(islice(records, 240)):
            for _ in engine.process(step):
                pass
        gc.collect()
        return tracemalloc.get_traced_memory()[0], engine.entries
    finally:
        tracemalloc.stop()


@pytest.mark.slow
def test_memory_does_not_grow_with_the_stream() -> None:
    (short_bytes, short_entries), (long_bytes, long_entries) = memory_after(8), memory_after(16)
    assert short_entries > 240  # a full window is held
    assert long_entries < 2 * short_entries
    assert long_bytes < 1.5 * short_bytes
