"""Counting candidate networks against making them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.load import Load
from skws_mesh import count
from skws_mesh.cngen import CNGen
from skws_mesh.count import TooManyKindsError, count_networks
from skws_mesh.sequence import KeywordSequence
from skws_schema.model import Schema
from tests.strategies import examples, schemas

SEQUENCES: dict[int, list[tuple[int, ...]]] = {
    1: [()],
    2: [(), (0b01, 0b10)],
    3: [(), (0b001, 0b110), (0b001, 0b010, 0b100), (0b101, 0b010)],
}


@given(schemas(max_relations=4), st.integers(1, 3), st.integers(1, 5), st.data())
@examples(300)
def test_equals_what_is_made(schema: Schema, keywords: int, size: int, data: st.DataObject) -> None:
    bitmaps = st.integers(0, (1 << keywords) - 1)
    several = len(schema.relations)
    searchable = data.draw(st.lists(bitmaps, min_size=several, max_size=several))
    groups = data.draw(st.sampled_from(SEQUENCES[keywords]))
    if len(schema.joins) > 2:
        size = min(size, 4)
    without = data.draw(st.sets(st.integers(0, several - 1), max_size=several - 1))
    order = KeywordSequence(groups)
    generator = CNGen(schema, keywords, size, searchable, sequence=order, without=without)
    made = [0] * size
    for tree in generator.networks():
        made[len(tree.relations) - 1] += 1
    assert count_networks(generator) == tuple(made)


def test_counts_more_than_could_be_made() -> None:
    found = count_networks(CNGen(Load(relations=30).schema(), 8, 5))
    assert sum(found) == 29_649_863_920_788


def test_gives_up_where_nodes_differ_too_much(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(count, "MOST_STEPS", 1_000)
    schema = Load(relations=30).schema()
    with pytest.raises(TooManyKindsError):
        count_networks(CNGen(schema, 8, 5, [1 << n % 8 for n in range(30)]))
