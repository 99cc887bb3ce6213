"""States of the automata of patterns, and what a tuple may gather from them.

A PCEA compares a tuple with the last tuples of the runs that it gathers, and
with nothing before. So all tuples of a class must lie together in the run
tree: a value that is to be compared must be carried by every tuple between.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from dataclasses import dataclass
from itertools import combinations
from typing import Final, TypeAlias

from patterns.automata.pcea import PCEA, Source, Transition
from patterns.automata.predicates import Equality
from patterns.language.expression import Expression, Letter
from patterns.language.resolve import Reading, Resolved

MOST_TRANSITIONS: Final = 20_000


class NotExpressibleError(Exception):
    """An automaton laid out so cannot compare what the pattern does; another layout may."""


@dataclass(frozen=True, slots=True)
class Progress:
    """A state: what is left of a part of the pattern, the last tuple, and the classes and letters behind.

    ``part`` tells apart the states of parts that are read on their own.
    """

    part: Hashable
    left: Expression
    last: Letter
    classes: frozenset[int]
    letters: frozenset[Letter]


Sources: TypeAlias = tuple[Progress, ...]
# A last step: what it gathers, and the letter it reads.
End: TypeAlias = tuple[Sources, Letter]


class Layout:
    """The transitions made so far, each once; checks what every one of them compares."""

    def __init__(self, resolved: Resolved) -> None:
        self.resolved = resolved
        self._transitions: dict[Transition, None] = {}

    def reading(self, letter: Letter) -> Reading:
        return self.resolved.readings[letter]

    def step(self, sources: Sources, letter: Letter, part: Hashable, left: Expression) -> Progress:
        """The state after ``letter`` has gathered runs from ``sources``; its transition is kept.

        Raises NotExpressibleError.
        """
        self._check(sources, letter)
        target = Progress(
            part,
            left,
            letter,
            self.reading(letter).classes.union(*(s.classes for s in sources)),
            frozenset({letter}).union(*(s.letters for s in sources)),
        )
        made = tuple(Source(s, self._equality(s, letter)) for s in sources)
        unary = self.reading(letter).unary
        self._transitions[Transition(made, unary, frozenset({letter.variable}), target)] = None
        if len(self._transitions) > MOST_TRANSITIONS:
            raise NotExpressibleError(f"its automaton has more than {MOST_TRANSITIONS:,} transitions")
        return target

    def pcea(self, final: Iterable[Progress]) -> PCEA:
        return PCEA(tuple(self._transitions), frozenset(final)).trimmed()

    def may_coincide(self, first: Iterable[Letter], second: Iterable[Letter]) -> bool:
        """True if one tuple could be read as a letter of each."""
        others = [self.reading(letter).unary for letter in second]
        return any(not self.reading(letter).unary.excludes(other) for letter in first for other in others)

    def _equality(self, source: Progress, letter: Letter) -> Equality:
        earlier, later = self.reading(source.last), self.reading(letter)
        shared = sorted(earlier.classes & later.classes)
        left = (source.last.relation, tuple(earlier.columns[c] for c in shared))
        return Equality((left,), tuple(later.columns[c] for c in shared))

    def _check(self, sources: Sources, letter: Letter) -> None:
        mine = self.reading(letter).classes
        for source in sources:
            lost = (source.classes & mine) - self.reading(source.last).classes
            if lost:
                raise self._lost(lost, source.last, letter)
        for one, other in combinations(sources, 2):
            apart = (one.classes & other.classes) - mine
            if apart:
                raise self._lost(apart, letter, None)
            if self.may_coincide(one.letters, other.letters):
                raise NotExpressibleError(
                    f"nothing tells the tuples of {_named(one.letters)} from those of {_named(other.letters)}"
                )

    def _lost(self, classes: frozenset[int], between: Letter, later: Letter | None) -> NotExpressibleError:
        text = self.resolved.class_texts[min(classes)]
        upto = f" when {later.variable} comes" if later else " while others wait for it"
        return NotExpressibleError(
            f"{text} cannot be compared{upto}: {between.variable} can come between, "
            "and does not carry the value"
        )


def _named(letters: frozenset[Letter]) -> str:
    return ", ".join(sorted({letter.variable for letter in letters}))
