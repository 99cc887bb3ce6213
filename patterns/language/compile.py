"""From a pattern to an automaton: conjunctions in parallel where that can be, else one tuple after the other.

Both layouts give every result once. A pattern that neither can express is
refused, with the reason.
"""

from __future__ import annotations

from dataclasses import dataclass

from patterns.automata.pcea import PCEA
from patterns.language.expression import nullable
from patterns.language.parallel import Parallel
from patterns.language.progress import Layout, NotExpressibleError, TooManyTransitionsError
from patterns.language.refusal import too_large
from patterns.language.resolve import Resolved, TextMatch, resolve
from patterns.language.root import root_of_pattern
from patterns.language.syntax import Pattern
from patterns.root import RootKey
from schema.budget import OverBudgetError
from schema.errors import PatternError
from schema.model import Schema


@dataclass(frozen=True, slots=True)
class CompiledPattern:
    """A pattern and its unambiguous automaton, whose labels are the pattern's variables.

    ``root``: what the tuples of a result agree on, None if nothing in all of them.
    """

    pattern: Pattern
    pcea: PCEA
    root: RootKey | None


def compile_pattern(pattern: Pattern, schema: Schema, text_match: TextMatch) -> CompiledPattern:
    """The automaton of a pattern.

    ``text_match`` gives ``~`` its meaning. Raises PatternError for conditions
    that the schema does not bear out, and for a pattern for which no automaton
    with equality predicates is found.
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
    """Conjunctions in parallel as far as that can be. Raises NotExpressibleError."""
    layout = Layout(resolved)
    try:
        with layout.budget:
            return layout.pcea(Parallel(layout).fragment(pattern.expression).complete)
    except (TooManyTransitionsError, OverBudgetError):
        raise PatternError(too_large(pattern, layout)) from None
