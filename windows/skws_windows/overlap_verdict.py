"""The static check: whether windows can pile up without bound, with a stream on which they do.

With lookback this is undecidable in general (window paper, Theorem 2.1 and
Section 5), so there are three verdicts. "bounded" is always proved. "unbounded"
has records on which the processor confirmed it. In all other cases the verdict is
"may be unbounded".
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final

from skws_schema.budgets import OverBudgetError, StepBudget
from skws_schema.model import AttributeType, Value
from skws_windows.automata.k_sla import (
    LookbackAutomaton,
    NondeterministicAutomaton,
    clean,
    deterministic_over,
    nondeterministic_over,
    trim,
)
from skws_windows.automata.regular import Limits, Pair, Selection, WindowExpression
from skws_windows.guards import guard as g
from skws_windows.guards.alphabet import Alphabet, StreamRecord
from skws_windows.guards.satisfiability import Satisfiability, TooManyCellsError
from skws_windows.overlap import OverlapPattern, TypeEdge, TypeGraph, find_pattern, type_graphs
from skws_windows.processor.stream_processor import Processor

REPETITIONS: Final = 3
_EXTRA_REPETITIONS: Final = 2
_MOST_RECORDS: Final = 400
_DEFAULTS: Final[dict[AttributeType, Value]] = {
    AttributeType.TEXT: "",
    AttributeType.STRING: "",
    AttributeType.INTEGER: 0,
    AttributeType.NUMBER: 0.0,
    AttributeType.BOOLEAN: False,
    AttributeType.TIMESTAMP: 0,
}


@dataclass(frozen=True, slots=True)
class Witness:
    """A stream u v^n x: ``prefix``, ``loop`` and ``suffix`` are the numbers of records of u, v and x.

    After u v^n, ``open_starts`` starts are open; at the last record ``ending``
    windows of the whole expression end. More repetitions make more starts, and
    more windows of the offending pair if ``output_grows``.
    """

    records: tuple[StreamRecord, ...]
    prefix: int
    loop: int
    suffix: int
    repetitions: int
    open_starts: int
    ending: int
    output_grows: bool = False


def realise(
    expression: WindowExpression,
    pair: Pair,
    graph: TypeGraph,
    pattern: OverlapPattern,
    theory: Satisfiability,
) -> Witness | None:
    """Records for a pattern; None if there are none. Runs with fewer and more repetitions confirm them.

    The runs use only the pair whose windows pile up. The numbers of the
    witness are those of the whole expression, as a replay shows them.
    """
    pair_expression = WindowExpression(
        (pair,), limits=Limits(within=expression.limits.within), per=expression.per
    )
    witnesses = []
    for repetitions in (REPETITIONS, REPETITIONS + _EXTRA_REPETITIONS):
        records = _records(pair_expression, graph, pattern, repetitions, theory)
        if records is None:
            return None
        witnesses.append(_witness(pair_expression, records, pattern, repetitions, theory.alphabet))
    short, longer = witnesses
    if longer.open_starts < short.open_starts + _EXTRA_REPETITIONS:
        return None
    witness = _witness(expression, short.records, pattern, REPETITIONS, theory.alphabet)
    return replace(witness, output_grows=longer.ending >= short.ending + _EXTRA_REPETITIONS)


def _witness(
    expression: WindowExpression,
    records: tuple[StreamRecord, ...],
    pattern: OverlapPattern,
    repetitions: int,
    alphabet: Alphabet,
) -> Witness:
    processor = Processor(expression, alphabet)
    end = len(records) - len(pattern.suffix)
    for _ in processor.process(records[:end]):
        pass
    starts = processor.open_starts
    ended_windows = sum(1 for window in processor.process(records[end:]) if window.last == len(records) - 1)
    sizes = (end - repetitions * len(pattern.loop), len(pattern.loop), len(pattern.suffix))
    return Witness(records, *sizes, repetitions, starts, ended_windows)


def _records(
    expression: WindowExpression,
    graph: TypeGraph,
    pattern: OverlapPattern,
    repetitions: int,
    theory: Satisfiability,
) -> tuple[StreamRecord, ...] | None:
    walk = [*pattern.prefix, *pattern.loop * repetitions, *pattern.suffix]
    size = expression.k + len(walk)
    # All records have one key.
    conditions: list[g.Guard] = []
    for name in expression.per:
        conditions += [g.negation(g.IsNull(g.Field(name, back))) for back in range(size)]
        conditions += [
            g.Compare("=", g.Field(name, back), g.Field(name, back + 1)) for back in range(size - 1)
        ]
    at_once = expression.limits.within is not None
    return records_of(walk, graph, expression.k, theory, conditions, at_once=at_once)


def records_of(
    walk: Sequence[TypeEdge],
    graph: TypeGraph,
    k: int,
    theory: Satisfiability,
    extra_guards: Sequence[g.Guard] = (),
    *,
    at_once: bool = False,
) -> tuple[StreamRecord, ...] | None:
    """Records along a walk: k, then one for each edge, on which the guards hold or fail as its letter says.

    ``extra_guards`` are guards that the last record must satisfy as well. None if there
    are no such records, or the walk is too long.
    """
    size = k + len(walk)
    if size > _MOST_RECORDS:
        return None
    conditions = list(extra_guards)
    for index, edge in enumerate(walk):
        distance = len(walk) - 1 - index
        signs = graph.letters[edge.letter]
        conditions += [
            _with_sign(guard, sign, distance) for guard, sign in zip(graph.guards, signs, strict=True)
        ]
        types = graph.types[edge.target]
        conditions += [
            _with_sign(guard, sign, distance) for guard, sign in zip(graph.type_guards, types, strict=True)
        ]
    sample = theory.sample(conditions, size)
    return None if sample is None else _fill_in(sample, conditions, theory.alphabet, at_once=at_once)


def _with_sign(guard: g.Guard, sign: bool, distance: int) -> g.Guard:
    shifted_guard = g.shift(guard, distance)
    return shifted_guard if sign else g.negation(shifted_guard)


def _fill_in(
    sample: tuple[StreamRecord, ...],
    guards: list[g.Guard],
    alphabet: Alphabet,
    *,
    at_once: bool,
) -> tuple[StreamRecord, ...]:
    """The records with default values and times for everything that no guard reads."""
    names = {f.name for guard in guards for atom in g.atoms(guard) for f in g.fields(atom)}
    variables = {alphabet.fields[name].variable for name in names}
    has_time = alphabet.clock and "time" in names
    records = []
    for index, record in enumerate(sample):
        relation = alphabet.schema.relations[record.relation]
        row = tuple(
            value
            if alphabet.fields[f"{relation.name}.{attribute.name}"].variable in variables
            else _DEFAULTS[attribute.type]
            for attribute, value in zip(relation.attributes, record.row, strict=True)
        )
        time = record.time if has_time else 0 if at_once else index * 1_000_000
        records.append(StreamRecord(record.relation, time, row))
    return tuple(records)


class Bound(StrEnum):
    """The verdict on whether a number is bounded."""

    BOUNDED = "bounded"
    UNBOUNDED = "unbounded"
    UNKNOWN = "may be unbounded"


MOST_ENTRIES: Final = 100_000
"""The most table entries for making an automaton deterministic."""
_SEVERITY: Final = {Bound.BOUNDED: 0, Bound.UNKNOWN: 1, Bound.UNBOUNDED: 2}


@dataclass(frozen=True, slots=True)
class OverlapVerdict:
    """The bounds of the starts of open windows (memory), and of the windows that end at one record (output).

    ``never``: no stream has any window.
    """

    open_starts: Bound
    windows_per_position: Bound
    reason: str
    witness: Witness | None = None
    never: bool = False


def compile_expression(expression: WindowExpression, theory: Satisfiability) -> WindowExpression:
    """The expression with clean and trimmed automata, so that windows that cannot end are dropped at once."""
    pairs = [Pair(clean(p.before, theory), trim(clean(p.window, theory))) for p in expression.pairs]
    return WindowExpression(tuple(pairs), expression.selection, expression.limits, expression.per)


def check(
    expression: WindowExpression, alphabet: Alphabet, compact_expression: WindowExpression | None = None
) -> OverlapVerdict:
    """Decides whether windows can pile up. ``compact_expression``: compiled, if known."""
    compact_expression = compact_expression or compile_expression(expression, Satisfiability(alphabet))
    if not any(_has_windows(pair) for pair in compact_expression.pairs):
        reason = "no stream has such a window, whatever its records"
        return OverlapVerdict(Bound.BOUNDED, Bound.BOUNDED, reason, never=True)
    if expression.selection is Selection.FIRST:
        return OverlapVerdict(Bound.BOUNDED, Bound.BOUNDED, "only one window is open at a time")
    if expression.limits.most is not None:
        return OverlapVerdict(
            Bound.BOUNDED, Bound.BOUNDED, f"no window has more than {expression.limits.most} records"
        )
    if expression.selection is Selection.LONGEST and not expression.limits.bounding:
        return OverlapVerdict(
            Bound.BOUNDED, Bound.BOUNDED, "only the earliest of the starts with the same future is kept"
        )
    theory = Satisfiability(alphabet, promises(expression.guards, alphabet))
    verdict = _search_pairs(compact_expression, theory)
    if expression.selection is Selection.LONGEST:
        return OverlapVerdict(verdict.open_starts, Bound.BOUNDED, verdict.reason, verdict.witness)
    return verdict


def _has_windows(pair: Pair) -> bool:
    """False if no path of a cleaned pair leads to a window of at least one record. Exact without lookback."""
    return bool(trim(pair.before).final) and bool(pair.window.transitions)


def promises(guards: Iterable[g.Guard], alphabet: Alphabet) -> list[g.Guard]:
    """The schema's bounds of the fields that guards read, as guards."""
    variables = {
        alphabet.fields[f.name].variable
        for guard in guards
        for atom in g.atoms(guard)
        for f in g.fields(atom)
    }
    return [_within(*bound) for name in sorted(variables) for bound in alphabet.bounds(name)]


