"""Positions of relations and joins under a changing schema."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from skws_schema.evolution import SchemaChange
from skws_schema.graph import edges, edges_from, present_edges
from skws_schema.model import Attribute, AttributeType, Join, Relation, Schema
from tests.strategies import examples, schemas

X = (Attribute("x", AttributeType.INTEGER),)
A, B, C = (Relation(name, X) for name in "abc")
AB, BC = Join("ab", "a", "b", (("x", "x"),)), Join("bc", "b", "c", (("x", "x"),))
CHAIN = Schema("chain", (A, B, C), (AB, BC))


def _numbers(change: SchemaChange) -> tuple[list[list[int]], list[list[int]]]:
    """The numbers of removed relations and joins, and of added relations and joins."""
    return [sorted(p) for p in change.removed], [sorted(p) for p in change.added]


def test_removed_relations_leave_holes_and_new_ones_are_last() -> None:
    added_relation = Relation("d", X)
    next_schema = Schema("other", (added_relation, C, B), (BC, Join("bd", "b", "d", (("x", "x"),))))
    change = SchemaChange.between(CHAIN, next_schema)
    assert [r.name for r in change.after.relations] == ["a", "b", "c", "d"]
    assert [j.name for j in change.after.joins] == ["ab", "bc", "bd"]
    assert [change.after.index[r.name] for r in next_schema.relations] == [3, 2, 1]
    assert _numbers(change) == ([[0], [0]], [[3], [2]])
    assert not edges_from(change.after)[0]
    assert {e.join for e in present_edges(change.after) if e.target == 1} == {1, 2}
    assert len(edges(change.after)) == 6


def test_a_returning_relation_has_its_old_position() -> None:
    reduced = SchemaChange.between(CHAIN, Schema("s", (B, C), (BC,))).after
    change = SchemaChange.between(reduced, CHAIN)
    assert (change.after.relations, change.after.joins) == (CHAIN.relations, CHAIN.joins)
    assert _numbers(change) == ([[], []], [[0], [0]])


def test_a_relation_with_another_key_is_a_new_one_with_new_joins() -> None:
    rekeyed = replace(A, key=("x",))
    change = SchemaChange.between(CHAIN, Schema("s", (rekeyed, B, C), (AB, BC)))
    assert [r.name for r in change.after.relations] == ["a (removed 1)", "b", "c", "a"]
    assert [j.name for j in change.after.joins] == ["ab (removed 1)", "bc", "ab"]
    assert _numbers(change) == ([[0], [0]], [[3], [2]])
    assert edges(change.after)[4].source == 3


def test_alternating_schemas_do_not_grow() -> None:
    rekeyed = Schema("s", (replace(A, key=("x",)), B, C), (AB, replace(BC, name="renamed")))
    schemas_after = [CHAIN]
    for target in (rekeyed, CHAIN, rekeyed, CHAIN):
        schemas_after.append(SchemaChange.between(schemas_after[-1], target).after)
    assert [r.name for r in schemas_after[2].relations] == ["a", "b", "c", "a (removed 2)"]
    assert [j.name for j in schemas_after[2].joins] == ["ab", "bc", "ab (removed 2)", "renamed"]
    assert schemas_after[1:3] == schemas_after[3:]


def test_a_relation_from_renamed_columns_keeps_its_position() -> None:
    """So its tuples and their results remain after a column or a table was renamed."""
    renamed = replace(A, attributes=(replace(X[0], origin="y"),), origin="aa")
    change = SchemaChange.between(CHAIN, Schema("s", (renamed, B, C), (AB, BC)))
    assert change.after.relations == (renamed, B, C)
    assert _numbers(change) == ([[], []], [[], []])
    nested = replace(A, origin="b.rows")
    assert SchemaChange.between(CHAIN, Schema("s", (nested, B, C), (AB, BC))).removed_relations == {0}


@given(st.lists(schemas(max_relations=3), min_size=2, max_size=5))
@examples(100)
def test_each_schema_of_a_sequence_is_preserved(sequence: list[Schema]) -> None:
    current = sequence[0]
    for target in sequence[1:]:
        change = SchemaChange.between(current, target)
        current = change.after
        positions = [current.index[r.name] for r in target.relations]
        assert tuple(current.relations[p] for p in positions) == target.relations
        evolution = current.evolution
        assert set(range(len(current.relations))) - {*positions} == evolution.removed_relations
        joins = [j for p, j in enumerate(current.joins) if p not in evolution.removed_joins]
        assert sorted(joins, key=lambda j: j.name) == sorted(target.joins, key=lambda j: j.name)
