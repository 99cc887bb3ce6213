"""Why the automaton of a pattern is too large, and what would make it smaller."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from patterns.language.expression import Conjunction, Expression, Read, Star, canonical, letters
from patterns.language.progress import MOST_TRANSITIONS, Layout
from patterns.language.syntax import Pattern

_NAMED: Final = 6


def too_large(pattern: Pattern, layout: Layout) -> str:
    """The error about a pattern that was given up."""
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
        "told apart; fix their order by ';', ask for a different constant in each (a.x = 1 and b.x = 2), "
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
