"""States of the automata of patterns, and the runs that a tuple may gather from them.

A PCEA compares a tuple only with the last tuples of the runs that it gathers. So all tuples of a class must
be connected in the run tree: every tuple between two compared ones must have the value.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, product
from typing import Final, NamedTuple, TypeAlias, TypeVar

from skws_patterns.language.expression import Derivatives, Expression, OneTuple, TupleLetter, letters
from skws_patterns.language.resolve import LetterTest, ResolvedPattern
from skws_patterns.pcea import PCEA, Columns, Equality, RunSource, Transition
from skws_schema.budgets import StepBudget


class LetterNumbers:
    """Numbers letters and classes; sets of them are bit masks."""

    def __init__(self, readings: Mapping[TupleLetter, LetterTest]) -> None:
        self._order = sorted(readings)
        self._readings = readings
        self._bit = {letter: 1 << number for number, letter in enumerate(self._order)}
        self._letters: dict[Expression, int] = {}
        self._classes: dict[Expression, int] = {}
        self._overlaps = _overlaps(self._order, readings)
        self._coincide: dict[tuple[int, int], bool] = {}

    def letters(self, expression: Expression) -> int:
        if expression not in self._letters:
            self._letters[expression] = sum(self._bit[letter] for letter in letters(expression))
        return self._letters[expression]

    def classes(self, expression: Expression) -> int:
        if expression not in self._classes:
            class_sets = (self._readings[letter].classes for letter in letters(expression))
            self._classes[expression] = sum(1 << number for number in frozenset[int]().union(*class_sets))
        return self._classes[expression]

    def may_coincide(self, first: int, second: int) -> bool:
        """True if one tuple could be read as a letter of each of two sets."""
        pair = first, second
        if pair not in self._coincide:
            self._coincide[pair] = any(self._overlaps[number] & second for number in _bits(first))
        return self._coincide[pair]

    def variables(self, mask: int) -> list[str]:
        return sorted({self._order[number].variable for number in _bits(mask)})


def _overlaps(order: Iterable[TupleLetter], readings: Mapping[TupleLetter, LetterTest]) -> list[int]:
    """For each letter, the letters that could read the same tuple."""
    by_relation: defaultdict[int, list[tuple[int, TupleLetter]]] = defaultdict(list)
    for number, letter in enumerate(order):
        by_relation[letter.relation].append((number, letter))
    return [
        sum(
            1 << number
            for number, other in by_relation[letter.relation]
            if not readings[letter].unary.excludes(readings[other].unary)
        )
        for letter in order
    ]


def first_bit(mask: int) -> int:
    """The number of the lowest bit."""
    return (mask & -mask).bit_length() - 1


def _bits(mask: int) -> Iterator[int]:
    while mask:
        yield first_bit(mask)
        mask &= mask - 1


MOST_TRANSITIONS: Final = 20_000
MOST_STEPS: Final = 1_000_000
"""Steps of compiling one pattern: some seconds."""


class NotExpressibleError(Exception):
    """A layout cannot make the comparisons of the pattern; another layout may do so."""


class TooManyTransitionsError(Exception):
    """The automaton takes too long to compile."""


@dataclass(frozen=True, slots=True)
class RunState:
    """A state: the rest of a part of the pattern, and the variant of the last tuple.

    ``part`` distinguishes the states of parts that are read separately. Last tuples of different relations
    share a state, since the tuple's relation distinguishes them; last tuples of one relation share it if
    their classes have the same columns.
    """

    part: Hashable
    remainder: Expression
    variant: int


Sources: TypeAlias = tuple[RunState, ...]
Way = TypeVar("Way")
# A last step: the states it gathers, and the letter it reads.
End: TypeAlias = tuple[Sources, TupleLetter]


class LetterStep(NamedTuple):
    """A letter that is read and gathers runs from the sources."""

    sources: Sources
    letter: TupleLetter
    target: RunState


@dataclass(slots=True)
class IncomingRuns:
    """Runs into a state, with last tuples of one relation: a last letter; classes and letters, as bits."""

    last: TupleLetter
    classes: int = 0
    letters: int = 0

    def add(self, classes: int, letters: int) -> bool:
        """Add classes and letters; True if any is new."""
        old = self.classes, self.letters
        self.classes |= classes
        self.letters |= letters
        return (self.classes, self.letters) != old


class StateLayout:
    """The steps made so far, without duplicates; checks the comparisons of each."""

    def __init__(self, resolved: ResolvedPattern) -> None:
        self.resolved = resolved
        self.budget = StepBudget(MOST_STEPS, "compiling the pattern")
        self.derivatives = Derivatives(self.budget)
        self._variants = _variants(resolved.readings)
        self._steps: dict[LetterStep, None] = {}
        self._incoming: defaultdict[RunState, dict[int, IncomingRuns]] = defaultdict(dict)
        self._alphabet = LetterNumbers(resolved.readings)

    def reading(self, letter: TupleLetter) -> LetterTest:
        return self.resolved.readings[letter]

    def step(
        self, sources: Sources, letter: TupleLetter, part: Hashable, remainder: Expression
    ) -> LetterStep:
        """The step by which ``letter`` gathers runs from ``sources``. Raises TooManyTransitionsError."""
        self.budget.spend()
        step = LetterStep(sources, letter, RunState(part, remainder, self._variants[letter]))
        self._steps[step] = None
        if len(self._steps) > MOST_TRANSITIONS:
            raise TooManyTransitionsError
        return step

    def charge(self, ways: Iterable[Way]) -> Iterator[Way]:
        """Yield the ways; each takes a step of the budget."""
        for way in ways:
            self.budget.spend()
            yield way

    def check_steps(self, steps: Sequence[LetterStep]) -> None:
        """Check all steps of a part, once it is laid out. Raises NotExpressibleError."""
        steps_from: defaultdict[RunState, list[LetterStep]] = defaultdict(list)
        for step in steps:
            for source in step.sources:
                steps_from[source].append(step)
        queue, queued_steps = deque(steps), set(steps)
        while queue:
            self.budget.spend()
            step = queue.popleft()
            queued_steps.remove(step)
            if self._extend(step):
                dependents = [
                    dependent for dependent in steps_from[step.target] if dependent not in queued_steps
                ]
                queue += dependents
                queued_steps.update(dependents)
        for step in steps:
            self._check(step)

    def pcea(self, final: Iterable[RunState]) -> PCEA:
        """The automaton of all steps. Raises TooManyTransitionsError."""
        transitions: dict[Transition, None] = {}
        for step in self._steps:
            transitions.update(dict.fromkeys(self._transitions(step)))
            if len(transitions) > MOST_TRANSITIONS:
                raise TooManyTransitionsError
        return PCEA(tuple(transitions), frozenset(final)).trim()

    def may_coincide(self, first: Expression, second: Expression) -> bool:
        """True if one tuple could be read as a letter of each."""
        return self._alphabet.may_coincide(self._alphabet.letters(first), self._alphabet.letters(second))

    def carries_common(self, first: Expression, second: Expression, letter: TupleLetter) -> bool:
        """True if ``letter`` carries all classes that two expressions have in common."""
        classes = self._alphabet.classes
        return not classes(first) & classes(second) & ~classes(OneTuple(letter))

    def _transitions(self, step: LetterStep) -> Iterator[Transition]:
        """A transition for each way of comparing the sources' last tuples with the letter's tuple."""
        unary = self.reading(step.letter).unary
        labels = frozenset({step.letter.variable})
        ways = [self._sources(state, step.letter) for state in step.sources]
        for sources in product(*ways):
            yield Transition(sources, unary, labels, step.target)

    def _sources(self, source: RunState, letter: TupleLetter) -> list[RunSource]:
        """A source for each set of columns of the letter's tuple that is compared with the last tuples."""
        later = self.reading(letter)
        lefts: defaultdict[Columns, list[tuple[int, Columns]]] = defaultdict(list)
        for relation, runs in sorted(self._incoming[source].items()):
            earlier = self.reading(runs.last)
            common_classes = sorted(earlier.classes & later.classes)
            left = relation, tuple(earlier.columns[c] for c in common_classes)
            lefts[tuple(later.columns[c] for c in common_classes)].append(left)
        return [RunSource(source, Equality(tuple(left), right)) for right, left in lefts.items()]

    def _extend(self, step: LetterStep) -> bool:
        """Add the classes and letters of a step's runs to its target; True if any is new."""
        letter = OneTuple(step.letter)
        classes, letters = self._alphabet.classes(letter), self._alphabet.letters(letter)
        for source in step.sources:
            for runs in self._incoming[source].values():
                classes |= runs.classes
                letters |= runs.letters
        target_runs = self._incoming[step.target].setdefault(step.letter.relation, IncomingRuns(step.letter))
        return target_runs.add(classes, letters)

    def _check(self, step: LetterStep) -> None:
        alphabet, letter = self._alphabet, step.letter
        letter_classes = alphabet.classes(OneTuple(letter))
        source_runs = [list(self._incoming[source].values()) for source in step.sources]
        for runs in (member for group in source_runs for member in group):
            lost_classes = runs.classes & letter_classes & ~alphabet.classes(OneTuple(runs.last))
            if lost_classes:
                raise self._lost_error(lost_classes, runs.last, letter)
        for first, second in combinations(source_runs, 2):
            for left, right in product(first, second):
                unshared = left.classes & right.classes & ~letter_classes
                if unshared:
                    raise self._lost_error(unshared, letter, None)
                if alphabet.may_coincide(left.letters, right.letters):
                    names = [", ".join(alphabet.variables(member.letters)) for member in (left, right)]
                    raise NotExpressibleError(
                        f"nothing distinguishes the tuples of {names[0]} from those of {names[1]}"
                    )

    def _lost_error(
        self, classes: int, letter: TupleLetter, later: TupleLetter | None
    ) -> NotExpressibleError:
        text = self.resolved.class_texts[first_bit(classes)]
        occasion = f" when {later.variable} arrives" if later else " while others wait for it"
        return NotExpressibleError(
            f"{text} cannot be compared{occasion}: {letter.variable} can arrive between them, "
            "and does not have the value"
        )


def _variants(readings: dict[TupleLetter, LetterTest]) -> dict[TupleLetter, int]:
    """A number for each letter; letters of one relation share it if their classes have the same columns."""
    numbers_by_columns: defaultdict[int, dict[frozenset[tuple[int, int]], int]] = defaultdict(dict)
    numbers = {}
    for letter in sorted(readings):
        variants = numbers_by_columns[letter.relation]
        numbers[letter] = variants.setdefault(frozenset(readings[letter].columns.items()), len(variants))
    return numbers
