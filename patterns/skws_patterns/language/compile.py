"""Compiles a pattern into an automaton: conjunctions in parallel if possible, else one tuple after another.

Both layouts give every result once. A pattern that neither can express is refused, with the reason.

In parallel, each part of a conjunction is read by separate runs. The last tuple to arrive completes one
part and gathers the others. Parts that must agree in a value that this tuple does not have, or whose tuples
could be the same, are gathered first, as a group. This is the construction for hierarchical queries (PCEA
paper, Theorem 4.1), with any expression in place of an atom. A result has one run: its letters distinguish
its parts, and the stream determines the last tuple of the result and of each group.

``chain`` reads an expression one tuple after the other, by a deterministic
automaton over letters. It works for every expression, conjunctions included,
and never gives a result twice, however ambiguous the expression is: states are
the rest of the expression, which depends on the word alone.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator
from dataclasses import dataclass
from itertools import combinations, product
from typing import Final, TypeAlias

from skws_patterns.language.automaton_states import (
    MOST_TRANSITIONS,
    End,
    LetterStep,
    NotExpressibleError,
    RunState,
    Sources,
    StateLayout,
    TooManyTransitionsError,
)
from skws_patterns.language.expression import (
    EMPTY,
    AllOf,
    Alternation,
    Expression,
    OneTuple,
    Sequence,
    Star,
    TupleLetter,
    canonical,
    conjunction,
    letters,
    nullable,
    sequence,
)
from skws_patterns.language.pattern_parser import Pattern
from skws_patterns.language.resolve import ResolvedPattern, TextMatch, resolve
from skws_patterns.pcea import PCEA, RootKey, root_key
from skws_schema.budgets import OverBudgetError
from skws_schema.errors import PatternError
from skws_schema.model import Schema

# The ways in which a first letter may gather the complete parts before it.
SourcesBefore: TypeAlias = Callable[[TupleLetter], Iterable[Sources]]


@dataclass(frozen=True, slots=True)
class Fragment:
    """The layout of a part: the states in which it is complete, and the steps into them."""

    complete: tuple[RunState, ...]
    ends: tuple[End, ...]


def chain(
    layout: StateLayout, expression: Expression, part: Hashable, sources_before: SourcesBefore
) -> Fragment:
    """Lay out an expression so that each tuple follows the one before. Raises NotExpressibleError."""
    complete: dict[RunState, None] = {}
    ends: dict[End, None] = {}
    stack: list[RunState] = []
    visited: set[RunState] = set()
    steps: list[LetterStep] = []

    def read(sources: Sources, letter: TupleLetter, remainder: Expression) -> None:
        step = layout.step(sources, letter, part, remainder)
        steps.append(step)
        state = step.target
        if nullable(remainder):
            complete[state] = None
            ends[sources, letter] = None
        if state not in visited:
            visited.add(state)
            stack.append(state)

    for letter, remainder in layout.derivatives.of(expression).items():
        for sources in sources_before(letter):
            read(sources, letter, remainder)
    while stack:
        state = stack.pop()
        for letter, remainder in layout.derivatives.of(state.remainder).items():
            read((state,), letter, remainder)
    layout.check_steps(steps)
    return Fragment(tuple(complete), tuple(ends))


class Parallel:
    """Lays out expressions with their conjunctions in parallel, each expression once.

    A part without a parallel layout is read one tuple after the other.
    """

    def __init__(self, layout: StateLayout) -> None:
        self._layout = layout
        self._fragments: dict[Expression, Fragment] = {}

    def fragment(self, expression: Expression) -> Fragment:
        """The layout of an expression. Raises NotExpressibleError with all reasons if there is none."""
        fragment = self._fragments.get(expression)
        if fragment is None:
            fragment = self._fragments[expression] = self._lay_out(expression)
        return fragment

    def _lay_out(self, expression: Expression) -> Fragment:
        if not _has_conjunction(expression):
            return self._lay_out_in_turn(expression)
        try:
            return self._lay_out_in_parallel(expression)
        except NotExpressibleError as first:
            try:
                return self._lay_out_in_turn(expression)
            except NotExpressibleError as second:
                if str(second) in str(first):
                    raise first from None
                raise NotExpressibleError(f"{first}; read one after the other, {second}") from None

    def _lay_out_in_turn(self, expression: Expression) -> Fragment:
        return chain(self._layout, expression, ("in turn", expression), lambda _: [()])

    def _lay_out_in_parallel(self, expression: Expression) -> Fragment:
        match expression:
            case AllOf(parts):
                return self._conjunction(expression, parts)
            case Sequence(parts):
                return self._sequence(expression, parts[0], sequence(*parts[1:]))
            case Alternation(options):
                return self._alternation(sorted(options, key=canonical))
            case _:
                raise NotExpressibleError("a repetition is read one tuple after the other")

    def _conjunction(self, expression: Expression, parts: tuple[Expression, ...]) -> Fragment:
        if any(letters(first) & letters(second) for first, second in combinations(parts, 2)):
            raise NotExpressibleError("parts of a conjunction have a variable in common")
        ends: dict[End, None] = {}
        for i, part in enumerate(parts):
            other_parts = parts[:i] + parts[i + 1 :]
            for sources, letter in self.fragment(part).ends:
                for group_sources in self._gather(other_parts, letter):
                    ends[sources + group_sources, letter] = None
        steps = [self._layout.step(sources, letter, expression, EMPTY) for sources, letter in ends]
        self._layout.check_steps(steps)
        return Fragment(tuple(dict.fromkeys(step.target for step in steps)), tuple(ends))

    def _sequence(self, expression: Expression, first: Expression, remainder: Expression) -> Fragment:
        if letters(first) & letters(remainder):
            raise NotExpressibleError("parts of a sequence have a variable in common")
        if not _has_conjunction(first):
            raise NotExpressibleError("the rest of a sequence is read one tuple after the other")
        self.fragment(first)
        return chain(self._layout, remainder, expression, lambda letter: self._ways(first, letter))

    def _alternation(self, options: list[Expression]) -> Fragment:
        if any(self._layout.derivatives.overlap(*pair) for pair in combinations(options, 2)):
            raise NotExpressibleError("alternatives have results in common")
        fragments = [self.fragment(option) for option in options]
        return Fragment(
            tuple(state for fragment in fragments for state in fragment.complete),
            tuple(end for fragment in fragments for end in fragment.ends),
        )

    def _ways(self, expression: Expression, letter: TupleLetter) -> list[Sources]:
        """The ways in which a letter can gather a complete expression."""
        match expression:
            case AllOf(parts):
                return self._gather(parts, letter)
            case Alternation(options) if _has_conjunction(expression):
                sorted_options = sorted(options, key=canonical)
                return [way for option in sorted_options for way in self._ways(option, letter)]
            case _:
                return [(state,) for state in self.fragment(expression).complete]

    def _gather(self, parts: tuple[Expression, ...], letter: TupleLetter) -> list[Sources]:
        """The ways in which a letter can gather several complete parts, each group of them as one run."""
        choices = []
        for group in self._groups(parts, letter):
            if len(group) == 1:
                choices.append(self._ways(group[0], letter))
            else:
                choices.append([(state,) for state in self.fragment(conjunction(*group)).complete])
        return [
            tuple(state for sources in combination for state in sources)
            for combination in self._layout.charge(product(*choices))
        ]

    def _groups(self, parts: tuple[Expression, ...], letter: TupleLetter) -> list[list[Expression]]:
        """The parts in groups; parts that a letter cannot gather separately share a group."""
        groups: list[list[Expression]] = []
        for part in parts:
            overlapping = [
                group for group in groups if any(self._share_group(part, other, letter) for other in group)
            ]
            groups = [group for group in groups if group not in overlapping]
            groups.append([*(member for group in overlapping for member in group), part])
        return groups

    def _share_group(self, first: Expression, second: Expression, letter: TupleLetter) -> bool:
        return not self._layout.carries_common(first, second, letter) or self._layout.may_coincide(
            first, second
        )


def _has_conjunction(expression: Expression) -> bool:
    match expression:
        case AllOf():
            return True
        case OneTuple():
            return False
        case Star(body):
            return _has_conjunction(body)
        case _:
            return any(map(_has_conjunction, expression.parts))


def root_of_pattern(expression: Expression, resolved: ResolvedPattern) -> RootKey | None:
    """The root of a pattern: the classes that every letter carries; None if there is none."""
    readings = {letter: resolved.readings[letter] for letter in letters(expression)}
    common_classes = frozenset.intersection(*(reading.classes for reading in readings.values()))
    candidates = [{(x.relation, r.columns[c]) for x, r in readings.items()} for c in sorted(common_classes)]
    return root_key(
        [
            (resolved.class_texts[c], columns)
            for c, columns in zip(sorted(common_classes), candidates, strict=True)
        ]
    )


_MOST_NAMES: Final = 6


def too_large(pattern: Pattern, layout: StateLayout) -> str:
    """The error message for a pattern whose automaton is too large."""
    budget = layout.budget
    if budget.spent > budget.limit:
        problem = f"{budget.stage} takes more than {budget.limit:,} steps"
    else:
        problem = f"the pattern's automaton has more than {MOST_TRANSITIONS:,} transitions"
    return f"{problem}: {_reason(pattern.expression, layout)}\n  {pattern.text}"


def _reason(expression: Expression, layout: StateLayout) -> str:
    parts = max((c.parts for c in _conjunctions(expression)), key=len, default=())
    if len(parts) < 3:
        return (
            f"it reads {len(letters(expression))} kinds of tuples repeatedly or in too many ways; "
            "name relations instead of * and texts, and leave out repetitions and alternatives"
        )
    confusable = [
        part
        for part in parts
        if any(layout.may_coincide(part, other) for other in parts if other is not part)
    ]
    if len(confusable) < 3:
        return (
            f"an AND of {len(parts)} parts ({_names(parts)}) is read in every order; "
            "fix the order by ';', or repeat less than all of it"
        )
    return (
        f"one tuple could be any of {_names(confusable)}, so all sets of these {len(confusable)} parts of "
        "an AND are distinguished; fix their order by ';', ask for a different constant in each "
        "(a.x = 1 and b.x = 2), or ask for fewer"
    )


def _conjunctions(expression: Expression) -> Iterator[AllOf]:
    match expression:
        case OneTuple():
            return
        case Star(body):
            yield from _conjunctions(body)
        case _:
            if isinstance(expression, AllOf):
                yield expression
            for part in sorted(expression.parts, key=canonical):
                yield from _conjunctions(part)


def _names(parts: tuple[Expression, ...] | list[Expression]) -> str:
    names = list(dict.fromkeys(letter.variable for part in parts for letter in sorted(letters(part))))
    return ", ".join(names[:_MOST_NAMES]) + (", ..." if len(names) > _MOST_NAMES else "")


@dataclass(frozen=True, slots=True)
class CompiledPattern:
    """A pattern and its unambiguous automaton, whose labels are the pattern's variables.

    ``root``: the values that all tuples of a result share; None if there are none.
    """

    pattern: Pattern
    pcea: PCEA
    root: RootKey | None


def compile_pattern(pattern: Pattern, schema: Schema, text_match: TextMatch) -> CompiledPattern:
    """The automaton of a pattern.

    ``text_match`` defines ``:``. Raises PatternError for conditions that do not fit the schema, and for a
    pattern without an automaton that only compares for equality.
    """
    resolved = resolve(pattern, schema, text_match)
    if nullable(pattern.expression):
        raise PatternError("the pattern matches without any tuple")
    try:
        pcea = parallel_automaton(pattern, resolved)
    except NotExpressibleError as reason:
        raise PatternError(
            f"no automaton with equality predicates can evaluate the pattern: {reason}\n  {pattern.text}"
        ) from None
    return CompiledPattern(pattern, pcea, root_of_pattern(pattern.expression, resolved))


def parallel_automaton(pattern: Pattern, resolved: ResolvedPattern) -> PCEA:
    """The automaton with conjunctions in parallel where possible. Raises NotExpressibleError."""
    layout = StateLayout(resolved)
    try:
        with layout.budget:
            return layout.pcea(Parallel(layout).fragment(pattern.expression).complete)
    except (TooManyTransitionsError, OverBudgetError):
        raise PatternError(too_large(pattern, layout)) from None
