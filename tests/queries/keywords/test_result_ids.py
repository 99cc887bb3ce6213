"""Ids of results: the same by columns and one by one, whatever the order, and others for other results."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from skws.results.ids import digest, digest_of_join, id_of, ids, lanes

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
    left, right, names = ends[:, :, 0], ends[:, :, 1], ends[:, :, 2]
    return ids(lanes(known), tuples, lanes(map(digest_of_join, NAMES)), (left, right, names))[1]


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
