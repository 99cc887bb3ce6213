"""Maps the texts of a column to the bits of the alternatives that they satisfy.

Texts are cut at white space and each distinct chunk is analysed when first
met; from then on it is one look-up. Of whole columns, only the texts that can
match are looked at.

Which texts of a column can match at all: those to be analysed.

Where a text of ASCII holds a substring that some keyword begins with, it is a
candidate; all texts are searched at once, at the speed of memory. Other texts
are left to a regular expression, Python's or, where there are many, Arrow's.
"""

from __future__ import annotations

import re
from abc import abstractmethod
from collections.abc import Sequence
from typing import Final, Generic, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt

from skws.data.texts import Column, Places, Texts
from skws.keywords.analysis import MEMORABLE, analyse, chunks, stems
from skws.keywords.prefilter import ASCII_JOINERS, condition, hopeless, substrings
from skws.keywords.query import Alternative, Condition, Phrase
from skws.keywords.words import WordPredicates
from skws_mesh.columnar.columns import distinct
from skws_schema.model import Analyzer

_REMEMBERED: Final = 500_000  # chunks

Known = TypeVar("Known")


class ChunkMemory(dict[str, Known], Generic[Known]):
    """From chunks, parts of texts between white space; filled as they are met, emptied when too large."""

    @abstractmethod
    def look_up(self, chunk: str) -> Known:
        """The value of a new chunk."""

    def __missing__(self, chunk: str) -> Known:
        found = self.look_up(chunk)
        if len(chunk) <= MEMORABLE:
            if len(self) >= _REMEMBERED:
                self.clear()
            self[chunk] = found
        return found


_ARROW_PAYS: Final = 5_000  # texts in all
_MOST: Final = 32  # substrings, each of which is looked for in all bytes
_LOWER: Final = bytes(range(256)).lower()
_JOINERS: Final = "".join(ASCII_JOINERS).encode()


class Candidates:
    """The texts that may satisfy any of some alternatives."""

    def __init__(self, alternatives: Sequence[Alternative]) -> None:
        self._condition = condition(alternatives)
        self._matched = 0  # by the regular expression, so far
        plain = substrings(alternatives)
        few = plain is not None and len(plain) <= _MOST
        self._plain = [re.compile(re.escape(start.encode())) for start in plain or ()] if few else None

    def of(self, texts: Texts) -> Places | None:
        """The places of the candidates in order; None if the alternatives do not narrow them."""
        if self._condition is None:
            return None
        if self._plain is None:
            return self._matching(texts, np.arange(len(texts)))
        if texts.data.isascii():
            return self._holding(texts.data, texts.offsets)
        foreign = np.flatnonzero(np.frombuffer(texts.data, dtype=np.uint8) >= 0x80)
        others = distinct(np.searchsorted(texts.offsets, foreign, side="right") - 1)
        found = self._matching(texts, others)
        return distinct(np.concatenate([found, self._holding(texts.data, texts.offsets)]))

    def _matching(self, texts: Texts, places: Places) -> Places:
        """Of the texts at some places those that meet the condition."""
        self._matched += len(places)
        chosen = texts.at(places)
        if self._matched < _ARROW_PAYS:
            search = re.compile(self._condition or "").search
            return places[[place for place, text in enumerate(chosen) if search(text)]]
        import pyarrow as pa  # noqa: PLC0415 - it takes long to load
        import pyarrow.compute as pc  # noqa: PLC0415 - as above

        from skws.data.arrow import flags  # noqa: PLC0415 - as above

        return places[flags(pc.match_substring_regex(pa.array(chosen, pa.large_string()), self._condition))]

    def _holding(self, data: bytes, offsets: Places) -> Places:
        """The texts that hold a substring, perhaps also some of more than ASCII, or with a part of one."""
        bare = data.translate(_LOWER, delete=_JOINERS)
        if len(bare) < len(data):
            joiners = np.flatnonzero(np.isin(np.frombuffer(data, dtype=np.uint8), list(_JOINERS)))
            offsets = offsets - np.searchsorted(joiners, offsets)
        places = [match.start() for start in self._plain or () for match in start.finditer(bare)]
        return distinct(np.searchsorted(offsets, places, side="right") - 1)


