"""States of the automata of patterns, and what a tuple may gather from them.

A PCEA compares a tuple with the last tuples of the runs that it gathers, and
with nothing before. So all tuples of a class must lie together in the run
tree: a value that is to be compared must be carried by every tuple between.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations, product
from typing import Final, NamedTuple, TypeAlias, TypeVar

from patterns.automata.pcea import PCEA, Source, Transition
from patterns.automata.predicates import Columns, Equality
from patterns.language.alphabet import Alphabet, first_bit
from patterns.language.derivatives import Derivatives
from patterns.language.expression import Expression, Letter, Read
from patterns.language.resolve import Reading, Resolved
from schema.budget import Budget

MOST_TRANSITIONS: Final = 20_000
MOST_STEPS: Final = 1_000_000
"""Steps of one pattern: some seconds."""


class NotExpressibleError(Exception):
    """An automaton laid out so cannot compare what the pattern does; another layout may."""


class TooManyTransitionsError(Exception):
    """The automaton grows larger than anybody would wait for."""


@dataclass(frozen=True, slots=True)
class Progress:
    """A state: what is left of a part of the pattern, and of which variant the last tuple is.

    ``part`` tells apart the states of parts that are read on their own. Last
    tuples of different relations share a state, since the tuple's relation
    tells them apart; of one relation those do that carry the same columns.
    """

    part: Hashable
    left: Expression
    variant: int


Sources: TypeAlias = tuple[Progress, ...]
Way = TypeVar("Way")
# A last step: what it gathers, and the letter it reads.
End: TypeAlias = tuple[Sources, Letter]


class Step(NamedTuple):
    """A letter is read, and gathers runs from the sources."""

    sources: Sources
    letter: Letter
    target: Progress


@dataclass(slots=True)
class Behind:
    """Runs into a state that end with one relation: a last letter, and all classes and letters, as bits."""

    last: Letter
    classes: int = 0
    letters: int = 0

    def add(self, classes: int, letters: int) -> bool:
        """Whether any of it is new."""
        known = self.classes, self.letters
        self.classes |= classes
        self.letters |= letters
        return (self.classes, self.letters) != known


class Layout:
    """The steps made so far, each once; checks what every one of them compares."""

    def __init__(self, resolved: Resolved) -> None:
        self.resolved = resolved
        self.budget = Budget(MOST_STEPS, "compiling the pattern")
        self.derivatives = Derivatives(self.budget)
        self._variants = _variants(resolved.readings)
        self._steps: dict[Step, None] = {}
        self._behind: defaultdict[Progress, dict[int, Behind]] = defaultdict(dict)
        self._alphabet = Alphabet(resolved.readings)

    def reading(self, letter: Letter) -> Reading:
        return self.resolved.readings[letter]

    def step(self, sources: Sources, letter: Letter, part: Hashable, left: Expression) -> Step:
        """The step by which ``letter`` gathers runs from ``sources``. Raises TooManyTransitionsError."""
        self.budget.spend()
        step = Step(sources, letter, Progress(part, left, self._variants[letter]))
        self._steps[step] = None
        if len(self._steps) > MOST_TRANSITIONS:
            raise TooManyTransitionsError
        return step

    def counted(self, ways: Iterable[Way]) -> Iterator[Way]:
        """The same; each costs a step."""
        for way in ways:
            self.budget.spend()
            yield way

    def settle(self, steps: Sequence[Step]) -> None:
        """Check all steps of a part, once it is laid out. Raises NotExpressibleError."""
        following: defaultdict[Progress, list[Step]] = defaultdict(list)
        for step in steps:
            for source in step.sources:
                following[source].append(step)
        pending, queued = deque(steps), set(steps)
        while pending:
            self.budget.spend()
            step = pending.popleft()
            queued.remove(step)
            if self._extend(step):
                again = [later for later in following[step.target] if later not in queued]
                pending += again
                queued.update(again)
        for step in steps:
            self._check(step)

    def pcea(self, final: Iterable[Progress]) -> PCEA:
        """The automaton of all steps. Raises TooManyTransitionsError."""
        transitions: dict[Transition, None] = {}
        for step in self._steps:
            transitions.update(dict.fromkeys(self._transitions(step)))
            if len(transitions) > MOST_TRANSITIONS:
                raise TooManyTransitionsError
        return PCEA(tuple(transitions), frozenset(final)).trimmed()

    def may_coincide(self, one: Expression, other: Expression) -> bool:
        """True if one tuple could be read as a letter of each."""
        return self._alphabet.may_coincide(self._alphabet.letters(one), self._alphabet.letters(other))

    def shared(self, one: Expression, other: Expression, letter: Letter) -> bool:
        """True if ``letter`` carries all classes that two expressions have in common."""
        classes = self._alphabet.classes
        return not classes(one) & classes(other) & ~classes(Read(letter))

    def _transitions(self, step: Step) -> Iterator[Transition]:
        """One for each way in which the sources' last tuples are compared with the letter's."""
        unary = self.reading(step.letter).unary
        labels = frozenset({step.letter.variable})
        ways = [self._sources(state, step.letter) for state in step.sources]
        for sources in product(*ways):
            yield Transition(sources, unary, labels, step.target)

    def _sources(self, source: Progress, letter: Letter) -> list[Source]:
        """A source for each set of columns of the letter's tuple that those of last tuples are to equal."""
        later = self.reading(letter)
        lefts: defaultdict[Columns, list[tuple[int, Columns]]] = defaultdict(list)
        for relation, behind in sorted(self._behind[source].items()):
            earlier = self.reading(behind.last)
            shared = sorted(earlier.classes & later.classes)
            left = relation, tuple(earlier.columns[c] for c in shared)
            lefts[tuple(later.columns[c] for c in shared)].append(left)
        return [Source(source, Equality(tuple(left), right)) for right, left in lefts.items()]

    def _extend(self, step: Step) -> bool:
        """Enter what lies behind a step's target by way of it; whether any of it is new."""
        letter = Read(step.letter)
        classes, letters = self._alphabet.classes(letter), self._alphabet.letters(letter)
        for source in step.sources:
            for behind in self._behind[source].values():
                classes |= behind.classes
                letters |= behind.letters
        known = self._behind[step.target].setdefault(step.letter.relation, Behind(step.letter))
        return known.add(classes, letters)

    def _check(self, step: Step) -> None:
        alphabet, letter = self._alphabet, step.letter
        mine = alphabet.classes(Read(letter))
        gathered = [list(self._behind[source].values()) for source in step.sources]
        for behind in (b for each in gathered for b in each):
            lost = behind.classes & mine & ~alphabet.classes(Read(behind.last))
            if lost:
                raise self._lost(lost, behind.last, letter)
        for first, second in combinations(gathered, 2):
            for one, other in product(first, second):
                apart = one.classes & other.classes & ~mine
                if apart:
                    raise self._lost(apart, letter, None)
                if alphabet.may_coincide(one.letters, other.letters):
                    names = [", ".join(alphabet.variables(b.letters)) for b in (one, other)]
                    raise NotExpressibleError(
                        f"nothing tells the tuples of {names[0]} from those of {names[1]}"
                    )

    def _lost(self, classes: int, between: Letter, later: Letter | None) -> NotExpressibleError:
        text = self.resolved.class_texts[first_bit(classes)]
        upto = f" when {later.variable} comes" if later else " while others wait for it"
        return NotExpressibleError(
            f"{text} cannot be compared{upto}: {between.variable} can come between, "
            "and does not carry the value"
        )


def _variants(readings: dict[Letter, Reading]) -> dict[Letter, int]:
    """Numbers for letters, of one relation the same for those that carry all classes in the same columns."""
    known: defaultdict[int, dict[frozenset[tuple[int, int]], int]] = defaultdict(dict)
    found = {}
    for letter in sorted(readings):
        variants = known[letter.relation]
        found[letter] = variants.setdefault(frozenset(readings[letter].columns.items()), len(variants))
    return found
