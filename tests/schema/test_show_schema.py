"""Schemas as YAML, as a drawing, as a graph for Graphviz, and as a JSON schema for editors."""

from __future__ import annotations

import json
import random
import re

import networkx as nx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from skws_schema.model import Analyzer, Attribute, AttributeType, Join, Relation, Schema
from skws_schema.show import draw, show, spanning_trees, to_dot, to_yaml
from skws_schema.yaml.document import json_schema
from skws_schema.yaml.load import parse_schema
from tests.oracles.join_graph import join_graph
from tests.strategies import examples


def test_dot_escapes_names() -> None:
    schema = parse_schema("name: 'a\"b\\c'\nrelations:\n  r: {attributes: {t: text}}\n")
    assert to_dot(schema).startswith('graph "a\\"b\\\\c" {')


NAMES = st.from_regex(r"\w[\w-]{0,6}", fullmatch=True) | st.sampled_from(
    ["on", "no", "null", "true", "1", "0x1", "1e3", "y", "key", "relations", "attributes", "a-", "Straße"]
)
TEXTS = st.text(
    st.characters(codec="utf-8", exclude_categories=["Cc", "Cs"]), min_size=1, max_size=12
) | st.sampled_from(
    [
        "on",
        "1:30",
        "2026-01-01",
        "a: b",
        "- a",
        "#",
        "{x",
        "1e3",
        ".5",
        "a\nb",
        " a ",
        "\x85",
        "'",
        '"',
        "=",
        "<<",
        "%a",
    ]
)
MICROSECONDS = st.integers(-60_000_000_000_000_000, 250_000_000_000_000_000)


@st.composite
def attributes(draw: st.DrawFn, name: str) -> Attribute:
    kind = draw(st.sampled_from(list(AttributeType)))
    numbers: dict[AttributeType, st.SearchStrategy[int] | st.SearchStrategy[float]] = {
        AttributeType.INTEGER: st.integers(),
        AttributeType.NUMBER: st.floats(allow_nan=False, allow_infinity=False),
        AttributeType.TIMESTAMP: MICROSECONDS,
    }
    if kind is AttributeType.TEXT:
        return Attribute(name, kind, analyzer=draw(st.sampled_from([Analyzer.ENGLISH, *Analyzer])))
    if kind not in numbers:
        return Attribute(name, kind)
    low, high = sorted(draw(st.tuples(numbers[kind], numbers[kind])))
    return Attribute(
        name, kind, *draw(st.sampled_from([(low, high), (low, None), (None, high), (None, None)]))
    )


@st.composite
def relations(draw: st.DrawFn, name: str) -> Relation:
    columns = tuple(draw(attributes(n)) for n in draw(st.lists(NAMES, min_size=1, max_size=5, unique=True)))
    by_type = {kind: [a.name for a in columns if a.type is kind] for kind in AttributeType}
    table = draw(st.booleans())
    times = [None, *([] if table else by_type[AttributeType.TIMESTAMP])]
    return Relation(
        name,
        columns,
        key=tuple(draw(st.lists(st.sampled_from([a.name for a in columns]), unique=True))),
        search=tuple(draw(st.permutations(by_type[AttributeType.TEXT])))[draw(st.integers(0, 2)) :],
        time=draw(st.sampled_from(times)),
        table=table,
        finite=draw(st.booleans()),
    )


@st.composite
def schemas(draw: st.DrawFn) -> Schema:
    parts = tuple(draw(relations(n)) for n in draw(st.lists(NAMES, min_size=1, max_size=5, unique=True)))
    joins: dict[object, Join] = {}
    for name in draw(st.lists(TEXTS, max_size=6, unique=True)):
        left, right = draw(st.sampled_from(parts)), draw(st.sampled_from(parts))
        pairs = [(a.name, b.name) for a in left.attributes for b in right.attributes if a.type is b.type]
        if pairs:
            on = tuple(draw(st.lists(st.sampled_from(pairs), min_size=1, max_size=2, unique=True)))
            condition = " and ".join(f"{left.name}.{a} = {right.name}.{b}" for a, b in on)
            named_join = Join(draw(st.sampled_from([name, condition])), left.name, right.name, on)
            joins.setdefault(
                frozenset((frozenset(((left.name, a), (right.name, b)))) for a, b in on), named_join
            )
    joins_by_name = {join.name: join for join in joins.values()}
    groups = draw(st.lists(st.lists(NAMES, min_size=2, max_size=3, unique=True).map(tuple), max_size=2))
    synonyms = tuple(group for group in groups if all(any(map(str.isalnum, word)) for word in group))
    return Schema(draw(TEXTS), parts, tuple(joins_by_name.values()), draw(TEXTS), synonyms=synonyms)


