"""Lifespans with truncations, even out of order, are those of a simulation of the stream in order."""

from __future__ import annotations

import random
from collections import deque
from itertools import groupby, islice
from operator import itemgetter
from time import process_time
from typing import TypeAlias

import pytest

from skws_purging.lifespans import Lifespans, StreamTuple
from skws_schema.model import Attribute, AttributeType, Relation, Row, Schema
from skws_windows.window import FOREVER, TimeWindow, Unbounded, Window
from tests.strategies import seeds

NUMBER = (Attribute("x", AttributeType.INTEGER), Attribute("y", AttributeType.INTEGER))
SCHEMA = Schema("s", (Relation("keyed", NUMBER, key=("x",)), Relation("plain", NUMBER)), ())
Mark: TypeAlias = tuple[int, int, Row, bool]
"""Tick, relation, row and delete."""


def random_marks(rng: random.Random, count: int, truncation_share: float) -> list[Mark]:
    marks: list[Mark] = []
    tick = 0
    for _ in range(count):
        tick += rng.choice((0, 0, 1, 2))
        relation = rng.randrange(2)
        if rng.random() < truncation_share:
            marks.append((tick, relation, (), True))
        else:
            marks.append((tick, relation, (rng.randrange(3), rng.randrange(2)), rng.random() < 0.3))
    return marks


def delayed(rng: random.Random, marks: list[Mark], lateness: int) -> list[Mark]:
    """An order of arrival in which no mark is later than the lateness allows."""
    return sorted(marks, key=lambda mark: mark[0] + rng.uniform(0, lateness))


def simulated_lives(marks: list[Mark], window: Window) -> list[tuple[int, Row, int, int]]:
    """Relation, row, start and end of all tuples that ever live; marks of a tick in order of arrival."""
    tuples: list[list[int | Row]] = []
    live: dict[tuple[int, Row], deque[list[int | Row]]] = {}
    for tick, relation, row, delete in sorted(marks, key=itemgetter(0)):
        identity = (relation, row[:1] if relation == 0 else row)
        for queue in live.values():
            while queue and queue[0][3] <= tick:  # type: ignore[operator]  # an end
                queue.popleft()
        if not row:
            for name, queue in live.items():
                if name[0] == relation:
                    for life in queue:
                        life[3] = tick
                    queue.clear()
            continue
        queue = live.setdefault(identity, deque())
        if queue and (delete or relation == 0):
            queue.popleft()[3] = tick
        if not delete:
            new: list[int | Row] = [relation, row, tick, window.end(tick)]
            tuples.append(new)
            queue.append(new)
    return sorted(tuple(life) for life in tuples if life[2] < life[3])  # type: ignore[operator, misc]


def lives_of(
    marks: list[Mark], window: Window, lateness: int, rng: random.Random
) -> tuple[list[tuple[int, Row, int, int]], Lifespans]:
    lifespans = Lifespans(SCHEMA, window, lateness)
    tuples: list[StreamTuple] = []
    latest = 0
    for tick, marks_of_tick in groupby(marks, key=itemgetter(0)):
        steps = list(marks_of_tick)
        while steps:
            size = rng.randint(1, 4)
            chunk, steps = steps[:size], steps[size:]
            latest = max(latest, tick)
            lifespans.forget(latest - lateness)
            changes = lifespans.step(tick, ((of, row, gone, tick, 0) for _, of, row, gone in chunk))
            tuples += changes.inserted
            for stream_tuple, end in changes.ended + changes.prolonged:
                stream_tuple.end = end
            tuples += [stream_tuple for stream_tuple, _ in changes.prolonged if stream_tuple not in tuples]
    lifespans.forget(latest - lateness)
    return sorted((t.relation, t.row, t.start, t.end) for t in tuples if t.start < t.end), lifespans


@pytest.mark.check
@pytest.mark.parametrize("window", [TimeWindow(4), TimeWindow(12), Unbounded()])
@pytest.mark.parametrize("lateness", [0, 3, 10])
@seeds(10, 200)
def test_truncations_end_live_tuples(window: Window, lateness: int, seed: int) -> None:
    rng = random.Random(seed)
    marks = delayed(rng, random_marks(rng, 60, rng.choice((0.02, 0.1, 0.4))), lateness)
    actual, _ = lives_of(marks, window, lateness, rng)
    assert actual == simulated_lives(marks, window)


@pytest.mark.parametrize("lateness", [0, 5])
def test_the_state_of_truncations_does_not_grow_with_their_number(lateness: int) -> None:
    lifespans = Lifespans(SCHEMA, Unbounded(), lateness)
    lifespans.step(0, ((1, (number, number), False, 0, 0) for number in range(5_000)))
    (later_tuple,) = lifespans.step(0, [(0, (1, 1), False, 0, 0)]).inserted
    assert len(lifespans.step(1, [(1, (), True, 1, 0)]).ended) == 5_000
    for tick in range(2, 10_000):
        lifespans.forget(tick - lateness)
        changes = lifespans.step(tick, [(1, (), True, tick, 0)])
        assert not changes.ended
        assert not changes.unmatched
    assert len(lifespans) == 1
    assert len(lifespans.truncations()) <= lateness + 1
    assert later_tuple.end == FOREVER


@pytest.mark.check
def test_truncations_of_empty_relations_are_fast() -> None:
    """Neither rows of other relations nor rows that late records may still correct add to the time."""

    def seconds(rows: int) -> float:
        lifespans = Lifespans(SCHEMA, Unbounded(), FOREVER)
        for relation in (0, 1):
            lifespans.step(0, ((relation, (number, number), False, 0, 0) for number in range(rows)))
        lifespans.step(1, [(1, (), True, 1, 0)])
        start = process_time()
        for tick in islice(range(2, 10_000_000), 2_000):
            lifespans.step(tick, [(1, (), True, tick, 0)])
        return process_time() - start

    assert seconds(20_000) < 5 * seconds(20) + 0.2
