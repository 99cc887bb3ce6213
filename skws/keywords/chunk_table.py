"""Maps the texts of a column to the bits of the alternatives that they satisfy.

Texts are cut at white space; each distinct chunk is analysed once, and then only looked up. In
a whole column only candidates are examined; one pass over all texts finds these at a tenth of the cost.

A candidate contains the beginning of a keyword (or a part of a keyword that allows typing errors or
wildcards), or a character beyond ASCII that may fold to any letter. All texts are searched at once, at the
speed of memory. A candidate may satisfy nothing; any other text certainly satisfies nothing.
"""

from __future__ import annotations

import re
from abc import abstractmethod
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from os.path import commonprefix
from typing import Final, Generic, NamedTuple, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt
from whoosh.lang.porter2 import exceptional_forms

from skws.data.texts import Column, Places, Texts
from skws.keywords.analysis import JOINERS, MEMORABLE, PIECE, Token, analyse, chunks, spelled, stems
from skws.keywords.keyword_query import Alternative, Condition, Fuzzy, Phrase, Prefix, Term, Wildcard
from skws.keywords.leaves import WordPredicates, contains, literals, parts, withdraw
from skws_mesh.columnar.columns import distinct, ranges
from skws_schema.model import Analyzer

_ENGLISH_STEMS: Final = (Analyzer.ENGLISH, Analyzer.SIMPLE)
_MOST_LETTERS: Final = 10  # letters compared; more letters reject few further texts

# All characters beyond ASCII, except letters (of the most common scripts) that never fold to an ASCII letter
# or to nothing, and punctuation, which is in no word, though it may join two.
FOLDING: Final = (
    "[^\x00-\x7f\u0391-\u03a1\u03a3-\u03ab\u03b1-\u03cb\u0400-\u0482\u048a-\u052f\u05d0-\u05ea\u0620-\u064a"
    "\u0904-\u0939\u0e01-\u0e30\u2010-\u2027\u3001-\u3029\u3041-\u3096\u30a1-\u30fa\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7a3]"
)
ASCII_JOINERS: Final = "".join(filter(str.isascii, JOINERS))


def hopeless(alternatives: Iterable[Alternative]) -> Callable[[str], bool]:
    """A test that is True only for texts that satisfy no alternative.

    It searches for plain substrings, which Python does faster than any regular expression. Joiners may
    occur anywhere in a word, so they are removed from both sides.
    """
    required = substrings(alternatives)
    if required is None:
        return lambda _text: False
    ascii_parts = list(filter(str.isascii, required))
    folding = re.compile(FOLDING if len(ascii_parts) == len(required) else "[^\x00-\x7f]").search

    def is_hopeless(text: str) -> bool:
        if not text.isascii() and folding(text):
            return False
        stripped = _without_joiners(text.lower())
        return not any([start in stripped for start in ascii_parts])  # noqa: C419 - half the time of a generator

    return is_hopeless


def substrings(alternatives: Iterable[Alternative]) -> Sequence[str] | None:
    """Substrings: a text, folded and without joiners, must contain one of them. None if there are none."""
    alternatives = list(alternatives)
    required = {_start(each) for each in alternatives} - {None}
    required |= {part for each in alternatives for part in _inside(each)}
    stripped = {_without_joiners(part) for part in required if part is not None}
    return None if "" in stripped or not stripped else sorted(stripped)


def _without_joiners(text: str) -> str:
    # One after the other: texts usually have no joiners, and then this is faster than translate.
    for joiner in ASCII_JOINERS if text.isascii() else JOINERS:
        if joiner in text:
            text = text.replace(joiner, "")
    return text


def _inside(alternative: Alternative) -> Iterable[str]:
    """Folded parts: every text that satisfies the alternative has a word that contains one of them."""
    match alternative:
        case Fuzzy(word=word, distance=distance):
            return [part[:_MOST_LETTERS] for part in parts(word, distance)]
        case Wildcard(form=form):
            return [max(literals(form), key=len)[:_MOST_LETTERS]]
        case _:
            return ()