def _within(name: str, low: float | None, high: float | None) -> g.Guard:
    field = g.Field(name)
    parts: list[g.Guard] = []
    if low is not None:
        parts.append(g.Compare("<=", g.GuardConstant(low), field))
    if high is not None:
        parts.append(g.Compare("<=", field, g.GuardConstant(high)))
    return g.disjunction([g.IsNull(field), g.conjunction(parts)])


def _search_pairs(expression: WindowExpression, theory: Satisfiability) -> OverlapVerdict:
    """Checks pair by pair; the worst verdict counts."""
    verdicts = [_pair_verdict(expression, pair, theory) for pair in expression.pairs]
    worst = max(verdicts, key=lambda v: (_SEVERITY[v.open_starts], _SEVERITY[v.windows_per_position]))
    output = max((v.windows_per_position for v in verdicts), key=_SEVERITY.__getitem__)
    return OverlapVerdict(worst.open_starts, output, worst.reason, worst.witness)


def _pair_verdict(expression: WindowExpression, pair: Pair, theory: Satisfiability) -> OverlapVerdict:
    guards = list(dict.fromkeys((*pair.before.guards, *pair.window.guards)))
    verdict = _unknown(f"its {len(guards)} conditions combine in too many ways to check")
    try:
        for graph in type_graphs(guards, theory):
            # Every start that is not dropped is open, even if no stream leads to its end.
            automata = (pair.before, pair.window, _all_final(pair.window))
            before, window, prefixes = (_searchable(a, graph) for a in automata)
            patterns = [find_pattern(graph, before, e) for e in (prefixes, window)]
            verdict = _verdict(*(_evidence(expression, pair, graph, p, theory) for p in patterns))
            if verdict.open_starts is not Bound.UNKNOWN:
                break
    except TooManyCellsError:
        pass
    except OverBudgetError:
        states = pair.before.states + pair.window.states
        return _unknown(f"the automata have {states} states, too many to search")
    return verdict


