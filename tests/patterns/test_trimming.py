"""Trimmed automata: valid, with the same runs, and no useless state."""

from __future__ import annotations

from itertools import pairwise
from typing import Final

from hypothesis import given
from hypothesis import strategies as st

from skws.queries.patterns.explain import AutomatonDrawing
from skws_patterns.automata.pcea import PCEA, Source, State, Transition
from skws_patterns.automata.predicates import Equality, Unary
from skws_patterns.evaluation.evaluator import Evaluator
from skws_patterns.evaluation.runs import column_plan
from skws_schema.model import Row
from skws_windows.window import CountWindow
from tests.oracles.run_trees import accepting_runs
from tests.patterns.pattern_matches import SCHEMA, streams
from tests.strategies import examples

STATES: Final = "pqrst"
SAME: Final = Equality(tuple((relation, (0,)) for relation in range(3)), (0,))


def transitions() -> st.SearchStrategy[Transition]:
    sources = st.sets(st.sampled_from(STATES), max_size=2)
    return st.builds(
        lambda gathered, relation, label, target: Transition(
            tuple(Source(state, SAME) for state in sorted(gathered)),
            Unary(relation),
            frozenset(label),
            target,
        ),
        sources,
        st.integers(0, 2),
        st.sampled_from("xy"),
        st.sampled_from(STATES),
    )


@st.composite
def automata(draw: st.DrawFn) -> PCEA:
    made = tuple(draw(st.lists(transitions(), max_size=9, unique=True)))
    targets = sorted({str(transition.target) for transition in made})
    return PCEA(made, frozenset(draw(st.sets(st.sampled_from(targets)))) if made else frozenset())


def in_accepting_runs(pcea: PCEA) -> set[Transition]:
    """By definition, with all tuples equal: first what can hold a run, then what leads on to acceptance."""
    reached: set[State] = set()
    for _ in pcea.transitions:
        reached |= {t.target for t in pcea.transitions if all(s.state in reached for s in t.sources)}
    firing = [t for t in pcea.transitions if all(s.state in reached for s in t.sources)]
    needed = {state for state in pcea.final if state in reached}
    for _ in pcea.transitions:
        needed |= {s.state for t in firing if t.target in needed for s in t.sources}
    return {t for t in firing if t.target in needed}


@examples(150)
@given(automata())
def test_what_is_left_is_what_accepting_runs_are_made_of(pcea: PCEA) -> None:
    trimmed = pcea.trimmed()
    assert set(trimmed.transitions) == in_accepting_runs(pcea)
    assert trimmed.transitions == tuple(t for t in pcea.transitions if t in trimmed.transitions)
    assert trimmed.final == {t.target for t in trimmed.transitions} & pcea.final
    assert trimmed.trimmed() == trimmed


@examples(150)
@given(automata(), streams(max_tuples=4))
def test_accepting_runs_stay(pcea: PCEA, stream: list[tuple[int, Row]]) -> None:
    trimmed = pcea.trimmed()
    for position in range(len(stream)):
        assert accepting_runs(trimmed, stream, position) == accepting_runs(pcea, stream, position)


def test_a_final_state_in_no_run_leaves_an_empty_language() -> None:
    waits = Transition((Source("p", SAME),), Unary(0), frozenset("x"), "p")
    empty = PCEA((waits,), frozenset("p")).trimmed()
    assert (empty.transitions, empty.final, empty.states) == ((), frozenset(), frozenset())
    assert list(Evaluator(empty, 3, CountWindow(5)).feed(0, (1, 1))) == []
    assert AutomatonDrawing(empty, SCHEMA).text() == "0 states, 0 transitions, final: "
    assert column_plan(empty) is not None


class Counted:
    """A state that counts how often two of its kind are compared."""

    compared = 0

    def __init__(self, number: int) -> None:
        self.number = number

    def __hash__(self) -> int:
        return self.number

    def __eq__(self, other: object) -> bool:
        Counted.compared += 1
        return isinstance(other, Counted) and self.number == other.number


def test_trimming_takes_linear_time() -> None:
    """A chain given from its end to its beginning is the worst case for rounds over all transitions."""
    length = 1_000
    states = [Counted(number) for number in range(length + 1)]
    links = [Transition((Source(a, SAME),), Unary(0), frozenset("x"), b) for a, b in pairwise(states)]
    first = Transition((), Unary(0), frozenset("x"), states[0])
    chain = PCEA((*reversed(links), first), frozenset(states[-1:]))
    Counted.compared = 0
    assert len(chain.trimmed().transitions) == length + 1
    assert Counted.compared < 10 * length