def _start(alternative: Alternative) -> str | None:
    """The folded beginning of some word in every text that satisfies the alternative; None if unknown."""
    match alternative:
        case Condition():
            return None
        case _ if alternative.analyzer not in _ENGLISH_STEMS:
            return ""  # other stemmers change more than endings, and unchanged texts may begin with any sign
        case Fuzzy() | Wildcard():
            return None
        case Term(stem=start) if alternative.analyzer is Analyzer.SIMPLE:
            pass
        case Term(stem=stem):
            start = unstemmed(stem)
        case Prefix(start=start):
            pass
        case Phrase(spelled=compound) if compound:
            start = longest_part(compound)
        case Phrase(stems=stems):
            begins = stems if alternative.analyzer is Analyzer.SIMPLE else map(unstemmed, stems)
            start = max(begins, key=len)
    return start[:_MOST_LETTERS]


def unstemmed(stem: str) -> str:
    """The common beginning of all words with this stem.

    Stemming rewrites only the last letter, except for a few words.
    """
    if not (stem.isascii() and stem.isalpha()):
        return stem
    exceptions = [word for word, exception_stem in exceptional_forms.items() if exception_stem == stem]
    return commonprefix([stem[:-1], *exceptions])  # noqa: RUF071 - letters, not path components


_MOST_CHUNKS: Final = 500_000  # chunks

Entry = TypeVar("Entry")


class ChunkMemory(dict[str, Entry], Generic[Entry]):
    """A cache from chunks, parts of texts between white space, to values; emptied at ``most``."""

    def __init__(self, most: int = _MOST_CHUNKS) -> None:
        super().__init__()
        self._most = most

    @abstractmethod
    def look_up(self, chunk: str) -> Entry:
        """The value of a new chunk."""

    def __missing__(self, chunk: str) -> Entry:
        value = self.look_up(chunk)
        if len(chunk) <= MEMORABLE:
            if len(self) >= self._most:
                self.clear()
            self[chunk] = value
        return value


_MOST_SUBSTRINGS: Final = 100  # substrings; each is searched in all bytes
_LOWER: Final = bytes(range(256)).lower()
_JOINERS: Final = ASCII_JOINERS.encode()
_BLANK: Final = bytes(0x20 if chr(code).isspace() and code < 0x80 else code for code in range(256))
"""A translation table from white space to blanks."""


class CandidateChunks(NamedTuple):
    """The places that may satisfy an alternative: chunks of some texts, and other texts as a whole.

    ``chunk_offsets``: the offset of a byte in each chunk. ``chunk_texts``: the index of the text, which is
    ASCII.
    """

    data: bytes
    offsets: Places
    chunk_offsets: Places
    chunk_texts: Places
    texts: Places

    def chunks(self) -> list[str]:
        if not len(self.chunk_offsets):  # as in most batches
            return []
        blanked = self.data.translate(_BLANK)
        begins, ends = self.offsets.take(self.chunk_texts), self.offsets.take(self.chunk_texts + 1)
        chunk_list = []
        for first, offset, end in zip(
            begins.tolist(), self.chunk_offsets.tolist(), ends.tolist(), strict=True
        ):
            begin, next_blank = blanked.rfind(b" ", first, offset), blanked.find(b" ", offset, end)
            chunk = self.data[first if begin < 0 else begin + 1 : end if next_blank < 0 else next_blank]
            chunk_list.append(str(chunk, "ascii"))
        return chunk_list

    def places(self) -> Places:
        """The indices of all texts with candidates, in order."""
        return distinct(np.concatenate([self.chunk_texts, self.texts]))


