"""What is left of an expression after a letter (Brzozowski), worked out once for each expression."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from operator import itemgetter

from patterns.language.expression import (
    EMPTY,
    Alternation,
    Conjunction,
    Expression,
    Letter,
    Read,
    Sequence,
    Star,
    alternation,
    conjunction,
    nullable,
    sequence,
)
from schema.budget import Budget


class Derivatives:
    """The derivatives of the expressions of one pattern; each part of one that is built costs a step."""

    def __init__(self, budget: Budget) -> None:
        self._budget = budget
        self._known: dict[Expression, dict[Letter, Expression]] = {}

    def of(self, expression: Expression) -> dict[Letter, Expression]:
        """The letters that can come first, in order, each with what is left after it."""
        known = self._known.get(expression)
        if known is None:
            found: defaultdict[Letter, list[Expression]] = defaultdict(list)
            for letter, left in self._ways(expression):
                found[letter].append(left)
            ordered = sorted(found.items(), key=itemgetter(0))
            known = self._known[expression] = {letter: alternation(*ways) for letter, ways in ordered}
        return known

    def in_common(self, first: Expression, second: Expression) -> bool:
        """True if some word satisfies both."""
        waiting, seen = [(first, second)], {(first, second)}
        for one, other in waiting:
            self._budget.spend()
            if nullable(one) and nullable(other):
                return True
            left, right = self.of(one), self.of(other)
            following = dict.fromkeys((left[letter], right[letter]) for letter in left if letter in right)
            waiting += [pair for pair in following if pair not in seen]
            seen |= following.keys()
        return False

    def _ways(self, expression: Expression) -> Iterator[tuple[Letter, Expression]]:
        match expression:
            case Read(letter):
                self._budget.spend()
                yield letter, EMPTY
            case Star(body):
                for letter, left in self._parts(body, 1):
                    yield letter, sequence(left, expression)
            case Alternation(parts):
                for part in parts:
                    yield from self._parts(part, 1)
            case Conjunction(parts):
                for i, part in enumerate(parts):
                    for letter, left in self._parts(part, len(parts)):
                        yield letter, conjunction(*parts[:i], left, *parts[i + 1 :])
            case Sequence(parts):
                for i, part in enumerate(parts):
                    for letter, left in self._parts(part, len(parts) - i):
                        yield letter, sequence(left, *parts[i + 1 :])
                    if not nullable(part):
                        break

    def _parts(self, part: Expression, size: int) -> Iterator[tuple[Letter, Expression]]:
        """The derivatives of a part of an expression that has ``size`` of them."""
        for letter, left in self.of(part).items():
            self._budget.spend(size)
            yield letter, left
