"""An inverted index of the live tuples, for searches: which tuples a word stands in.

A standing query looks at the texts of each tuple once, as it comes. A search looks at all that are there, so
it pays to know their words. The index is brought up to date by searches, and between them where there is
time: a stream that nobody searches pays nothing.

Texts have numbers of their own, which outlive the slots of their tuples; slots change as tuples are purged.
"""

from __future__ import annotations

import re
import sys
from abc import ABC, abstractmethod
from array import array
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import reduce
from operator import itemgetter
from typing import Final, NamedTuple

import numpy as np

from skws.keywords import leaves
from skws.keywords.analysis import analyse, chunks, stem, stems, stop_words
from skws.keywords.leaves import alternatives_of, contains, has_form, parts, within
from skws.keywords.match import Matcher
from skws.keywords.query import Alternative, Condition, Fuzzy, Phrase, Prefix, Slot, Term, Wildcard
from skws.keywords.suggest import Vocabulary
from skws.keywords.syntax import Word
from skws.keywords.table import ChunkMemory
from skws.ranking.corpus import Carriers, OccurrenceCounts, Place
from skws.store.directory import TupleDirectory
from skws_mesh.columnar.bitmaps import KeywordBitmaps
from skws_mesh.columnar.columns import NOTHING, Flags, Ints, distinct
from skws_mesh.columnar.store import Table
from skws_schema.budgets import check
from skws_schema.model import Analyzer, Schema

_STOPPED: Final = frozenset(map(stem, stop_words(Analyzer.ENGLISH)))
"""The stems of stop words, which no text is found by."""
_BITS: Final = 20
_MOST: Final = (1 << _BITS) - 1
"""How often a word is counted in a text."""
_SPACE: Final = re.compile(r"\s")  # in whole values that are not analysed
_ANEW: Final = 4
"""The index is made anew once so many times more rows are gone than there."""


class _Standing(NamedTuple):
    """The tuples with a word in a place; how often it stands there, and the length of the text.

    ``exact``: False if ``often`` are upper bounds.
    """

    slots: Ints
    often: Ints
    lengths: Ints
    exact: bool

    def among(self, slots: Ints) -> _Standing:
        there = np.isin(self.slots, slots)
        return _Standing(
            self.slots.compress(there), self.often.compress(there), self.lengths.compress(there), exact=False
        )


class Labelled(NamedTuple):
    """What a query finds: the keyword bitmaps by slot, as the matcher gives them, and where they stand."""

    bitmaps: KeywordBitmaps
    carriers: Mapping[Place, Carriers]


class LearnedRows(ABC):
    """What is learned of the rows of live tuples, from the first slot on; searches ask for the rest."""

    covered = 0
    """The first slots, whose rows are known."""
    _piece: int
    """Rows between which time and memory are checked."""

    def behind(self, size: int) -> bool:
        """Whether there are rows of ``size`` live tuples that are not known yet."""
        return self.covered < size

    def catch_up(self, size: int, most: int | None = None) -> None:
        """Learn the rows up to slot ``size``, at most so many. Raises TimeLimitError between them."""
        end = size if most is None else min(size, self.covered + most)
        while self.covered < end:
            check()
            until = min(end, self.covered + self._piece)
            self._learn(np.arange(self.covered, until))
            self.covered = until

    def compact(self, slots: Ints) -> None:
        """Live tuples have new slots, in the same order; those with negative ones are gone."""
        self.covered = int((slots[: self.covered] >= 0).sum())

    @abstractmethod
    def _learn(self, slots: Ints) -> None:
        """Learn the rows in some slots."""