@examples(150)
@given(schemas())
def test_yaml_loads_as_the_same_schema(schema: Schema) -> None:
    assert parse_schema(to_yaml(schema)) == schema


@examples(50)
@given(schemas())
def test_the_drawing_is_a_spanning_forest(schema: Schema) -> None:
    trees = spanning_trees(schema)
    graph = join_graph(schema)
    assert len(trees) == nx.number_connected_components(graph)
    assert sum(len(tree.joins) for tree in trees) == len(schema.relations) - len(trees)
    assert sorted(r for tree in trees for r in tree.children) == list(range(len(schema.relations)))
    lines = draw(schema)
    tree_lines = lines[: lines.index("and")] if "and" in lines else lines
    drawn_names = [re.sub(r"^[│├└─ ]+", "", line).split(" ")[0].strip() for line in tree_lines]
    assert sorted(drawn_names) == sorted(r.name for r in schema.relations)


@examples(30)
@given(schemas())
def test_showing_never_fails_and_is_deterministic(schema: Schema) -> None:
    reloaded = parse_schema(to_yaml(schema))
    assert show(schema) == show(reloaded)
    assert to_dot(schema) == to_dot(reloaded)


def test_json_schema_serves_editors() -> None:
    description = json_schema()
    assert json.loads(json.dumps(description)) == description
    definitions = description["$defs"]
    assert definitions["AttributeType"]["enum"] == [t.value for t in AttributeType]
    assert description["required"] == ["relations"]
    for level in (description, *definitions.values()):
        assert level["description"]
        assert level.get("additionalProperties", False) is False
        for name, subschema in level.get("properties", {}).items():
            assert subschema["description"], name
    assert set(definitions["RelationDocument"]["properties"]) == {
        "attributes",
        "key",
        "search",
        "analyzer",
        "time",
        "table",
        "from",
        "source",
        "finite",
    }


@pytest.mark.parametrize("name", ["movie", "a-b", "_x", "1", "Straße", "映画"])
def test_json_schema_accepts_valid_names(name: str) -> None:
    (pattern,) = json_schema()["properties"]["relations"]["patternProperties"]
    assert re.search(pattern, name)
    assert parse_schema(f"relations:\n  {name}: {{attributes: {{t: text}}}}").relations[0].name == name


@pytest.mark.parametrize("name", ["a.b", "a:b", "a b", "-a", "a/b", "", "a$"])
def test_json_schema_rejects_invalid_names(name: str) -> None:
    relations = json_schema()["properties"]["relations"]
    (pattern,) = relations["patternProperties"]
    assert not re.search(pattern, name)
    assert relations["additionalProperties"] is False


def tree_schema(parents: list[int]) -> Schema:
    """Relation ``n + 1`` joins relation ``parents[n]``."""
    attributes = (Attribute("x", AttributeType.INTEGER),)
    relations = tuple(Relation(f"r{n}", attributes) for n in range(len(parents) + 1))
    pair = (("x", "x"),)
    return Schema("tree", relations, tuple(Join.of(f"r{n}", f"r{p}", pair) for n, p in enumerate(parents, 1)))


@pytest.mark.parametrize("seed", range(3))
def test_a_large_tree_is_drawn_from_its_centre(seed: int) -> None:
    rng = random.Random(seed)
    schema = tree_schema([rng.randrange(max(0, n - 5), n) for n in range(1, 400)])
    (tree,) = spanning_trees(schema)
    assert tree.height == nx.radius(nx.Graph(join_graph(schema)))
    assert len(tree.joins) == 399


def test_a_chain_of_thousands_of_relations_is_drawn() -> None:
    lines = draw(tree_schema(list(range(2_999))))
    assert len(lines) == 3_000
    assert lines[0] == "r1499"