def _searchable(source: LookbackAutomaton, graph: TypeGraph) -> NondeterministicAutomaton:
    """The automaton, minimised if that is cheap, since a smaller one is searched faster."""
    try:
        with StepBudget(MOST_ENTRIES, "checking the window") as budget:
            return NondeterministicAutomaton.of(
                deterministic_over(source, graph.guards, graph.letters, budget)
            )
    except OverBudgetError:
        return nondeterministic_over(source, graph.guards, graph.letters)


@dataclass(frozen=True, slots=True)
class _Evidence:
    """The evidence about one of the two numbers."""

    bound: Bound
    witness: Witness | None = None


def _evidence(
    expression: WindowExpression,
    pair: Pair,
    graph: TypeGraph,
    pattern: OverlapPattern | None,
    theory: Satisfiability,
) -> _Evidence:
    if pattern is None:
        return _Evidence(Bound.BOUNDED)
    witness = realise(expression, pair, graph, pattern, theory) if graph.exact else None
    return _Evidence(Bound.UNKNOWN) if witness is None else _Evidence(Bound.UNBOUNDED, witness)


def _verdict(opening: _Evidence, ending: _Evidence) -> OverlapVerdict:
    if ending.witness is not None and not ending.witness.output_grows:
        ending = _Evidence(Bound.UNKNOWN)
    witness = ending.witness or opening.witness
    if opening.bound is Bound.UNBOUNDED:
        reason = "every repetition of the loop adds a start"
    elif opening.bound is Bound.BOUNDED:
        reason = "no repeated part of any stream adds a start each time"
    else:
        reason = "it is not known whether any stream keeps adding starts"
    return OverlapVerdict(opening.bound, ending.bound, reason, witness)


def _unknown(reason: str) -> OverlapVerdict:
    advice = "use 'first' or a limit such as 'at most 1000 records', which is always bounded"
    return OverlapVerdict(Bound.UNKNOWN, Bound.UNKNOWN, f"{reason}; {advice}")


def _all_final(source: LookbackAutomaton) -> LookbackAutomaton:
    """The automaton of all prefixes of windows, which the processor keeps as open starts."""
    final = frozenset(range(source.states)) if source.final else frozenset[int]()
    return LookbackAutomaton(source.k, source.states, source.initial, final, source.transitions)