Bitmaps: TypeAlias = npt.NDArray[np.int16]
Numbered: TypeAlias = tuple[tuple[int, Alternative], ...]
"""Alternatives, each with the bit it sets."""

# Above the bits of 8 slots and of the exclusions; one for each phrase.
_FIRST_FLAG: Final = 16


class ChunkTable(ChunkMemory[int]):
    """From chunks to bits and flags.

    A phrase cannot be recognized in a single chunk: its longest word sets a flag,
    and only texts with a flag are compared word by word.
    """

    def __init__(self, numbered: Numbered, analyzer: Analyzer = Analyzer.ENGLISH) -> None:
        super().__init__()
        self._analyzer = analyzer
        self.possible = 0
        self._words = WordPredicates()
        self._phrases: list[tuple[tuple[str, ...], int]] = []
        self._flags: dict[str, int] = {}
        for bit, alternative in numbered:
            self.possible |= bit
            self._add(alternative, bit)
        alternatives = [alternative for _, alternative in numbered]
        self._hopeless = hopeless(alternatives)
        self._candidates = Candidates(alternatives)

    def find(self, text: str) -> int:
        """The bits of the alternatives that ``text`` satisfies."""
        return 0 if self._hopeless(text) else self._found(text)

    def _found(self, text: str) -> int:
        found = 0
        for chunk in chunks(text, self._analyzer):
            found |= self[chunk]
        return found if found >> _FIRST_FLAG == 0 else self._with_phrases(found, text)

    def find_in(self, parts: Sequence[tuple[Column, Bitmaps]]) -> None:
        """Add to the bitmaps of each column the bits of its texts; NULL satisfies nothing."""
        if not self.possible or not parts:
            return
        texts = Texts.of([column for column, _ in parts])
        found: Bitmaps = np.zeros(len(texts), dtype=np.int16)
        candidates = self._candidates.of(texts)
        chosen = np.arange(len(texts)) if candidates is None else candidates
        find = self.find if candidates is None else self._found
        found[chosen] = np.array(list(map(find, texts.at(chosen))), dtype=np.int16)
        pieces = np.split(found, np.cumsum([len(bits) for _, bits in parts])[:-1])
        for (_, bits), piece in zip(parts, pieces, strict=True):
            bits |= piece  # noqa: PLW2901 - in place

    def _add(self, alternative: Alternative, bit: int) -> None:
        match alternative:
            case Phrase(stems=words):
                flag = 1 << (_FIRST_FLAG + len(self._phrases))
                longest = max(words, key=len)
                self._flags[longest] = self._flags.get(longest, 0) | flag
                self._phrases.append((words, bit))
            case Condition():
                raise ValueError("no text satisfies a condition")
            case _:
                self._words.add(alternative, bit)

    def look_up(self, chunk: str) -> int:
        found = 0
        for token in () if self._hopeless(chunk) else analyse(chunk, self._analyzer).tokens:
            for bit in self._words.of(token):
                found |= bit
            if not token.whole:
                found |= self._flags.get(token.stem, 0)
        return found

    def _with_phrases(self, found: int, text: str) -> int:
        """``found`` with the bits of the phrases in ``text`` in place of their flags."""
        words = stems(text, self._analyzer)
        bits = found & ((1 << _FIRST_FLAG) - 1)
        for number, (phrase, bit) in enumerate(self._phrases):
            if found >> (_FIRST_FLAG + number) & 1 and contains(words, phrase):
                bits |= bit
        return bits


def contains(words: Sequence[str], phrase: Sequence[str]) -> bool:
    """True if ``phrase`` is a run of consecutive ``words``."""
    size = len(phrase)
    return any(words[i : i + size] == phrase for i in range(len(words) - size + 1) if words[i] == phrase[0])
