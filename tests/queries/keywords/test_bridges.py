"""Networks completed through bridges have every result once, whichever of its tuples arrives last or ends."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest

from skws.data.batch import Record
from skws.keywords.parse import parse_query
from skws.keywords.plan import Plan
from skws.queries.keywords.keyword_operator import Sizes
from skws.queries.keywords.stream_engine import StreamEngine
from skws.results.result import Result
from skws_mesh.columnar.columns import index_hashes
from skws_schema.model import Attribute, AttributeType, Join, Relation, Schema
from skws_windows.window import CountWindow, TimeWindow, Window
from tests.paper_modes import by_paper
from tests.strategies import WORDS, seeds

A, B, C = WORDS


def schema() -> Schema:
    """A tree of six relations; the last has a key."""
    parents = {1: 0, 2: 0, 3: 1, 4: 1, 5: 2}
    relations = tuple(
        Relation(
            f"r{number}",
            (Attribute("t", AttributeType.TEXT), *(Attribute(n, AttributeType.INTEGER) for n in "xy")),
            key=("x",) if number == 5 else (),
            search=("t",),
        )
        for number in range(6)
    )
    joins = (Join(f"j{c}", f"r{p}", f"r{c}", (("xy"[c % 2], "x"),)) for c, p in parents.items())
    return Schema("tree", relations, tuple(joins))


def stream(seed: int, records: int, often: float = 0.2, deletions: float = 0.05) -> list[Record]:
    """Records with few keywords; some tuples are deleted later."""
    rng = random.Random(seed)
    result: list[Record] = []
    for number in range(records):
        if result and rng.random() < deletions:
            earlier = rng.choice(result[-30:])
            result.append(earlier._replace(time=number // 2, delete=True))
            continue
        words = [word for word in WORDS if rng.random() < often]
        values = (rng.randint(0, 4), rng.choice([None, *range(5)]))
        result.append(Record(rng.randrange(6), number // 2, (" ".join(["pad", *words]), *values)))
    return result


def plan(text: str, size: int, window: Window) -> Plan:
    return Plan(schema(), parse_query(text, schema()), window, size)


@pytest.mark.slow
@pytest.mark.parametrize("size", [4, 5])
@pytest.mark.parametrize("batch", [2, 10, 8192])
@pytest.mark.parametrize(
    ("text", "window"), [(f"{A} {B}", TimeWindow(30)), (f"{A} {B} {C}", CountWindow(36))]
)
def test_batches_have_the_results_of_single_tuples(size: int, batch: int, text: str, window: Window) -> None:
    plan_of_query = plan(text, size, window)
    records, engine = stream(size, 160), StreamEngine.of(plan_of_query)
    columnar = [result for chunk in _chunks(records, batch) for result in engine.process(chunk)]
    assert columnar == list(by_paper(plan_of_query).process(records))
    assert len({r.network for r in columnar if len(r.tuples) == size}) > 2


def test_only_bridges_among_free_tuples_are_tried() -> None:
    """r3 joins r1, which joins ten tuples of r0, one of which joins the other keyword."""
    engine = StreamEngine.of(plan(f"{A} {B}", 4, TimeWindow(60)))
    neighbors = [Record(0, 1, ("pad", number, 1)) for number in range(10)]
    end, start = Record(2, 1, (B, 3, None)), [Record(1, 2, ("pad", 1, 7)), Record(3, 2, (A, 7, None))]
    (result,) = engine.process([*neighbors, end, *start])
    assert [each.relation for each in result.tuples] == ["r3", "r1", "r0", "r2"]
    uses = {tree.relations: times for tree, _, times, _ in engine.used() if len(tree.relations) == 3}
    assert uses == {(3, 1, 0): 2}  # once for each of the two joins of r0
    results = engine.process([Record(2, 3, (B, number, None)) for number in range(4)])
    assert len(list(results)) == 4


def test_a_partial_result_is_stored_once_for_all_it_waits_for() -> None:
    engine = StreamEngine.of(plan(f"{A} {B}", 5, TimeWindow(10)))
    records = [
        Record(0, 1, (A, 1, 2)),
        Record(5, 1, (B, 9, None)),
    ]  # all keywords are there, and nothing joins
    assert not list(engine.process(records))
    assert engine.entries - engine.live_tuples == 1
    assert [(tree.relations, waiting) for tree, waiting, *_ in engine.used()] == [((0,), 2)]  # for r1 and r2
    engine.expire(11)
    engine.compact(11)
    assert engine.entries == engine.live_tuples
    assert [use.waiting for use in engine.used()] == [0]


@pytest.mark.parametrize(("start", "lateness", "stored"), [(99, 0, 1), (90, 0, 0), (50, 0, 0), (50, 60, 1)])
def test_a_tuple_that_ends_within_its_batch_waits_only_for_late_tuples(
    start: int, lateness: int, stored: int
) -> None:
    engine = StreamEngine.of(replace(plan(f"{A} {B}", 5, TimeWindow(10)), lateness=lateness))
    root, second, last = (Record(0, start, (A, 1, 2)), Record(2, start, (B, 7, 7)), Record(5, 100, (B, 9, 9)))
    assert not list(engine.process([root, second, last]))
    assert engine.entries - engine.live_tuples == stored
    partner = Record(1, start if lateness else 100, (B, 2, None))
    assert len(list(engine.process([partner]))) == stored


CHAIN = Schema(
    "chain",
    tuple(Relation(name, schema().relations[0].attributes, search=("t",)) for name in "abc"),
    (Join("ab", "a", "b", (("x", "x"),)), Join("bc", "b", "c", (("y", "y"),))),
)
ALIKE = (3_510_432, 3_807_807)  # values of b.x with the same hash bits, as far as an index keeps them
X_LIKE_Y = (7_317_588, 359_659)  # values of b.x and b.y with the same hash bits


def test_values_with_the_same_hash_bits_are_distinguished() -> None:
    index_x, index_y = 2, 3  # the numbers of their indexes
    for indexes, values in (((index_x, index_x), ALIKE), ((index_x, index_y), X_LIKE_Y)):
        first, second = index_hashes(np.array(indexes), np.array(values)) >> np.uint64(20)
        assert first == second
    (alike_1, alike_2), (x, y) = ALIKE, X_LIKE_Y
    middle = [(alike_2, 1), (alike_1, 2), (x, y)]
    ends = [Record(0, 2, (A, alike_1, None)), Record(0, 2, (A, x, None)), Record(2, 2, (B, None, 1))]
    records = [*(Record(1, 1, ("pad", *row)) for row in middle), *ends, Record(2, 2, (B, None, y))]
    plan_of_query = Plan(CHAIN, parse_query(f"{A} {B}", CHAIN), TimeWindow(9), 3)
    results = list(StreamEngine.of(plan_of_query).process(records))
    assert results == list(by_paper(plan_of_query).process(records))
    assert len(results) == 1


@pytest.mark.check
@seeds(1, 6)
def test_queries_are_added_and_removed(seed: int) -> None:
    """Queries whose networks have the same shape share bridges, also while some sleep or are removed."""
    shared = StreamEngine(schema(), TimeWindow(40), sizes=Sizes(numbers=6))  # rebuilt now and then
    texts = [f"{A} {B}", f"{B} {C}", f"{A} {C}", f"{C} {A} {B}", f"{A} {B} -{C}"]
    separate: dict[str, StreamEngine] = {}
    shared_results: dict[str, list[Result]] = {text: [] for text in texts}
    separate_results: dict[str, list[Result]] = {text: [] for text in texts}
    rng = random.Random(seed)
    engines = {text: StreamEngine.of(plan(text, 5, TimeWindow(40))) for text in texts}
    for chunk in _chunks(stream(seed, 250, often=0.1), 25):
        text = rng.choice(texts)
        if text in separate:
            shared.remove(text)
            del separate[text]
        else:
            separate[text] = engines[text]
            snapshot = shared.add(plan(text, 5, TimeWindow(40)))
            name = f"again {len(shared_results[text])} {rng.random()}"
            separate_snapshot = separate[text].add(replace(plan(text, 5, TimeWindow(40)), name=name))
            assert {r.id for r in snapshot} == {r.id for r in separate_snapshot}
        for result in shared.process(chunk):
            shared_results[result.query].append(result)
        for text, engine in engines.items():
            results = [result for result in engine.process(chunk) if result.name == text]
            separate_results[text] += results if text in separate else []
    for text in texts:
        assert [(r.op, r.id) for r in shared_results[text]] == [(r.op, r.id) for r in separate_results[text]]
    assert sum(map(len, shared_results.values())) > 20


def test_nothing_remains_after_the_stream_expires() -> None:
    engine = StreamEngine.of(plan(f"{A} {B}", 5, TimeWindow(30)))
    assert list(engine.process(stream(1, 500)))
    engine.expire(10_000)
    assert engine.idle


def _chunks(records: list[Record], size: int) -> Iterator[list[Record]]:
    return (records[first : first + size] for first in range(0, len(records), size))