class LiveWords(LearnedRows):
    """The words of the live tuples of ``known``."""

    _piece = 256

    def __init__(self, schema: Schema, known: TupleDirectory) -> None:
        self._schema = schema
        self._known = known
        self._begin()

    def _begin(self) -> None:
        self._terms: dict[Analyzer, _Terms] = {}
        self._rows: dict[Place, defaultdict[str, array[int]]] = {}  # by word: numbers of texts, and how often
        self._texts = Table((NOTHING, NOTHING))  # slots, which are negative once a tuple is gone, and lengths
        self.covered = 0

    def know(self, slots: Ints, size: int) -> None:
        """Learn some of the first ``size`` rows alone: no other has a word of what is searched."""
        for first in range(0, len(slots), self._piece):
            check()
            self._learn(slots[first : first + self._piece])
        self.covered = size

    def compact(self, slots: Ints) -> None:
        super().compact(slots)
        of_texts, _ = self._texts.columns()
        there = of_texts >= 0
        of_texts[there] = slots[of_texts[there]]
        if self._texts.size > _ANEW * (self.covered + self._piece):
            self._begin()

    def vocabulary(self) -> Vocabulary:
        """The words that were learned lately, for suggestions."""
        words = Vocabulary()
        for analyzer, terms in self._terms.items():
            for chunk in terms:
                words.add(chunk, analyzer)
        return words

    def completions(self, start: str, most: int, alive: Callable[[Ints], Flags]) -> list[tuple[str, int]]:
        """The words that begin with ``start`` (folded) and stand in the most live tuples, with their number.

        A word counts the tuples that a search for it finds. Raises TimeLimitError.
        """
        likely: list[tuple[int, str, Analyzer]] = []
        for analyzer, terms in self._terms.items():
            places = [rows for (r, c), rows in self._rows.items() if self._analyzer(r, c) is analyzer]
            for number, word in enumerate(terms.beginning(start)):
                if number % self._piece == 0:
                    check()
                if _SPACE.search(word):
                    continue
                stem = terms.words[word]
                likely.append((-sum(len(rows.get(stem, ())) for rows in places), word, analyzer))
        likely.sort(key=itemgetter(0, 1))
        found: dict[str, int] = {}
        for _, word, analyzer in likely:
            if len(found) == most:
                break
            check()
            if number := int(alive(self._found_by(word, analyzer)).sum()):
                found[word] = found.get(word, 0) + number
        return sorted(found.items(), key=lambda pair: (-pair[1], pair[0]))

    def _found_by(self, word: str, analyzer: Analyzer) -> Ints:
        """The tuples that a word finds where texts have an analyzer."""
        columns = frozenset(place for place in self._rows if self._analyzer(*place) is analyzer)
        meanings = alternatives_of(Word(word), word, (leaves.Place(None, analyzer, columns),))
        found = [s.slots for each in meanings if _known(each) for _, s in self._containing(each)]
        return distinct(np.concatenate([NOTHING, *found]))

    def _analyzer(self, relation: int, column: int) -> Analyzer:
        return self._schema.relations[relation].attributes[column].analyzer

    def label(self, query: int, matcher: Matcher, size: int) -> Labelled | None:
        """The tuples with keywords of a query; None if it is not ``indexed``."""
        if not indexed(matcher):
            return None
        alternatives = list(matcher.alternatives())
        labels = np.zeros(size, dtype=np.int64)
        found: dict[Place, list[tuple[int, _Standing]]] = {}
        for bit, alternative in alternatives:
            for place, standing in self._containing(alternative):
                labels[standing.slots] |= bit
                found.setdefault(place, []).append((bit, standing))
        matcher.settle(labels)
        carrying = np.flatnonzero(labels)
        bitmaps = KeywordBitmaps(carrying, np.full(len(carrying), query, dtype=np.int64), labels[carrying])
        return Labelled(bitmaps, _carriers(found, labels, len(matcher.query.slots)))

    def _containing(self, alternative: Alternative) -> Iterator[tuple[Place, _Standing]]:
        """The tuples that satisfy an alternative that is no condition, by place."""
        for place, rows in self._rows.items():
            if not alternative.applies(*place):
                continue
            if isinstance(alternative, Term):
                standing = self._of(rows, alternative.stem)
            elif not isinstance(alternative, Phrase):
                standing = self._satisfying(place, rows, alternative)
            else:
                asked = [self._of(rows, each) for each in alternative.stems if each not in _STOPPED]
                common = reduce(np.intersect1d, [each.slots for each in asked])
                slots = self._with_phrase(common, place[1], alternative)
                standing = asked[0].among(slots)
            if len(standing.slots):
                yield place, standing

    def _satisfying(
        self, place: Place, rows: defaultdict[str, array[int]], alternative: Alternative
    ) -> _Standing:
        """The tuples with any word of a form; the words of a stem need not all have it, so texts are read."""
        terms = self._terms.get(self._analyzer(*place))
        stems = dict.fromkeys(() if terms is None else terms.satisfying(alternative))
        slots = distinct(np.concatenate([NOTHING, *(self._of(rows, stem).slots for stem in stems)]))
        counts, often, lengths = OccurrenceCounts((Slot("", (alternative,)),)), [], []
        for slot in slots.tolist():
            check()
            text = str(self._known.row(slot)[place[1]])
            often.append(counts.of(*place, text)[0])
            lengths.append(len(text))
        found = np.array(often, dtype=np.int64)
        there = found > 0
        return _Standing(
            slots.compress(there),
            found.compress(there),
            np.array(lengths, dtype=np.int64).compress(there),
            True,
        )

    def _of(self, rows: defaultdict[str, array[int]], word: str) -> _Standing:
        packed = np.array(rows.get(word, ()), dtype=np.int64)
        numbers, often = packed >> _BITS, packed & _MOST
        of_texts, lengths = self._texts.columns()
        slots = of_texts.take(numbers)
        there = slots >= 0
        often = often.compress(there)
        lengths = lengths.take(numbers).compress(there)
        return _Standing(slots.compress(there), often, lengths, bool(often.max(initial=0) < _MOST))

    def _with_phrase(self, slots: Ints, column: int, phrase: Phrase) -> Ints:
        """The slots whose text has the words of a phrase one behind the other."""
        texts = (str(self._known.row(slot)[column]) for slot in slots.tolist())
        there = np.array([contains(stems(text), phrase, text) for text in texts], dtype=bool)
        return slots.compress(there)

    def _learn(self, new: Ints) -> None:
        slots: list[int] = []
        lengths: list[int] = []
        begun = self._texts.size
        for block, mine, at in self._known.some_rows(new).by_block():
            for column in self._schema.relations[block.relation].search_columns:
                rows = self._rows.setdefault((block.relation, column), defaultdict(_numbers))
                values = block.values_at(column, at)
                analyzer = self._analyzer(block.relation, column)
                terms = self._terms.setdefault(analyzer, _Terms(analyzer))
                for slot, value in zip(new[mine].tolist(), values, strict=True):
                    if value is None:
                        continue
                    text = value if value.__class__ is str else str(value)
                    number = begun + len(slots) << _BITS
                    slots.append(slot)
                    lengths.append(len(text))
                    for word, often in terms.of(text).items():
                        rows[word].append(number | min(often, _MOST))
        self._texts.append((np.array(slots, dtype=np.int64), np.array(lengths, dtype=np.int64)))


