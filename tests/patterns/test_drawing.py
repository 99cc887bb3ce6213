"""Automata as text and as DOT."""

from __future__ import annotations

from skws.queries.patterns.explain import AutomatonDrawing
from skws_patterns.queries.automaton import automaton_of
from skws_patterns.queries.hcq import parse_conjunctive_query
from tests.patterns.paper_examples import Q0, SCHEMA
from tests.patterns.test_pattern_language import FULL, automaton
from tests.patterns.test_pattern_language import SCHEMA as BANK

Q0_TEXT = """\
5 states, 8 transitions, final: x
  --T / 0--> 0
  --S / 1--> 1
  --R / 2--> 2
  y [R.a = T.a | S.a = T.a] --T / 0--> x
  0 [T.a = S.a] + 2 [R.a = S.a, R.b = S.b] --S / 1--> x
  0 [T.a = R.a] + 1 [S.a = R.a, S.b = R.b] --R / 2--> x
  2 [R.a = S.a, R.b = S.b] --S / 1--> y
  1 [S.a = R.a, S.b = R.b] --R / 2--> y"""
FULL_TEXT = """\
3 states, 3 transitions, final: q2
  --login / l--> q0
  --transfer [:'urgent'] / t--> q1
  q0 [login.user = refund.user] + q1 [transfer.user = refund.user] --refund / r--> q2"""


def test_the_automaton_of_figure_2_as_text() -> None:
    assert AutomatonDrawing(automaton_of(parse_conjunctive_query(Q0, SCHEMA)), SCHEMA).text() == Q0_TEXT


def test_states_without_names_are_numbered() -> None:
    assert AutomatonDrawing(automaton(FULL), BANK).text() == FULL_TEXT


def test_tests_of_a_tuple_are_shown() -> None:
    pcea = automaton_of(parse_conjunctive_query("Q(x, y) <- R(x, x), S(1, y), S(y, y)", SCHEMA))
    text = AutomatonDrawing(pcea, SCHEMA).text()
    assert "--R [a = b] / 0--> 0" in text
    assert "--S [a = 1] / 1--> 1" in text
    assert "--S [a = 1] [b = 1] / 1, 2" in text


def test_dot_joins_what_a_transition_gathers() -> None:
    dot = AutomatonDrawing(automaton(FULL), BANK).dot()
    assert dot.startswith("digraph automaton {")
    assert dot.count("shape=doublecircle") == 1
    assert dot.count("shape=point") == 3
    assert '  s1 -> t2 [label="transfer.user = refund.user", arrowhead=none];' in dot
    assert '  t2 -> s2 [label="refund / r"];' in dot
