"""An inverted index of the live tuples, for searches: words to tuples.

A standing query reads the texts of each tuple once, when it arrives. A search would have to read all live
tuples, so an index of their words pays off. Searches bring the index up to date, and the engine does so
between them when it is idle: a stream without searches has no indexing cost.

Texts have their own numbers, which outlive the slots of their tuples; slots change as tuples are purged.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import reduce
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from skws.data.texts import Texts
from skws.keywords import leaves
from skws.keywords.analysis import stem, stems, stop_words
from skws.keywords.keyword_query import Alternative, Condition, Phrase, Slot, Term
from skws.keywords.leaves import alternatives_of, contains
from skws.keywords.match import Matcher
from skws.keywords.occurrences import occurrences
from skws.keywords.scope import satisfying
from skws.keywords.suggest import Vocabulary
from skws.keywords.syntax import Word
from skws.queries.keywords.word_lists import WordLists, WordNumbers
from skws.ranking.text_statistics import NAME, Carriers, OccurrenceCounts, Place
from skws.store.directory import TupleDirectory
from skws_mesh.columnar.bitmaps import KeywordBitmaps
from skws_mesh.columnar.columns import NOTHING, Flags, Ints, distinct, ranges
from skws_mesh.columnar.live import LiveTuples
from skws_mesh.columnar.store import Table
from skws_schema.budgets import check
from skws_schema.model import Analyzer, Schema

if TYPE_CHECKING:
    from skws.index.database import StoredTuples

_STOP_STEMS: Final = frozenset(map(stem, stop_words(Analyzer.ENGLISH)))
"""The stems of stop words, by which no text is found."""
_ROWS_AT_A_TIME: Final = 1 << 14
"""The number of rows that are indexed together; time and memory are checked between such groups."""
_MOST_WORDS: Final = 200_000
"""The number of the most frequent words that are kept for suggestions."""
_SPACE: Final = re.compile(r"\s")  # in whole values that are not analysed
_REBUILD_FACTOR: Final = 4
"""The index is rebuilt when it has this multiple of the texts of live tuples."""


class _Postings(NamedTuple):
    """The tuples with a word in one column; the number of its occurrences, and the length of the text.

    ``exact``: False if ``frequencies`` are upper bounds.
    """

    slots: Ints
    frequencies: Ints
    lengths: Ints
    exact: bool

    def of_slots(self, slots: Ints) -> _Postings:
        is_among = np.isin(self.slots, slots)
        return _Postings(
            self.slots.compress(is_among),
            self.frequencies.compress(is_among),
            self.lengths.compress(is_among),
            exact=False,
        )


class _Labels(NamedTuple):
    """The keyword bitmaps of tuples, in order of their slots."""

    slots: Ints
    bitmaps: Ints

    @classmethod
    def of(cls, slots_by_bit: Sequence[tuple[int, Ints]], matcher: Matcher) -> _Labels:
        """The labels of tuples, from pairs of a bit and the tuples that have it."""
        slots = distinct(np.concatenate([NOTHING, *(bit_slots for _, bit_slots in slots_by_bit)]))
        bitmaps = np.zeros(len(slots), dtype=np.int64)
        for bit, bit_slots in slots_by_bit:
            bitmaps[np.searchsorted(slots, bit_slots)] |= bit
        matcher.settle(bitmaps)
        return cls(slots, bitmaps)

    def with_keywords(self, slots: Ints) -> Ints:
        """The tuples in ``slots`` that have keywords."""
        return slots.compress(self.bitmaps.take(np.searchsorted(self.slots, slots)) > 0)


class Labelled(NamedTuple):
    """The keyword bitmaps of a query's tuples by slot, as from the matcher, and the keywords' carriers."""

    bitmaps: KeywordBitmaps
    carriers: Mapping[Place, Carriers]


class LiveWords:
    """The words of the tuples in ``live``, from the first slot on; searches index the rest."""

    def __init__(self, schema: Schema, live: LiveTuples, directory: TupleDirectory) -> None:
        self._schema = schema
        self._live = live
        self._directory = directory
        self._stored: StoredTuples | None = None
        self._begin()

    def open(self, stored: StoredTuples) -> None:
        """Begin with tuples that are rows of tables, by their indexes.

        A search indexes the words of those rows that may contain its words and that no condition excludes.
        """
        self._stored = stored
        self._begin()

    def _begin(self) -> None:
        self._words: dict[Analyzer, WordNumbers] = {}
        self._lists: dict[Place, WordLists] = {}  # of the numbers of texts
        narrow = np.empty(0, dtype=np.int32)
        # Slots, which are negative once a tuple is gone, and lengths.
        self._texts = Table((narrow, narrow))  # type: ignore[arg-type]  # narrow as there can be millions
        self.stored_texts = 0
        """The number of texts of rows of tables whose words are in memory."""
        self.covered = 0 if self._stored is None else len(self._stored)
        """The number of leading slots whose rows are indexed, here or on disk."""

    def is_behind(self, size: int) -> bool:
        """True if rows of the first ``size`` live tuples are not indexed yet."""
        return self.covered < size

    def catch_up(self, size: int, most: int | None = None) -> None:
        """Index the rows up to slot ``size``, at most ``most`` of them.

        Raises TimeLimitError between groups.
        """
        end = size if most is None else min(size, self.covered + most)
        while self.covered < end:
            check()
            until = min(end, self.covered + _ROWS_AT_A_TIME)
            self._index(np.arange(self.covered, until))
            self.covered = until

    @property
    def on_disk(self) -> bool:
        return self._stored is not None

    def index_only(self, slots: Ints, size: int) -> None:
        """Index only some of the first ``size`` rows: no other row contains a word of the search."""
        self._index_all(slots)
        self.covered = size

    def compact(self, slots: Ints) -> None:
        """Live tuples have new slots, in the same order; removed ones have negative slots."""
        self.covered = int((slots[: self.covered] >= 0).sum())
        text_slots, _ = self._texts.columns()
        is_live = text_slots >= 0
        text_slots[is_live] = slots[text_slots[is_live]]
        live_texts = int(np.count_nonzero(text_slots >= 0))
        if self._texts.size > _REBUILD_FACTOR * (live_texts + _ROWS_AT_A_TIME):
            self._begin()

    def vocabulary(self) -> Vocabulary:
        """The most frequent words, for suggestions; a word counts the texts with any word of its stem."""
        words = Vocabulary()
        for analyzer, word_numbers in self._words.items():
            counts = self._counts(analyzer, word_numbers.numbers(word_numbers.words))
            words.update(dict(zip(word_numbers.words, counts.tolist(), strict=True)))
        if self._stored is not None:
            words |= self._stored.words()  # the greater count, as rows indexed in memory are in both
        words.keep(_MOST_WORDS)
        return words

    def completions(self, start: str, most: int, is_alive: Callable[[Ints], Flags]) -> list[tuple[str, int]]:
        """The words that begin with ``start`` (folded) and occur in the most live tuples, with their number.

        A word counts the tuples that a search for it finds. Raises TimeLimitError.
        """
        text_counts: Counter[str] = Counter()
        for analyzer, word_numbers in self._words.items():
            check()
            words = [word for word in word_numbers.beginning(start) if not _SPACE.search(word)]
            counts = self._counts(analyzer, word_numbers.numbers(words))
            text_counts.update(dict(zip(words, counts.tolist(), strict=True)))
        numbers_by_word: dict[str, int] = {}
        for word, _ in sorted(text_counts.items(), key=lambda pair: (-pair[1], pair[0])):
            if len(numbers_by_word) == most:
                break
            check()
            slots = distinct(np.concatenate([self._slots_with(word, analyzer) for analyzer in self._words]))
            if number := int(is_alive(slots).sum()):
                numbers_by_word[word] = number
        return sorted(numbers_by_word.items(), key=lambda pair: (-pair[1], pair[0]))

    def _counts(self, analyzer: Analyzer, numbers: Ints) -> Ints:
        """The number of texts with each word, for the texts of one analyzer."""
        counts = np.zeros(len(numbers), dtype=np.int64)
        for place, lists in self._lists.items():
            if self._analyzer(*place) is analyzer:
                counts += lists.counts(numbers)
        return counts

    def _slots_with(self, word: str, analyzer: Analyzer) -> Ints:
        """The tuples that contain a word in texts with an analyzer."""
        columns = frozenset(place for place in self._lists if self._analyzer(*place) is analyzer)
        meanings = alternatives_of(Word(word), word, (leaves.TermScope(None, analyzer, columns),))
        alternatives = (each for each in meanings if not isinstance(each, Phrase) or _has_indexed_words(each))
        slot_lists = [
            postings.slots for each in alternatives for _, postings in self._postings_by_place(each)
        ]
        return distinct(np.concatenate([NOTHING, *slot_lists]))

    def _analyzer(self, relation: int, column: int) -> Analyzer:
        return self._schema.relations[relation].attributes[column].analyzer

    def label(self, query: int, matcher: Matcher) -> Labelled:
        """The tuples that have keywords of a query or that the query excludes."""
        condition_slots = [
            (bit, self._slots_satisfying(alternative))
            for bit, alternative in matcher.alternatives()
            if isinstance(alternative, Condition)
        ]
        if self._stored is not None:
            slots = self._stored.with_words(matcher)
            is_needed = ~np.isin(slots, self._texts.columns()[0])
            for bit, passing in condition_slots:
                if bit == matcher.excluding:
                    is_needed &= ~np.isin(slots, passing)
            texts_before = self._texts.size
            self._index_all(slots[is_needed])
            self.stored_texts += self._texts.size - texts_before
        by_place: dict[Place, list[tuple[int, _Postings]]] = {}
        for bit, alternative in matcher.alternatives():
            if not isinstance(alternative, Condition):
                for place, postings in self._postings_by_place(alternative):
                    by_place.setdefault(place, []).append((bit, postings))
        for relation, bits in enumerate(matcher.names):
            if bits:
                slots = self._slots_of(relation)
                zeros = np.zeros(len(slots), dtype=np.int64)
                all_rows = _Postings(slots, zeros + 1, zeros, exact=True)
                by_place[relation, NAME] = [
                    (1 << n, all_rows) for n in range(bits.bit_length()) if bits >> n & 1
                ]
        text_slots = [
            (bit, postings.slots)
            for postings_of_place in by_place.values()
            for bit, postings in postings_of_place
        ]
        labels = _Labels.of([*text_slots, *condition_slots], matcher)
        bitmaps = KeywordBitmaps(
            labels.slots, np.full(len(labels.slots), query, dtype=np.int64), labels.bitmaps
        )
        return Labelled(bitmaps, _carriers(by_place, labels, len(matcher.query.slots)))

    def _slots_of(self, relation: int) -> Ints:
        """The indexed tuples of a relation, in order of their slots."""
        return np.flatnonzero(self._live.tuples.relation[: self.covered] == relation)

    def _slots_satisfying(self, condition: Condition) -> Ints:
        """The tuples whose values satisfy a condition, in order of their slots."""
        if condition.relation is None:
            return NOTHING
        slots = self._slots_of(condition.relation)
        passing = [NOTHING]
        for block, positions, places in self._directory.some_rows(slots).by_block():
            passing.append(slots[positions[satisfying(condition, block).take(places)]])
        return np.sort(np.concatenate(passing))

    def _postings_by_place(self, alternative: Alternative) -> Iterator[tuple[Place, _Postings]]:
        """The tuples that satisfy an alternative, other than a condition, by column."""
        for place, lists in self._lists.items():
            if not alternative.applies(*place):
                continue
            words = self._words[self._analyzer(*place)]
            if isinstance(alternative, Term):
                texts = self._postings(lists, words.number(alternative.stem))
            elif not isinstance(alternative, Phrase):
                stems = dict.fromkeys(words.satisfying(alternative))
                with_stems = [self._postings(lists, words.number(stem)).slots for stem in stems]
                slots = distinct(np.concatenate([NOTHING, *with_stems]))
                texts = self._counted_postings(place, slots, alternative)
            elif not _has_indexed_words(alternative):
                slots = self._slots_of(place[0])
                slots = slots[np.isin(slots, self._texts.columns()[0])]
                texts = self._counted_postings(place, slots, alternative)
            else:
                stem_postings = [
                    self._postings(lists, words.number(each))
                    for each in alternative.stems
                    if each not in _STOP_STEMS
                ]
                common = reduce(np.intersect1d, [each.slots for each in stem_postings])
                slots = self._with_phrase(common, place[1], alternative)
                texts = stem_postings[0].of_slots(slots)
            if len(texts.slots):
                yield place, texts

    def _counted_postings(self, place: Place, slots: Ints, alternative: Alternative) -> _Postings:
        """The tuples in ``slots`` whose text satisfies an alternative that stems alone do not decide."""
        counts, slot_counts, lengths = OccurrenceCounts((Slot("", (alternative,)),)), [], []
        for slot in slots.tolist():
            check()
            value = self._directory.row(slot)[place[1]]
            text = "" if value is None else str(value)
            slot_counts.append(counts.of(*place, text)[0])
            lengths.append(len(text))
        frequencies = np.array(slot_counts, dtype=np.int64)
        has_occurrence = frequencies > 0
        return _Postings(
            slots.compress(has_occurrence),
            frequencies.compress(has_occurrence),
            np.array(lengths, dtype=np.int64).compress(has_occurrence),
            True,
        )

    def _postings(self, lists: WordLists, word: int | None) -> _Postings:
        texts, frequencies = (NOTHING, NOTHING) if word is None else lists.of(word)
        text_slots, lengths = self._texts.columns()
        slots, lengths = (column.take(texts).astype(np.int64) for column in (text_slots, lengths))
        is_live = slots >= 0
        return _Postings(
            slots.compress(is_live), frequencies.compress(is_live), lengths.compress(is_live), True
        )

    def _with_phrase(self, slots: Ints, column: int, phrase: Phrase) -> Ints:
        """The slots whose text contains the words of a phrase in order."""
        texts = (str(self._directory.row(slot)[column]) for slot in slots.tolist())
        has_phrase = np.array([contains(stems(text), phrase, text) for text in texts], dtype=bool)
        return slots.compress(has_phrase)

    def _index_all(self, slots: Ints) -> None:
        for first in range(0, len(slots), _ROWS_AT_A_TIME):
            check()
            self._index(slots[first : first + _ROWS_AT_A_TIME])

    def _index(self, row_slots: Ints) -> None:
        """Index the rows in some slots, in order."""
        texts: defaultdict[Place, list[tuple[Ints, Texts]]] = defaultdict(list)
        for block, positions, places in self._directory.some_rows(row_slots).by_block():
            for column in self._schema.relations[block.relation].search_columns:
                texts[block.relation, column].append((row_slots[positions], block.texts_at(column, places)))
        for place, pieces in texts.items():
            analyzer = self._analyzer(*place)
            words = self._words.setdefault(analyzer, WordNumbers(analyzer))
            all_texts = Texts.concat([block_texts for _, block_texts in pieces])
            chunk_occurrences = occurrences(all_texts, analyzer)
            stem_chunks, number = words.of(chunk_occurrences.chunks)
            counts = np.bincount(stem_chunks, minlength=len(chunk_occurrences.chunks))
            first = np.cumsum(counts) - counts
            stem_counts = counts.take(chunk_occurrences.which)
            lists = self._lists.setdefault(place, WordLists())
            lists.add(
                number.take(ranges(first.take(chunk_occurrences.which), stem_counts)),
                np.repeat(chunk_occurrences.text + self._texts.size, stem_counts),
            )
            self._texts.append((np.concatenate([slots for slots, _ in pieces]), all_texts.lengths()))


def _has_indexed_words(phrase: Phrase) -> bool:
    """True if the index can find the texts that may contain a phrase, by its words that are not stop words.

    The stems of stop words of other languages depend on their spelling.
    """
    return phrase.analyzer is Analyzer.ENGLISH and not _STOP_STEMS.issuperset(phrase.stems)


def _carriers(
    postings_by_place: Mapping[Place, list[tuple[int, _Postings]]], labels: _Labels, keywords: int
) -> dict[Place, Carriers]:
    """The carriers without excluded tuples, and without the alternatives that exclude."""
    carriers = {}
    for place, postings_of_place in postings_by_place.items():
        parts = [
            (bit.bit_length() - 1, postings) for bit, postings in postings_of_place if bit < 1 << keywords
        ]
        slots = distinct(np.concatenate([postings.slots for _, postings in parts] or [NOTHING]))
        slots = labels.with_keywords(slots)
        frequencies = np.zeros((len(slots), keywords), dtype=np.int64)
        lengths = np.zeros(len(slots), dtype=np.int64)
        # Alternatives of one keyword may be satisfied by the same word.
        exact = len({keyword for keyword, _ in parts}) == len(parts) and all(each.exact for _, each in parts)
        for keyword, postings in parts:
            indexes = np.searchsorted(slots, postings.slots)
            indexes, positions = indexes[indexes < len(slots)], np.flatnonzero(indexes < len(slots))
            is_carrier = slots[indexes] == postings.slots[positions]
            frequencies[indexes[is_carrier], keyword] += postings.frequencies[positions[is_carrier]]
            lengths[indexes[is_carrier]] = postings.lengths[positions[is_carrier]]
        if len(slots):
            carriers[place] = Carriers(slots, frequencies, lengths, exact)
    return carriers