class CandidateTexts:
    """Finds the texts that may satisfy one of some alternatives: all texts that are not ``hopeless``."""

    def __init__(self, alternatives: Sequence[Alternative]) -> None:
        self.hopeless = hopeless(alternatives)
        required = substrings(alternatives) or ()
        self._narrow = 0 < len(required) <= _MOST_SUBSTRINGS
        ascii_parts = [part.encode() for part in required if part.isascii()]
        self._patterns = [(len(part), re.compile(re.escape(part))) for part in ascii_parts]

    def of(self, texts: Texts) -> CandidateChunks | None:
        """The candidates; None if the alternatives do not narrow them down."""
        if not self._narrow:
            return None
        data = bytes(texts.data)  # a copy only if it is a view
        chunk_texts, places, spanning_texts = self._matches(data, texts.offsets)
        if not data.isascii():
            codes = np.flatnonzero(np.frombuffer(data, dtype=np.uint8) >= 0x80)
            non_ascii_texts = distinct(np.searchsorted(texts.offsets, codes, side="right") - 1)
            is_ascii = ~np.isin(chunk_texts, non_ascii_texts)
            chunk_texts, places = chunk_texts[is_ascii], places[is_ascii]
            candidates = [
                place for place, text in enumerate(texts.at(non_ascii_texts)) if not self.hopeless(text)
            ]
            spanning_texts = distinct(np.concatenate([spanning_texts, non_ascii_texts[candidates]]))
        return CandidateChunks(data, texts.offsets, places, chunk_texts, spanning_texts)

    def _matches(self, data: bytes, offsets: Places) -> tuple[Places, Places, Places]:
        """The text and offset of each match of a substring, and the texts that longer matches reach into."""
        stripped = data.translate(_LOWER, delete=_JOINERS)
        bytes_before = np.empty(0, dtype=np.int64)  # for each joiner, the number of other bytes before it
        if len(stripped) < len(data):
            joiners = np.flatnonzero(np.isin(np.frombuffer(data, dtype=np.uint8), list(_JOINERS)))
            bytes_before = joiners - np.arange(len(joiners))
            offsets = offsets - np.searchsorted(joiners, offsets)
        hits, spanning_texts = [bytes_before[:0]], [bytes_before[:0]]
        for length, start in self._patterns:
            places = np.array([match.start() for match in start.finditer(stripped)], dtype=np.int64)
            first = np.searchsorted(offsets, places, side="right") - 1
            last = np.searchsorted(offsets, places + length - 1, side="right") - 1
            if (last > first).any():
                # A match at the end of a text may reach into the next texts, and hide matches there.
                spanning_texts.append(
                    ranges(first, last - first + 1)[np.repeat(last > first, last - first + 1)]
                )
                places = places[last == first]
            hits.append(places)
        places = np.concatenate(hits)
        return (
            np.searchsorted(offsets, places, side="right") - 1,
            places + np.searchsorted(bytes_before, places, side="right"),
            distinct(np.concatenate(spanning_texts)),
        )


Bitmaps: TypeAlias = npt.NDArray[np.int16]
Numbered: TypeAlias = tuple[tuple[int, Alternative], ...]
"""Alternatives, each with the bit it sets."""

# Above the bits of 8 slots and of the exclusions; one flag for each phrase.
_FIRST_FLAG: Final = 16


class PredicateMemory(ChunkMemory[Entry]):
    """Finds predicates, identified by positive numbers, in chunks.

    A single chunk cannot contain a whole phrase: its longest word only makes the phrase possible, and only
    texts with that word are compared word by word. A part of a longer compound is looked up by its longest
    run of pieces that are joined by signs, since many compounds share words such as ``com``.
    """

    def __init__(self, analyzer: Analyzer) -> None:
        super().__init__()
        self._analyzer = analyzer
        self._words = WordPredicates()
        self._longest: defaultdict[str, list[int]] = defaultdict(list)
        self._joined: defaultdict[str, list[int]] = defaultdict(list)  # by the longest part of a compound
        self._sizes: Counter[int] = Counter()  # the sizes of these parts, in pieces
        self._phrases: dict[int, Phrase] = {}
        self._count = 0

    @property
    def has_predicates(self) -> bool:
        """True if there is any predicate."""
        return self._count > 0

    def add(self, predicate: int, alternative: Alternative) -> None:
        self.clear()
        self._count += 1
        match alternative:
            case Phrase():
                predicates_by_key, key = self._lists_for(alternative)
                predicates_by_key[key].append(predicate)
                self._phrases[predicate] = alternative
            case Condition():
                raise ValueError("no text satisfies a condition")
            case _:
                self._words.add(alternative, predicate)

    def remove(self, predicate: int, alternative: Alternative) -> None:
        self.clear()
        self._count -= 1
        if isinstance(alternative, Phrase):
            withdraw(*self._lists_for(alternative, count=-1), predicate)
            del self._phrases[predicate]
            self._sizes = +self._sizes
        elif not isinstance(alternative, Condition):
            self._words.remove(alternative, predicate)

    def _lists_for(self, phrase: Phrase, count: int = 1) -> tuple[dict[str, list[int]], str]:
        """The lists of predicates by longest word or part of a compound, and the phrase's key in them."""
        if not phrase.spelled:
            return self._longest, max(phrase.stems, key=len)
        longest_piece = longest_part(phrase.spelled)
        self._sizes[len(PIECE.findall(longest_piece))] += count
        return self._joined, longest_piece

    def satisfied(self, chunk: str) -> Iterator[int]:
        """The predicates that a chunk satisfies, perhaps repeated; possible phrases have negative numbers."""
        tokens_of_chunk = analyse(chunk, self._analyzer).tokens
        for token in tokens_of_chunk:
            yield from self._words.of(token)
            if not token.whole:
                yield from (-phrase for phrase in self._longest.get(token.stem, ()))
        for part in self._parts(chunk, tokens_of_chunk) if self._sizes else ():
            for phrase in self._joined.get(part, ()):
                yield phrase if self._phrases[phrase].spelled == part else -phrase

    def _parts(self, chunk: str, tokens_of_chunk: Sequence[Token]) -> Iterator[str]:
        """The runs of a chunk's pieces that are as long as a searched part of a compound."""
        pieces = [token for token in tokens_of_chunk if not token.whole]
        for size in self._sizes:
            for i in range(len(pieces) - size + 1):
                yield spelled(chunk, pieces[i : i + size])


