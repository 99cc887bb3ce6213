"""Positions of relations and joins under a changing schema."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skws_schema.errors import SchemaError
from skws_schema.evolution import SchemaChange
from skws_schema.graph import edges, edges_from, present_edges
from skws_schema.model import Attribute, AttributeType, Join, Relation, Schema
from skws_schema.yaml.document import to_yaml
from skws_schema.yaml.load import load_schema, parse_schema
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


REST = "relations:\n  a: {attributes: {t: text}}\n"
GROUPS = (("car", "automobile", "motor car"), ("c#", "csharp"))


def test_synonyms_are_read_from_a_file(tmp_path: Path) -> None:
    (tmp_path / "s.yaml").write_text(f"synonyms: words/synonyms.txt\n{REST}")
    (tmp_path / "words").mkdir()
    lines = "\ufeff# vehicles\n\ncar,  automobile , motor   car, car # all the same\nc#, csharp\n"
    (tmp_path / "words" / "synonyms.txt").write_text(lines)
    schema = load_schema(tmp_path / "s.yaml")
    assert schema.synonyms == GROUPS
    # Other processes read the schema's text where the file may not exist.
    assert parse_schema(to_yaml(schema), default_name="s") == schema


def test_synonyms_may_be_in_the_schema() -> None:
    assert parse_schema(f"synonyms: ['car, automobile, motor car', 'c#, csharp']\n{REST}").synonyms == GROUPS
    assert parse_schema(f"synonyms: []\n{REST}").synonyms == ()


def test_all_errors_in_the_synonyms_file_are_reported(tmp_path: Path) -> None:
    (tmp_path / "s.yaml").write_text(f"synonyms: w.txt\n{REST}")
    with pytest.raises(SchemaError, match=r"w.txt cannot be read: No such file"):
        load_schema(tmp_path / "s.yaml")
    (tmp_path / "w.txt").write_text("car, bus\ncar\n# x\na,,b\n")
    with pytest.raises(SchemaError) as error:
        load_schema(tmp_path / "s.yaml")
    assert "w.txt, line 2: expected at least two words" in str(error.value)
    assert "w.txt, line 4: expected a word between commas" in str(error.value)
    (tmp_path / "w.txt").write_bytes(b"car, \xff\n")
    with pytest.raises(SchemaError, match="save the file as UTF-8"):
        load_schema(tmp_path / "s.yaml")
