"""Characters: those that make words, and their folded forms.

Folding makes case and accents irrelevant (``Café`` and ``cafe``, ``Straße`` and
``STRASSE``, full-width and plain letters). Only accents are removed, never the
vowel signs of Indic scripts or the voicing marks of kana, which distinguish words
apart.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping
from itertools import chain
from typing import Final

from whoosh.support.charset import accent_map


def _ranges(codes: list[int]) -> str:
    """The body of a regular expression's character class for ascending ``codes``."""
    runs: list[list[int]] = []
    for code in codes:
        if runs and code == runs[-1][1] + 1:
            runs[-1][1] = code
        else:
            runs.append([code, code])
    return "".join(f"{chr(first)}-{chr(last)}" for first, last in runs)


# Soft hyphen, zero-width characters, direction marks, variation selectors: invisible.
_INVISIBLE: Final = frozenset(
    chain(
        (0xAD, 0x34F, 0xFEFF),
        range(0x200B, 0x2010),
        range(0x2060, 0x2065),
        range(0xFE00, 0xFE10),
        range(0xE0100, 0xE01F0),
    )
)
# Code points among which all marks are: without ideographs, syllables and what has no text.
_MARKED: Final = (
    range(0x300, 0x3400),
    range(0xA000, 0xAC00),
    range(0xFB00, 0x17000),
    range(0x1B000, 0x1F000),
    range(0xE0100, 0xE01F0),
)
# Python's \w leaves combining marks out, so "cafe" + U+0301 would fall apart without them.
_MARKS: Final = _ranges(
    sorted(
        {
            *(code for code in chain(*_MARKED) if unicodedata.category(chr(code)) in {"Mn", "Mc", "Me"}),
            *_INVISIBLE,
            0xFF9E,  # half-width voicing marks of kana
            0xFF9F,
        }
    )
)
# Scripts written without spaces: every character is a word, and a word typed is a phrase of them.
_UNSPACED: Final = (
    "\u3005-\u3007\u3041-\u309a\u309d-\u309f\u30a1-\u30fa\u30fc-\u30ff\u3400-\u4dbf\u4e00-\u9fff"
    "\uf900-\ufaff\uff66-\uff9d\U00020000-\U000323af"
)
HYPHENS: Final = "-\u2010\u2011"
APOSTROPHES: Final = "'\u2019"
JOINERS: Final = f"{HYPHENS}{APOSTROPHES}&._"

PIECE: Final = re.compile(f"[{_UNSPACED}][{_MARKS}]*|(?:[^\\W_{_UNSPACED}]|[{_MARKS}])+")
"""The smallest unit that is looked for: a run of letters, digits and marks, or one unspaced character."""

COMPOUND: Final = re.compile(f"(?:(?<!\\.)\\.)?[\\w{_MARKS}]+(?:[{JOINERS}][\\w{_MARKS}]+)*(?:\\+\\+|#)?")
"""Pieces held together by joiners, with the dot of ``.NET`` (but no ellipsis) and the signs of ``C++``."""

UNSPACED: Final = re.compile(f"[{_UNSPACED}]")


def _letters() -> Mapping[int, str | None]:
    """Letters that no Unicode decomposition takes apart, and invisible characters to delete."""
    plain_letters: Mapping[int, str] = accent_map  # type: ignore[assignment]  # annotated before it is rekeyed
    table: dict[int, str | None] = {
        code: plain
        for code, plain in plain_letters.items()
        if chr(code).islower() and len(plain) == 1 and unicodedata.normalize("NFKD", chr(code)) == chr(code)
    }
    # One letter each in Whoosh's table (or none); these are the usual transliterations.
    table.update({ord("æ"): "ae", ord("œ"): "oe", ord("þ"): "th", ord("ð"): "d"})
    # Two apostrophes that Unicode counts as letters (Hawai\u02bbi) fold to nothing, like the others.
    table.update(dict.fromkeys((*_INVISIBLE, 0x2BB, 0x2BC)))
    return table


_LETTERS: Final = _letters()


def _is_accent(char: str) -> bool:
    # Classes 10 to 35 are the points of Hebrew and Arabic, 200 and more the accents around a
    # letter; those between are vowel signs, viramas and tones, which are spelling.
    combining = unicodedata.combining(char)
    return combining >= 200 or 10 <= combining <= 35


def _strip(text: str) -> str:
    decomposed = unicodedata.normalize("NFKD", text)
    return "".join(char for char in decomposed if not _is_accent(char))


def fold(text: str) -> str:
    """``text`` without case, accents, compatibility forms and invisible characters."""
    if text.isascii():
        return text.lower()
    # Accents go before case: the iota subscript would otherwise become a letter.
    folded = _strip(_strip(text).casefold()).translate(_LETTERS)
    return unicodedata.normalize("NFC", folded)
