"""Many queries matched at once give the bitmaps of each one's own matcher."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skws.data.blocks import RowBlock
from skws.keywords.keyword_matching import JointMatcher
from skws.keywords.match import Matcher
from skws.keywords.parse import parse_query
from skws_schema.errors import QueryError
from skws_schema.model import Row
from tests.keywords.texts_and_queries import ACTOR, SCHEMA, queries, rows
from tests.strategies import examples


def bitmaps(joint: JointMatcher, relation: int, some: list[Row]) -> dict[tuple[int, int], int]:
    found = joint.bitmaps(RowBlock(relation, some))
    listed = list(zip(found.tuple.tolist(), found.query.tolist(), found.bitmap.tolist(), strict=True))
    assert listed == sorted(listed)
    return {(row, query): bitmap for row, query, bitmap in listed}


@given(st.lists(st.tuples(queries(), st.booleans()), max_size=6), st.lists(rows(), max_size=6), st.data())
@examples(100)
def test_equal_to_each_querys_own(
    asked: list[tuple[str, bool]], described: list[tuple[int, *Row]], data: st.DataObject
) -> None:
    joint, alone = JointMatcher(SCHEMA), {}
    for number, (text, named) in enumerate(asked):
        try:
            alone[number] = Matcher(parse_query(text, SCHEMA, match_names=named), SCHEMA)
        except QueryError:
            continue
        joint.add(number, alone[number])
    for number in data.draw(st.lists(st.sampled_from(sorted(alone)), unique=True)) if alone else []:
        joint.remove(number)
        del alone[number]
    for relation in range(len(SCHEMA.relations)):
        some = [row for of, *row in described if of == relation]
        expected = {
            (at, number): matcher.bitmap(relation, tuple(row))
            for at, row in enumerate(some)
            for number, matcher in alone.items()
            if matcher.bitmap(relation, tuple(row))
        }
        assert bitmaps(joint, relation, [tuple(row) for row in some]) == expected


@pytest.mark.parametrize("text", ["pulp fiction", '"pulp fiction" trav*', "travlota~2 p?lp !actor.aid:1"])
def test_a_query_that_is_gone_is_found_no_more(text: str) -> None:
    joint = JointMatcher(SCHEMA)
    for number in (3, 7):
        joint.add(number, Matcher(parse_query(text, SCHEMA), SCHEMA))
    block = RowBlock(ACTOR, [(1, "Pulp Fiction with Travolta")])
    assert joint.bitmaps(block).query.tolist() == [3, 7]
    joint.remove(3)
    assert joint.bitmaps(block).query.tolist() == [7]
    joint.remove(7)
    assert not len(joint.bitmaps(block).query)
