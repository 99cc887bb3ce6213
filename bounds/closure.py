"""The transitive closure P+ of a selection: what follows about the order of its terms.

Terms that are equal form a class; classes are numbered, and ``above[i]`` has a
bit for every class that is strictly greater (the paper, preprocessing step 4).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from itertools import pairwise

from bounds.query import Atom, Attr, Constant, Extreme, Op, Term


class Closure:
    """P+ of atoms with ``<``, ``=`` and ``>`` only, and of ``also``, terms that no atom need hold.

    ``anchors``: aliases whose attributes have finitely many values (static
    relations, finite streams). ``consistent`` is False if nothing can
    satisfy the atoms, over the integers where all is discrete.
    """

    def __init__(self, atoms: Iterable[Atom], also: Iterable[Term] = (), anchors: Iterable[str] = ()) -> None:
        self.atoms = tuple(atoms)
        self.anchors = frozenset(anchors)
        terms = dict.fromkeys([*(t for a in self.atoms for t in (a.left, a.right)), *also])
        self.class_of = _classes(terms, self.atoms)
        self.members: list[list[Term]] = [[] for _ in range(max(self.class_of.values(), default=-1) + 1)]
        for term, number in self.class_of.items():
            self.members[number].append(term)
        self.above = self._above()
        self.below = self._below()
        self._anchored = sum(1 << i for i, m in enumerate(self.members) if any(map(self._anchor, m)))
        self._discrete = [all(t.domain.discrete for t in members) for members in self.members]
        self.consistent = not any(self.above[i] >> i & 1 for i in range(len(self.above))) and self._fits()

    def _steps(self) -> Iterator[tuple[int, int]]:
        """Each (smaller, greater) class that an atom or the order of constants tells directly."""
        for atom in self.atoms:
            left, right = self.class_of[atom.left], self.class_of[atom.right]
            if atom.op is Op.LESS:
                yield left, right
            elif atom.op is Op.GREATER:
                yield right, left
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

    def _above(self) -> list[int]:
        above = [0] * len(self.members)
        for low, high in self._steps():
            above[low] |= 1 << high
        for middle, bit in enumerate(1 << number for number in range(len(above))):
            beyond = above[middle]
            if not beyond:
                continue
            for low, mask in enumerate(above):
                if mask & bit:
                    above[low] = mask | beyond
        return above

    def _below(self) -> list[int]:
        below = [0] * len(self.above)
        for low, mask in enumerate(self.above):
            rest = mask
            while rest:
                high = rest & -rest
                below[high.bit_length() - 1] |= 1 << low
                rest ^= high
        return below

    def _fits(self) -> bool:
        """True if between constants there is room for all integers that have to be different."""
        least: dict[int, int] = {}
        for number in sorted(range(len(self.members)), key=lambda i: -self.above[i].bit_count()):
            if not self._discrete[number]:
                continue
            below = [least[low] + 1 for low in least if self.above[low] >> number & 1]
            fixed = [t.value for t in self.members[number] if isinstance(t, Constant)]
            if fixed and isinstance(fixed[0], int):
                if max(below, default=fixed[0]) > fixed[0]:
                    return False
                least[number] = fixed[0]
            elif below:
                least[number] = max(below)
        return True

    def less(self, low: Term, high: Term) -> bool:
        """True if ``low < high`` is in P+."""
        return bool(self.above[self.class_of[low]] >> self.class_of[high] & 1)

    def decided(self, one: Term, other: Term) -> bool:
        """True if P+ holds one of <, = and > between the two (Definition 6)."""
        return self.class_of[one] == self.class_of[other] or self.less(one, other) or self.less(other, one)

    def between(self, low: int, high: int) -> bool:
        """True if some class stands strictly between two: ``low < high`` is redundant (Definition 8, 1)."""
        return bool(self.above[low] & self.below[high])

    def anchored(self, number: int) -> bool:
        """True if a class equals a constant or an attribute with finitely many values."""
        return bool(self._anchored >> number & 1)

    def _anchor(self, term: Term) -> bool:
        return not isinstance(term, Attr) or term.stream in self.anchors

    def bounded(self, number: int) -> bool:
        """Whether the values of a class are finitely many (Definition 5).

        Between two bounds there are finitely many integers, but not finitely
        many fractions or texts: those must be equal to something bounded.
        """
        if self.anchored(number):
            return True
        below, above = self.below[number] & self._anchored, self.above[number] & self._anchored
        return self._discrete[number] and bool(below) and bool(above)

    def because(self, low: Term, high: Term) -> tuple[Atom, ...]:
        """The atoms of a shortest derivation of ``low < high`` or ``low = high``, without added cases."""
        steps: dict[Term, list[tuple[Term, bool, Atom]]] = defaultdict(list)
        for atom in self.atoms:
            ends = (atom.right, atom.left) if atom.op is Op.GREATER else (atom.left, atom.right)
            steps[ends[0]].append((ends[1], atom.op is not Op.EQUAL, atom))
            if atom.op is Op.EQUAL:
                steps[ends[1]].append((ends[0], False, atom))
        strict = self.class_of[low] != self.class_of[high]
        reached: dict[tuple[Term, bool], tuple[Atom, ...]] = {(low, False): ()}
        queue = [(low, False)]
        for state in queue:
            if state == (high, strict):
                break
            for term, sharp, atom in steps[state[0]]:
                after = (term, state[1] or sharp)
                if after not in reached:
                    reached[after] = (*reached[state], atom)
                    queue.append(after)
        return tuple(a for a in reached.get((high, strict), ()) if not a.case)


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
