"""PFA and their determinisation (Proposition 3.2), against run trees."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skws_patterns.automata.pfa import PFA
from skws_schema.budget import OverBudgetError

# T and S in any order before R: Example 3.1 (Figure 1, left).
EXAMPLE = PFA(
    transitions=(
        *((frozenset({p}), a, p) for p in ("p0", "p1", "p2", "p3", "p4") for a in "TSR"),
        (frozenset({"p0"}), "T", "p1"),
        (frozenset({"p2"}), "S", "p3"),
        (frozenset({"p1", "p3"}), "R", "p4"),
    ),
    initial=frozenset({"p0", "p2"}),
    final=frozenset({"p4"}),
)


def has_run_tree(pfa: PFA, string: str, state: str, read: int) -> bool:
    """Is there a run tree with this root over the first ``read`` symbols? By definition, node by node."""
    if read == 0:
        return state in pfa.initial
    return any(
        target == state
        and symbol == string[read - 1]
        and sources
        and all(has_run_tree(pfa, string, str(source), read - 1) for source in sources)
        for sources, symbol, target in pfa.transitions
    )


def accepts(pfa: PFA, string: str) -> bool:
    return any(has_run_tree(pfa, string, str(state), len(string)) for state in pfa.final)


def test_example_3_1_looks_for_t_and_s_before_r() -> None:
    dfa = EXAMPLE.determinised()
    for length in range(6):
        for string in product("TSR", repeat=length):
            wanted = any("T" in string[:i] and "S" in string[:i] and string[i] == "R" for i in range(length))
            assert dfa.accepts(string) == wanted == accepts(EXAMPLE, "".join(string))


STATES = st.sampled_from("abcd")


@given(
    st.lists(st.tuples(st.frozensets(STATES, max_size=3), st.sampled_from("xy"), STATES), max_size=10),
    st.frozensets(STATES, max_size=3),
    st.frozensets(STATES, max_size=2),
)
def test_a_determinised_automaton_has_the_same_language(
    transitions: list[tuple[frozenset[str], str, str]], initial: frozenset[str], final: frozenset[str]
) -> None:
    pfa = PFA(tuple(transitions), initial, final)
    dfa = pfa.determinised()
    assert len(dfa.states()) <= 2 ** len(pfa.states())
    for length in range(5):
        for string in product("xy", repeat=length):
            assert dfa.accepts(string) == accepts(pfa, "".join(string))


def test_too_many_macrostates_are_given_up() -> None:
    """The x that is the twentieth from the end: 2^20 macrostates."""
    steps = [(frozenset({n}), symbol, n + 1) for n in range(1, 20) for symbol in "xy"]
    loops = [(frozenset({0}), symbol, 0) for symbol in "xy"]
    pfa = PFA((*loops, (frozenset({0}), "x", 1), *steps), frozenset({0}), frozenset({20}))
    with pytest.raises(OverBudgetError):
        pfa.determinised()
