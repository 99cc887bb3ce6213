"""Sizes of the automata of patterns and queries, and the errors for automata that are too large."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Final

import pytest

from skws_patterns.hcq import ConjunctiveQuery, RelationAtom, Variable
from skws_patterns.hcq_automaton import automaton_of
from skws_patterns.language import automaton_states as progress
from skws_patterns.language.compile import compile_pattern, parallel_automaton
from skws_patterns.language.pattern_parser import parse_pattern
from skws_patterns.language.resolve import resolve
from skws_schema.budgets import OverBudgetError, StepBudget, watch_steps, within_steps
from skws_schema.errors import PatternError
from skws_schema.model import Attribute, AttributeType, Relation, Schema
from tests.patterns.pattern_matches import contains

ATTRIBUTES: Final = (Attribute("x", AttributeType.INTEGER), Attribute("t", AttributeType.TEXT))
SCHEMA: Final = Schema("s", tuple(Relation(n, ATTRIBUTES, search=("t",)) for n in "ABC"), ())
TWELVE: Final = " ; ".join(["(* a OR * b)"] * 12)


def size(text: str) -> tuple[int, int]:
    pcea = compile_pattern(parse_pattern(text, SCHEMA), SCHEMA, contains).pcea
    return len(pcea.transitions), len(pcea.states)


def ands(count: int, conditions: str = "") -> str:
    return " AND ".join(f"A a{i}" for i in range(count)) + conditions


@pytest.mark.check
@pytest.mark.parametrize(
    ("text", "transitions", "states"),
    [
        ('("alpha" a AND "alpha" c AND B d)+ where a.x = c.x = d.x', 35, 7),
        ('("alpha" a AND (A b OR ("alpha" c AND B d)))+ where a.x = b.x = c.x = d.x', 38, 7),
        (ands(9), 9 * 2**8, 2**9 - 1),
        (ands(9, " where " + " = ".join(f"a{i}.x" for i in range(9))), 9 * 2**8, 2**9 - 1),
        (" ; ".join(f"* a{i}" for i in range(64)), 64 * 3, 64),
    ],
)
def test_last_tuples_with_the_same_columns_share_a_state(text: str, transitions: int, states: int) -> None:
    assert size(text) == (transitions, states)


def test_last_tuples_with_different_columns_have_separate_states() -> None:
    """The value of one is needed, that of the other is unknown."""
    transitions, states = size("(A a OR A b OR B c) ; C d where a.x = d.x")
    assert (transitions, states) == (3 + 3, 2 + 1)


@pytest.mark.parametrize(
    ("text", "reasons"),
    [
        (ands(12), ["20,000 transitions", "any of a0, a1, ", "these 12 parts of an AND", "order by ';'"]),
        (f"({ands(12)})+", ["20,000 transitions", "these 12 parts of an AND"]),
        (f"(* a OR * b)+ ; * a ; {TWELVE}", ["20,000 transitions", "reads 6 kinds of tuples"]),
    ],
)
def test_the_error_says_why_an_automaton_is_too_large(text: str, reasons: list[str]) -> None:
    with pytest.raises(PatternError) as error:
        size(text)
    for reason in reasons:
        assert reason in str(error.value)
    assert text[:20] in str(error.value)


def test_compilation_steps_are_limited() -> None:
    too_many_steps = pytest.raises(PatternError, match="compiling the pattern takes more than 50 steps: one")
    with within_steps(50), too_many_steps:
        size(ands(6))


@pytest.mark.check
def test_every_process_takes_the_same_steps() -> None:
    code = (
        "from tests.patterns.test_compile_budget import *\n"
        "from skws_patterns.language.automaton_states import StateLayout\n"
        "from skws_patterns.language.compile import Parallel\n"
        "pattern = parse_pattern('(* a OR * b)+ AND (* c OR (A d AND B e))', SCHEMA)\n"
        "layout = StateLayout(resolve(pattern, SCHEMA, contains))\n"
        "Parallel(layout).fragment(pattern.expression)\n"
        "print(layout.budget.spent)"
    )
    step_counts = {
        subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in "123"
    }
    assert len(step_counts) == 1
    assert int(step_counts.pop()) > 100


@pytest.mark.check
def test_a_watcher_is_notified_of_steps() -> None:
    reports: list[tuple[str, int, int]] = []
    pattern = parse_pattern(ands(9), SCHEMA)
    ends: list[None] = []

    def listen(budget: StepBudget | None) -> None:
        if budget is None:
            ends.append(None)
        else:
            reports.append((budget.stage, budget.spent, budget.limit))

    with watch_steps(listen):
        parallel_automaton(pattern, resolve(pattern, SCHEMA, contains))
    assert ends == [None]
    assert {(stage, limit) for stage, _, limit in reports} == {("compiling the pattern", progress.MOST_STEPS)}
    assert [spent for _, spent, _ in reports] == sorted({spent for _, spent, _ in reports})
    parallel_automaton(pattern, resolve(pattern, SCHEMA, contains))
    assert len(reports) == len({spent for _, spent, _ in reports})


def test_a_budget_allows_exactly_its_limit() -> None:
    budget = StepBudget(3, "counting")
    budget.spend(3)
    with pytest.raises(OverBudgetError):
        budget.spend()


def query(atoms: list[RelationAtom]) -> ConjunctiveQuery:
    variables = {v for atom in atoms for v in atom.variables}
    return ConjunctiveQuery(tuple(sorted(variables)), tuple(atoms))


def test_queries_of_many_atoms_compile_or_are_rejected() -> None:
    wide_query = query([RelationAtom(i, (Variable("x"), Variable(f"y{i}"))) for i in range(150)])
    assert len(automaton_of(wide_query).transitions) == 300
    error = pytest.raises(PatternError, match="more than 1,000 sources of transitions: ask for fewer atoms")
    with within_steps(1_000), error:
        automaton_of(wide_query)
    coinciding_query = query([RelationAtom(i % 3, (Variable("x"), None)) for i in range(15)])
    error = pytest.raises(PatternError, match=r"coincide in too many ways.*write it as a pattern")
    with within_steps(1_000), error:
        automaton_of(coinciding_query)
