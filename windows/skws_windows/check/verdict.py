"""The static check: whether windows can pile up without bound, and a stream on which they do.

This is undecidable with lookback in general (window paper, Theorem 2.1 and
Section 5), so there are three verdicts. "bounded" is always proved. "unbounded"
comes with records on which the processor confirmed it. Anything else is "may be
unbounded".
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from skws_schema.budget import OverBudgetError, StepBudget
from skws_windows.automata.closure import clean, trimmed
from skws_windows.automata.finite import Branching, branching, finite
from skws_windows.automata.k_sla import LookbackAutomaton
from skws_windows.check.overlap import Pattern, find_pattern
from skws_windows.check.types import TypeGraph, type_graphs
from skws_windows.check.witness import Witness, realised
from skws_windows.guards import guard as g
from skws_windows.guards.alphabet import Alphabet
from skws_windows.guards.satisfiability import Satisfiability, TooManyCellsError
from skws_windows.language.expression import Pair, Selection, WindowExpression


class Bound(StrEnum):
    """Whether a number is bounded."""

    BOUNDED = "bounded"
    UNBOUNDED = "unbounded"
    UNKNOWN = "may be unbounded"


MOST_ENTRIES: Final = 100_000
"""Table entries that making an automaton deterministic may take."""
_GRAVITY: Final = {Bound.BOUNDED: 0, Bound.UNKNOWN: 1, Bound.UNBOUNDED: 2}


@dataclass(frozen=True, slots=True)
class Verdict:
    """The bounds of the starts of open windows (memory), and of the windows that end at one record (output).

    ``never``: no stream has any window.
    """

    open_starts: Bound
    windows_per_position: Bound
    reason: str
    witness: Witness | None = None
    never: bool = False


def compiled(expression: WindowExpression, theory: Satisfiability) -> WindowExpression:
    """The expression with automata cleaned and trimmed: windows that cannot end are dropped at once."""
    pairs = [Pair(clean(p.before, theory), trimmed(clean(p.window, theory))) for p in expression.pairs]
    return WindowExpression(tuple(pairs), expression.selection, expression.limits, expression.per)


def check(expression: WindowExpression, alphabet: Alphabet) -> Verdict:
    """Whether windows can pile up."""
    kept = compiled(expression, Satisfiability(alphabet))
    if not any(_has_windows(pair) for pair in kept.pairs):
        reason = "no stream has such a window, whatever its records"
        return Verdict(Bound.BOUNDED, Bound.BOUNDED, reason, never=True)
    if expression.selection is Selection.FIRST:
        return Verdict(Bound.BOUNDED, Bound.BOUNDED, "one window at a time is open")
    if expression.limits.most is not None:
        return Verdict(
            Bound.BOUNDED, Bound.BOUNDED, f"no window has more than {expression.limits.most} records"
        )
    if expression.selection is Selection.LONGEST and not expression.limits.bounding:
        return Verdict(
            Bound.BOUNDED, Bound.BOUNDED, "only the earliest of the starts with the same future is kept"
        )
    theory = Satisfiability(alphabet, promises(expression.guards, alphabet))
    found = _searched(kept, theory)
    if expression.selection is Selection.LONGEST:
        return Verdict(found.open_starts, Bound.BOUNDED, found.reason, found.witness)
    return found


def _has_windows(pair: Pair) -> bool:
    """False if no path of a cleaned pair leads to a window of a record or more. Exact without lookback."""
    return bool(trimmed(pair.before).final) and bool(pair.window.transitions)


def promises(guards: Iterable[g.Guard], alphabet: Alphabet) -> list[g.Guard]:
    """The schema's bounds of the fields that guards read, as guards."""
    read = {
        alphabet.fields[f.name].variable
        for guard in guards
        for atom in g.atoms(guard)
        for f in g.fields(atom)
    }
    return [_within(*bound) for name in sorted(read) for bound in alphabet.bounds(name)]


