"""Hierarchical queries, their q-trees, the size of their automata, and rejected queries."""

from __future__ import annotations

from skws.queries.patterns.pattern_explanation import AutomatonDrawing
from skws_patterns.hcq import (
    FRESH,
    ConjunctiveQuery,
    Inner,
    compact,
    drawing,
    parse_conjunctive_query,
    qtree,
)
from skws_patterns.hcq_automaton import automaton_of
from skws_schema.model import Attribute, AttributeType, Relation, Schema
from tests.patterns.hierarchical_queries import is_hierarchical
from tests.patterns.paper_examples import Q0, Q1, SCHEMA
from tests.patterns.test_pattern_language import FULL, automaton
from tests.patterns.test_pattern_language import SCHEMA as BANK

NAMES = tuple(r.name for r in SCHEMA.relations)
# The relations of Appendix B, by arity.
APPENDIX = Schema(
    "appendix",
    tuple(
        Relation(name, tuple(Attribute(f"a{i}", AttributeType.INTEGER) for i in range(arity)))
        for name, arity in (("R", 3), ("S", 3), ("T", 2), ("U", 2))
    ),
    (),
)


def query_of(text: str, schema: Schema = SCHEMA) -> ConjunctiveQuery:
    return parse_conjunctive_query(text, schema)


def test_q0_is_hierarchical_and_q1_is_not() -> None:
    assert is_hierarchical(query_of(Q0))
    assert not is_hierarchical(query_of(Q1))


def test_the_qtree_of_q0() -> None:
    tree = qtree(query_of(Q0))
    assert tree == Inner("x", (0, Inner("y", (1, 2))))
    assert compact(tree) == tree
    assert drawing(query_of(Q0), tree, NAMES) == "x\n  0: T(x)\n  y\n    1: S(x, y)\n    2: R(x, y)"


def test_the_compact_qtree_of_the_appendix() -> None:
    """x has the children y and w; z, v and w have one atom each and are omitted."""
    query = query_of("Q(x, y, z, v, w) <- R(x, y, z), S(x, y, v), T(x, w), U(x, y)", APPENDIX)
    tree = qtree(query)
    assert {node.variable for node in tree.inner_nodes()} == {"x", "y", "z", "v", "w"}
    assert compact(tree) == Inner("x", (Inner("y", (0, 1, 3)), 2))


def test_the_automaton_without_self_joins_has_quadratic_size() -> None:
    for atom_count in (2, 4, 8, 16):
        schema = Schema(
            "star",
            tuple(Relation(f"A{i}", (Attribute("x", AttributeType.INTEGER),)) for i in range(atom_count)),
            (),
        )
        text = "Q(x) <- " + ", ".join(f"A{i}(x)" for i in range(atom_count))
        pcea = automaton_of(parse_conjunctive_query(text, schema))
        assert len(pcea.transitions) == 2 * atom_count
        assert pcea.size == (atom_count + 1) + atom_count + atom_count * (atom_count - 1) + atom_count


def test_a_disconnected_query_gets_a_fresh_root() -> None:
    query = query_of("Q(x, y) <- T(x), R(y, y)")
    assert is_hierarchical(query)
    assert compact(qtree(query)) == Inner(FRESH, (0, 1))


def test_a_single_atom_has_one_transition() -> None:
    assert len(automaton_of(query_of("Q(x) <- T(x)")).transitions) == 1
    assert len(automaton_of(query_of("Q() <- T(1)")).transitions) == 1


def test_the_drawing_joins_the_sources_of_a_transition() -> None:
    dot = AutomatonDrawing(automaton(FULL), BANK).dot()
    assert dot.startswith("digraph automaton {")
    assert dot.count("shape=doublecircle") == 1
    assert dot.count("shape=point") == 3
    assert '  s1 -> t2 [label="transfer.user = refund.user", arrowhead=none];' in dot
    assert '  t2 -> s2 [label="refund / r"];' in dot