class _Terms(ChunkMemory[tuple[str, ...]]):
    """From chunks to the words that they are found by."""

    def __init__(self, analyzer: Analyzer) -> None:
        super().__init__()
        self.words: dict[str, str] = {}
        """Each word, folded, with what it is found by."""
        self._sorted: list[str] = []
        self._analyzer = analyzer

    def beginning(self, start: str) -> list[str]:
        """The words that begin with a text."""
        if len(self._sorted) < len(self.words):
            self._sorted = sorted(self.words)
        first = bisect_left(self._sorted, start)
        return self._sorted[first : bisect_left(self._sorted, start + chr(sys.maxunicode), first)]

    def satisfying(self, alternative: Alternative) -> Iterator[str]:
        """What words are found by that a prefix, a form or a word with typing errors stands for."""
        words: Iterable[str] = self.words
        match alternative:
            case Prefix(start=start):
                words = self.beginning(start)
            case Wildcard(form=form):
                words = (word for word in words if has_form(word, form))
            case Fuzzy(word=typed, distance=most):
                pieces = parts(typed, most)
                words = (w for w in words if any(p in w for p in pieces) and within(w, typed, most))
        return (self.words[word] for word in words)

    def of(self, text: str) -> dict[str, int]:
        """The words of a text, and how often each stands there."""
        found: dict[str, int] = {}
        for chunk in chunks(text, self._analyzer):
            for word in self[chunk]:
                found[word] = found.get(word, 0) + 1
        return found

    def look_up(self, chunk: str) -> tuple[str, ...]:
        # A word may be a compound and its first piece in one place, which counts once.
        words = [token for token in analyse(chunk, self._analyzer).tokens if token.searchable]
        self.words.update((token.word, token.stem) for token in words)
        return tuple(stem for _, stem in dict.fromkeys((word.start, word.stem) for word in words))


def _numbers() -> array[int]:
    return array("q")


def indexed(matcher: Matcher) -> bool:
    """Whether a query has no conditions, and no keyword that is a name in the schema."""
    return not any(matcher.names) and all(_known(each) for _, each in matcher.alternatives())


def _known(alternative: Alternative) -> bool:
    """Whether the index alone decides which tuples satisfy it."""
    if isinstance(alternative, Phrase):
        # Stop words of other languages have stems that depend on how they are written.
        return alternative.analyzer is Analyzer.ENGLISH and not _STOPPED.issuperset(alternative.stems)
    return not isinstance(alternative, Condition)


def _carriers(
    found: Mapping[Place, list[tuple[int, _Standing]]], labels: Ints, keywords: int
) -> dict[Place, Carriers]:
    """Without the tuples that are excluded, and without what excludes them."""
    carriers = {}
    for place, every in found.items():
        parts = [(bit.bit_length() - 1, standing) for bit, standing in every if bit < 1 << keywords]
        slots = distinct(np.concatenate([standing.slots for _, standing in parts] or [NOTHING]))
        slots = slots[labels[slots] > 0]
        often = np.zeros((len(slots), keywords), dtype=np.int64)
        lengths = np.zeros(len(slots), dtype=np.int64)
        # Alternatives of one keyword may be satisfied by the same word.
        exact = len({keyword for keyword, _ in parts}) == len(parts) and all(each.exact for _, each in parts)
        for keyword, standing in parts:
            at = np.searchsorted(slots, standing.slots)
            at, mine = at[at < len(slots)], np.flatnonzero(at < len(slots))
            true = slots[at] == standing.slots[mine]
            often[at[true], keyword] += standing.often[mine[true]]
            lengths[at[true]] = standing.lengths[mine[true]]
        if len(slots):
            carriers[place] = Carriers(slots, often, lengths, exact)
    return carriers