def _within(name: str, low: float | None, high: float | None) -> g.Guard:
    field = g.Field(name)
    parts: list[g.Guard] = []
    if low is not None:
        parts.append(g.Compare("<=", g.Constant(low), field))
    if high is not None:
        parts.append(g.Compare("<=", field, g.Constant(high)))
    return g.disjunction([g.IsNull(field), g.conjunction(parts)])


def _searched(expression: WindowExpression, theory: Satisfiability) -> Verdict:
    """Pair by pair; the worst verdict counts."""
    found = [_of_pair(expression, pair, theory) for pair in expression.pairs]
    worst = max(found, key=lambda v: (_GRAVITY[v.open_starts], _GRAVITY[v.windows_per_position]))
    output = max((v.windows_per_position for v in found), key=_GRAVITY.__getitem__)
    return Verdict(worst.open_starts, output, worst.reason, worst.witness)


def _of_pair(expression: WindowExpression, pair: Pair, theory: Satisfiability) -> Verdict:
    guards = list(dict.fromkeys((*pair.before.guards, *pair.window.guards)))
    verdict = _unknown(f"its {len(guards)} conditions combine in too many ways to check")
    try:
        for graph in type_graphs(guards, theory):
            # Every start that is not dropped is open, whether or not any stream leads to an end of it.
            automata = (pair.before, pair.window, _all_final(pair.window))
            before, window, kept = (_searchable(a, graph) for a in automata)
            patterns = [find_pattern(graph, before, e) for e in (kept, window)]
            verdict = _judged(*(_evidence(expression, pair, graph, p, theory) for p in patterns))
            if verdict.open_starts is not Bound.UNKNOWN:
                break
    except TooManyCellsError:
        pass
    except OverBudgetError:
        states = pair.before.states + pair.window.states
        return _unknown(f"the automata, of {states} states, are too large to be searched")
    return verdict


def _searchable(given: LookbackAutomaton, graph: TypeGraph) -> Branching:
    """The automaton, minimal if that is soon found, which makes the search smaller; else as it is."""
    try:
        with StepBudget(MOST_ENTRIES, "checking the window") as budget:
            return Branching.of(finite(given, graph.guards, graph.letters, budget))
    except OverBudgetError:
        return branching(given, graph.guards, graph.letters)


@dataclass(frozen=True, slots=True)
class _Evidence:
    """The evidence about one of the two numbers."""

    bound: Bound
    witness: Witness | None = None


def _evidence(
    expression: WindowExpression,
    pair: Pair,
    graph: TypeGraph,
    pattern: Pattern | None,
    theory: Satisfiability,
) -> _Evidence:
    if pattern is None:
        return _Evidence(Bound.BOUNDED)
    witness = realised(expression, pair, graph, pattern, theory) if graph.exact else None
    return _Evidence(Bound.UNKNOWN) if witness is None else _Evidence(Bound.UNBOUNDED, witness)


def _judged(opening: _Evidence, ending: _Evidence) -> Verdict:
    if ending.witness is not None and not ending.witness.output_grows:
        ending = _Evidence(Bound.UNKNOWN)
    witness = ending.witness or opening.witness
    if opening.bound is Bound.UNBOUNDED:
        reason = "every repetition of the loop adds a start"
    elif opening.bound is Bound.BOUNDED:
        reason = "no stream has a part that adds a start each time it is repeated"
    else:
        reason = "streams that add a start again and again are not ruled out, and not proved to exist"
    return Verdict(opening.bound, ending.bound, reason, witness)


def _unknown(reason: str) -> Verdict:
    advice = "'first' or a limit such as 'at most 1000 records' is bounded without a check"
    return Verdict(Bound.UNKNOWN, Bound.UNKNOWN, f"{reason}; {advice}")


def _all_final(given: LookbackAutomaton) -> LookbackAutomaton:
    """The automaton of all prefixes of windows, which the processor keeps as open starts."""
    final = frozenset(range(given.states)) if given.final else frozenset[int]()
    return LookbackAutomaton(given.k, given.states, given.initial, final, given.transitions)
