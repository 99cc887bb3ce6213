"""What the texts of a column mean to a query: the bits of the alternatives that a text satisfies.

Texts are cut at white space and each distinct chunk is analysed when first
met; from then on it is one look-up. Of whole columns, only the texts that can
match are looked at.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt

from skws.keywords.analysis import analyse, stems
from skws.keywords.candidates import Candidates
from skws.keywords.chunks import ChunkMemory
from skws.keywords.prefilter import hopeless
from skws.keywords.query import Alternative, Phrase, Prefix, Term
from skws.texts import Column, Texts

Bitmaps: TypeAlias = npt.NDArray[np.int16]
Numbered: TypeAlias = tuple[tuple[int, Alternative], ...]
"""Alternatives, each with the bit it sets."""

# Above the bits of 8 slots and of the exclusions; one for each phrase.
_FIRST_FLAG: Final = 16


class ChunkTable(ChunkMemory[int]):
    """From chunks to bits and flags.

    A phrase cannot be told from a single chunk: its longest word sets a flag,
    and only texts with a flag are compared word by word.
    """

    def __init__(self, numbered: Numbered) -> None:
        super().__init__()
        self.possible = 0
        self._terms: dict[str, int] = {}
        self._prefixes: list[tuple[str, int]] = []
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
        for chunk in text.split():
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
            case Term(stem=stem):
                self._terms[stem] = self._terms.get(stem, 0) | bit
            case Prefix(start=start):
                self._prefixes.append((start, bit))
            case Phrase(stems=words):
                flag = 1 << (_FIRST_FLAG + len(self._phrases))
                longest = max(words, key=len)
                self._flags[longest] = self._flags.get(longest, 0) | flag
                self._phrases.append((words, bit))

    def look_up(self, chunk: str) -> int:
        found = 0
        for token in () if self._hopeless(chunk) else analyse(chunk).tokens:
            if token.searchable:
                found |= self._terms.get(token.stem, 0)
                for start, bit in self._prefixes:
                    if token.word.startswith(start):
                        found |= bit
            if not token.whole:
                found |= self._flags.get(token.stem, 0)
        return found

    def _with_phrases(self, found: int, text: str) -> int:
        """``found`` with the bits of the phrases in ``text`` in place of their flags."""
        words = stems(text)
        bits = found & ((1 << _FIRST_FLAG) - 1)
        for number, (phrase, bit) in enumerate(self._phrases):
            if found >> (_FIRST_FLAG + number) & 1 and contains(words, phrase):
                bits |= bit
        return bits


def contains(words: Sequence[str], phrase: Sequence[str]) -> bool:
    """True if ``phrase`` is a run of consecutive ``words``."""
    size = len(phrase)
    return any(words[i : i + size] == phrase for i in range(len(words) - size + 1) if words[i] == phrase[0])