class ChunkTable(PredicateMemory[int]):
    """Maps chunks to bits, and to flags of possible phrases."""

    def __init__(self, numbered_alternatives: Numbered, analyzer: Analyzer = Analyzer.ENGLISH) -> None:
        super().__init__(analyzer)
        self.possible = 0
        self._phrase_bits: dict[int, int] = {}  # bits, by flag
        for bit, alternative in numbered_alternatives:
            self.possible |= bit
            predicate = bit
            if isinstance(alternative, Phrase):
                predicate = 1 << (_FIRST_FLAG + len(self._phrase_bits))
                self._phrase_bits[predicate] = bit
            self.add(predicate, alternative)
        alternatives = [alternative for _, alternative in numbered_alternatives]
        self._candidates = CandidateTexts(alternatives)
        self._hopeless = self._candidates.hopeless

    def find(self, text: str) -> int:
        """The bits of the alternatives that ``text`` satisfies."""
        return 0 if self._hopeless(text) else self._bits_of(text)

    def _bits_of(self, text: str) -> int:
        bits = 0
        for chunk in chunks(text, self._analyzer):
            bits |= self[chunk]
        return bits if bits >> _FIRST_FLAG == 0 else self._with_phrases(bits, text)

    def find_in(self, parts: Sequence[tuple[Column, Bitmaps]]) -> None:
        """Add the bits of the texts of each column to its bitmaps; NULL satisfies nothing."""
        if not self.possible or not parts:
            return
        texts = Texts.of([column for column, _ in parts])
        bits_of_texts: Bitmaps = np.zeros(len(texts), dtype=np.int16)
        candidates = self._candidates.of(texts)
        if candidates is None:
            bits_of_texts[:] = list(map(self.find, texts.tolist()))
        else:
            whole_texts = candidates.texts
            if self._phrase_bits:
                whole_texts = candidates.places()
            else:
                bits_of_chunks = np.array(list(map(self.__getitem__, candidates.chunks())), dtype=np.int16)
                np.bitwise_or.at(bits_of_texts, candidates.chunk_texts, bits_of_chunks)
            bits_of_texts[whole_texts] |= np.array(
                list(map(self._bits_of, texts.at(whole_texts))), dtype=np.int16
            )
        pieces = np.split(bits_of_texts, np.cumsum([len(bits) for _, bits in parts])[:-1])
        for (_, bits), piece in zip(parts, pieces, strict=True):
            bits |= piece  # noqa: PLW2901 - in place

    def look_up(self, chunk: str) -> int:
        value = 0
        for predicate in () if self._hopeless(chunk) else self.satisfied(chunk):
            value |= -predicate if predicate < 0 else self._phrase_bits.get(predicate, predicate)
        return value

    def _with_phrases(self, flags: int, text: str) -> int:
        """``flags`` with the bits of the phrases in ``text`` in place of their flags."""
        words = stems(text, self._analyzer)
        bits = flags & ((1 << _FIRST_FLAG) - 1)
        for flag, bit in self._phrase_bits.items():
            if flags & flag and contains(words, self._phrases[flag], text):
                bits |= bit
        return bits


def longest_part(compound: str) -> str:
    """The longest part of a ``spelled`` compound whose pieces are joined by signs that matter."""
    return max(compound.split(" "), key=len)
