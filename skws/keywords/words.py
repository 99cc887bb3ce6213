"""From words to what they satisfy: stems, starts, likenesses and forms of many predicates at once."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from typing import TYPE_CHECKING

from skws.keywords.likeness import has_form, shortened, within
from skws.keywords.query import Fuzzy, Prefix, Term, Wildcard, WordAlternative

if TYPE_CHECKING:  # words come analysed
    from skws.keywords.analysis import Token


class WordPredicates:
    """Predicates by number, in the order they were added where a word satisfies several."""

    def __init__(self) -> None:
        self._stems: defaultdict[str, list[int]] = defaultdict(list)
        self._starts: defaultdict[str, list[int]] = defaultdict(list)
        # By the words that are left of them without a letter or two: a look-up, however many there are.
        self._near: defaultdict[str, list[tuple[Fuzzy, int]]] = defaultdict(list)
        self._lengths: Counter[tuple[int, int]] = Counter()  # of words with likeness, and distance
        self._forms: list[tuple[str, int]] = []

    def add(self, alternative: WordAlternative, predicate: int) -> None:
        match alternative:
            case Term(stem=stem):
                self._stems[stem].append(predicate)
            case Prefix(start=start):
                self._starts[start].append(predicate)
            case Wildcard(form=form):
                self._forms.append((form, predicate))
            case Fuzzy(word=word, distance=distance):
                self._lengths[len(word), distance] += 1
                for left in shortened(word, distance):
                    self._near[left].append((alternative, predicate))

    def remove(self, alternative: WordAlternative, predicate: int) -> None:
        match alternative:
            case Term(stem=stem):
                self._stems[stem].remove(predicate)
            case Prefix(start=start):
                self._starts[start].remove(predicate)
            case Wildcard(form=form):
                self._forms.remove((form, predicate))
            case Fuzzy(word=word, distance=distance):
                self._lengths[len(word), distance] -= 1
                for left in shortened(word, distance):
                    self._near[left].remove((alternative, predicate))

    def of(self, token: Token) -> Iterator[int]:
        """The predicates that a word satisfies, each perhaps several times."""
        if not token.searchable:
            return
        yield from self._stems.get(token.stem, ())
        word = token.word
        for end in range(1, len(word) + 1) if self._starts else ():
            yield from self._starts.get(word[:end], ())
        yield from (predicate for form, predicate in self._forms if has_form(word, form))
        distance = self._farthest(len(word))
        for left in shortened(word, distance) if distance else ():
            for fuzzy, predicate in self._near.get(left, ()):
                if within(fuzzy.word, word, fuzzy.distance):
                    yield predicate

    def _farthest(self, length: int) -> int:
        """How far words of a length may be from any that is looked for; 0 if they are too long or short."""
        return max(
            (d for (size, d), count in self._lengths.items() if count and abs(size - length) <= d), default=0
        )


def satisfies(token: Token, alternative: WordAlternative) -> bool:
    """True if a word of a text satisfies an alternative."""
    if not token.searchable:
        return False
    match alternative:
        case Term(stem=stem):
            return token.stem == stem
        case Prefix(start=start):
            return token.word.startswith(start)
        case Fuzzy(word=word, distance=distance):
            return within(word, token.word, distance)
        case Wildcard(form=form):
            return has_form(token.word, form)
