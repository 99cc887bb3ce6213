"""From a pattern to an automaton: conjunctions in parallel if possible, else one tuple after the other.

Both layouts give every result once. A pattern that neither can express is
refused, with the reason.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from skws_patterns.automata.pcea import PCEA
from skws_patterns.language.expression import (
    Conjunction,
    Expression,
    Read,
    Star,
    canonical,
    letters,
    nullable,
)
from skws_patterns.language.parallel import Parallel
from skws_patterns.language.parse import Pattern
from skws_patterns.language.progress import (
    MOST_TRANSITIONS,
    Layout,
    NotExpressibleError,
    TooManyTransitionsError,
)
from skws_patterns.language.resolve import Resolved, TextMatch, resolve
from skws_patterns.root import RootKey, root_key
from skws_schema.budget import OverBudgetError
from skws_schema.errors import PatternError
from skws_schema.model import Schema


def root_of_pattern(expression: Expression, resolved: Resolved) -> RootKey | None:
    """The root of a pattern: the classes that every letter carries; None if there is none."""
    readings = {letter: resolved.readings[letter] for letter in letters(expression)}
    everywhere = frozenset.intersection(*(reading.classes for reading in readings.values()))
    found = [{(x.relation, r.columns[c]) for x, r in readings.items()} for c in sorted(everywhere)]
    return root_key([(resolved.class_texts[c], at) for c, at in zip(sorted(everywhere), found, strict=True)])


_NAMED: Final = 6


def too_large(pattern: Pattern, layout: Layout) -> str:
    """The error message for a pattern whose automaton is too large."""
    budget = layout.budget
    if budget.spent > budget.limit:
        much = f"{budget.stage} takes more than {budget.limit:,} steps"
    else:
        much = f"the pattern's automaton has more than {MOST_TRANSITIONS:,} transitions"
    return f"{much}: {_reason(pattern.expression, layout)}\n  {pattern.text}"


def _reason(expression: Expression, layout: Layout) -> str:
    parts = max((c.parts for c in _conjunctions(expression)), key=len, default=())
    if len(parts) < 3:
        return (
            f"it reads {len(letters(expression))} kinds of tuples, again and again or in too many ways; "
            "name relations instead of * and texts, and leave out repetitions and alternatives"
        )
    alike = [
        part
        for part in parts
        if any(layout.may_coincide(part, other) for other in parts if other is not part)
    ]
    if len(alike) < 3:
        return (
            f"an AND of {len(parts)} parts ({_named(parts)}) is read in every order; "
            "fix the order by ';', or repeat less than all of it"
        )
    return (
        f"one tuple could be any of {_named(alike)}, so all sets of these {len(alike)} parts of an AND are "
        "distinguished; fix their order by ';', ask for a different constant in each (a.x = 1 and b.x = 2), "
        "or ask for fewer"
    )


def _conjunctions(expression: Expression) -> Iterator[Conjunction]:
    match expression:
        case Read():
            return
        case Star(body):
            yield from _conjunctions(body)
        case _:
            if isinstance(expression, Conjunction):
                yield expression
            for part in sorted(expression.parts, key=canonical):
                yield from _conjunctions(part)


def _named(parts: tuple[Expression, ...] | list[Expression]) -> str:
    names = list(dict.fromkeys(letter.variable for part in parts for letter in sorted(letters(part))))
    return ", ".join(names[:_NAMED]) + (", ..." if len(names) > _NAMED else "")


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

    ``text_match`` defines ``~``. Raises PatternError for conditions that do not
    fit the schema, and for a pattern that no automaton with equality predicates
    is found for.
    """
    resolved = resolve(pattern, schema, text_match)
    if nullable(pattern.expression):
        raise PatternError("the pattern is satisfied by no tuple at all")
    try:
        pcea = parallel_automaton(pattern, resolved)
    except NotExpressibleError as reason:
        raise PatternError(
            f"no automaton with equality predicates is found for the pattern: {reason}\n  {pattern.text}"
        ) from None
    return CompiledPattern(pattern, pcea, root_of_pattern(pattern.expression, resolved))


def parallel_automaton(pattern: Pattern, resolved: Resolved) -> PCEA:
    """The automaton with conjunctions in parallel as far as possible. Raises NotExpressibleError."""
    layout = Layout(resolved)
    try:
        with layout.budget:
            return layout.pcea(Parallel(layout).fragment(pattern.expression).complete)
    except (TooManyTransitionsError, OverBudgetError):
        raise PatternError(too_large(pattern, layout)) from None
