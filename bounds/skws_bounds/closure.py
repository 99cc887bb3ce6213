"""The transitive closure P+ of a selection: the order of terms that it implies.

Equal terms form a class; classes are numbered, and ``above[i]`` has a bit for every class that is strictly
greater (the paper, preprocessing step 4).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from copy import copy
from itertools import pairwise
from math import ceil, floor

from skws_bounds.normal_form import Atom, Attr, Constant, Extreme, Term
from skws_schema.model import Op


class Closure:
    """P+ of atoms with ``<``, ``=`` and ``>``, and of ``extra_terms``, terms that may be in no atom.

    ``anchors``: aliases whose attributes have a finite number of values (static relations, finite streams).
    ``consistent``: False if nothing can satisfy the atoms, over the integers if all terms are discrete.
    """

    def __init__(
        self, atoms: Iterable[Atom], extra_terms: Iterable[Term] = (), anchors: Iterable[str] = ()
    ) -> None:
        self.atoms = tuple(atoms)
        self.anchors = frozenset(anchors)
        terms = dict.fromkeys([*(t for a in self.atoms for t in (a.left, a.right)), *extra_terms])
        self.class_of = _classes(terms, self.atoms)
        self.members: list[list[Term]] = [[] for _ in range(max(self.class_of.values(), default=-1) + 1)]
        for term, number in self.class_of.items():
            self.members[number].append(term)
        self._anchored = _mask(i for i, m in enumerate(self.members) if any(map(self._is_anchor, m)))
        # A term that equals an integer is an integer, whatever its type.
        self._discrete = _mask(i for i, m in enumerate(self.members) if any(t.domain.discrete for t in m))
        constants = [t for t in terms if isinstance(t, Constant)]
        self._constants = {self.class_of[t]: t.value for t in constants if isinstance(t.value, int | float)}
        self.above = [0] * len(self.members)
        self.below = [0] * len(self.members)
        self._order(self._steps())

    def with_atoms(self, atoms: tuple[Atom, ...]) -> Closure:
        """P+ with more atoms between its terms."""
        if any(atom.op is Op.EQUAL for atom in atoms):
            return Closure((*self.atoms, *atoms), self.class_of, self.anchors)
        closure = copy(self)
        closure.atoms = (*self.atoms, *atoms)
        closure.above, closure.below = self.above.copy(), self.below.copy()
        closure._order(self._ordered_classes(atoms))  # noqa: SLF001 - of the same class
        return closure

    def _ordered_classes(self, atoms: Iterable[Atom]) -> Iterator[tuple[int, int]]:
        """The (smaller, greater) classes of each atom."""
        for atom in atoms:
            left, right = self.class_of[atom.left], self.class_of[atom.right]
            if atom.op is Op.LESS:
                yield left, right
            elif atom.op is Op.GREATER:
                yield right, left

    def _steps(self) -> Iterator[tuple[int, int]]:
        """The (smaller, greater) classes of atoms, constants and extremes."""
        yield from self._ordered_classes(self.atoms)
        families: dict[object, list[Constant]] = defaultdict(list)
        for term in self.class_of:
            if isinstance(term, Constant):
                families[term.domain.family].append(term)
        for constants in families.values():
            for low, high in pairwise(sorted(constants, key=lambda c: c.value)):  # type: ignore[arg-type, return-value]
                yield self.class_of[low], self.class_of[high]
        for term in self.class_of:
            if isinstance(term, Extreme) and term.attr in self.class_of:
                ends = self.class_of[term], self.class_of[term.attr]
                yield ends if term.low else ends[::-1]

    def _order(self, steps: Iterable[tuple[int, int]]) -> None:
        """Add (smaller, greater) classes, and the order that they imply."""
        above, below = self.above, self.below
        for low, high in steps:
            if above[low] >> high & 1:
                continue
            lows, highs = below[low] | 1 << low, above[high] | 1 << high
            for number in bits(lows):
                above[number] |= highs
            for number in bits(highs):
                below[number] |= lows
        self.consistent = not any(mask >> i & 1 for i, mask in enumerate(above)) and self._has_room()

    def _has_room(self) -> bool:
        """True if there is room between constants for all integers that must differ."""
        floors: dict[int, int] = {}  # for a fraction, the integer below it
        discrete = self._discrete | _mask(self._constants)
        for number in sorted(bits(discrete), key=lambda i: self.below[i].bit_count()):
            lower_bound = max(
                [floors[low] + 1 for low in bits(self.below[number] & discrete) if low in floors],
                default=None,
            )
            value = self._constants.get(number, lower_bound)
            if value is None:
                continue
            if (lower_bound is not None and lower_bound > ceil(value)) or (
                self.is_discrete(number) and value != floor(value)
            ):
                return False
            floors[number] = floor(value)
        return True

    def less(self, low: Term, high: Term) -> bool:
        """True if ``low < high`` is in P+."""
        return bool(self.above[self.class_of[low]] >> self.class_of[high] & 1)

    def is_ordered(self, left: Term, right: Term) -> bool:
        """True if P+ holds one of <, = and > between the two (Definition 6)."""
        return self.class_of[left] == self.class_of[right] or self.less(left, right) or self.less(right, left)

    def has_between(self, low: int, high: int) -> bool:
        """True if a class is strictly between two, so that ``low < high`` is redundant (Definition 8, 1)."""
        return bool(self.above[low] & self.below[high])

    def is_anchored(self, number: int) -> bool:
        """True if a class equals a constant or an attribute with a finite number of values."""
        return bool(self._anchored >> number & 1)

    def _is_anchor(self, term: Term) -> bool:
        return not isinstance(term, Attr) or term.stream in self.anchors

    def is_discrete(self, number: int) -> bool:
        """True if the values of a class are discrete: at least one of its terms is an integer or a time."""
        return bool(self._discrete >> number & 1)

    def is_bounded(self, number: int) -> bool:
        """True if the number of values of a class is finite (Definition 5).

        Between two bounds the number of integers is finite, but not that of fractions or texts, which must
        equal something bounded.
        """
        if self.is_anchored(number):
            return True
        below, above = self.below[number] & self._anchored, self.above[number] & self._anchored
        return bool(self.is_discrete(number) and below and above)

    def derivation(self, low: Term, high: Term) -> tuple[Atom, ...]:
        """The atoms of a shortest derivation of ``low < high`` or ``low = high``, without added cases."""
        steps: dict[Term, list[tuple[Term, bool, Atom]]] = defaultdict(list)
        for atom in self.atoms:
            ends = (atom.right, atom.left) if atom.op is Op.GREATER else (atom.left, atom.right)
            steps[ends[0]].append((ends[1], atom.op is not Op.EQUAL, atom))
            if atom.op is Op.EQUAL:
                steps[ends[1]].append((ends[0], False, atom))
        strict = self.class_of[low] != self.class_of[high]
        derivations: dict[tuple[Term, bool], tuple[Atom, ...]] = {(low, False): ()}
        queue = [(low, False)]
        for state in queue:
            if state == (high, strict):
                break
            for term, is_less, atom in steps[state[0]]:
                next_state = (term, state[1] or is_less)
                if next_state not in derivations:
                    derivations[next_state] = (*derivations[state], atom)
                    queue.append(next_state)
        return tuple(a for a in derivations.get((high, strict), ()) if not a.case)


def _classes(terms: Iterable[Term], atoms: Iterable[Atom]) -> dict[Term, int]:
    """The number of each term's class."""
    leader = {term: term for term in terms}

    def find(term: Term) -> Term:
        while leader[term] != term:
            term = leader[term]
        return term

    for atom in atoms:
        if atom.op is Op.EQUAL:
            leader[find(atom.left)] = find(atom.right)
    numbers: dict[Term, int] = {}
    return {term: numbers.setdefault(find(term), len(numbers)) for term in leader}


def bits(mask: int) -> Iterator[int]:
    """The numbers of the bits that are set, from the least."""
    while mask:
        lowest = mask & -mask
        yield lowest.bit_length() - 1
        mask ^= lowest


def _mask(numbers: Iterable[int]) -> int:
    return sum(1 << number for number in numbers)
