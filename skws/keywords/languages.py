"""Stemmers and stop words of the languages that a schema may name, by Whoosh (Snowball's, and Porter 2)."""

from __future__ import annotations

import unicodedata
from collections.abc import Callable
from functools import cache
from typing import Any, Final

from whoosh.analysis.filters import STOP_WORDS
from whoosh.lang.porter2 import stem as porter2

from skws.keywords.alphabet import fold
from skws_schema.model import Analyzer

MEMORABLE: Final = 64
"""Longer words (in characters) are no words that recur: they are neither remembered nor stemmed."""
_CODES: Final = {
    Analyzer.DANISH: "da",
    Analyzer.DUTCH: "nl",
    Analyzer.FINNISH: "fi",
    Analyzer.FRENCH: "fr",
    Analyzer.GERMAN: "de",
    Analyzer.HUNGARIAN: "hu",
    Analyzer.ITALIAN: "it",
    Analyzer.NORWEGIAN: "no",
    Analyzer.PORTUGUESE: "pt",
    Analyzer.ROMANIAN: "ro",
    Analyzer.RUSSIAN: "ru",
    Analyzer.SPANISH: "es",
    Analyzer.SWEDISH: "sv",
}


def stem(word: str, analyzer: Analyzer = Analyzer.ENGLISH, raw: str = "") -> str:
    """The stem of a folded word, which was written ``raw``; a word of another script is its own stem."""
    if analyzer is Analyzer.ENGLISH:
        if len(word) > MEMORABLE or not (word.isascii() and word.isalpha()):
            return word
        stemmed: str = porter2(word)  # type: ignore[no-untyped-call]  # Whoosh is typed in part
        return stemmed
    if analyzer not in _CODES or len(word) > MEMORABLE or not word.isalpha():
        return word
    if analyzer is Analyzer.RUSSIAN:
        # Folding takes the breve from the letter that most endings have.
        spelled = unicodedata.normalize("NFC", raw or word).lower().replace("ё", "е")
        return fold(_stemmer(analyzer)(spelled))
    return _stemmer(analyzer)(word)


@cache
def stop_words(analyzer: Analyzer) -> frozenset[str]:
    """The words that are too common to be looked for, folded."""
    if analyzer is Analyzer.ENGLISH:
        return frozenset(STOP_WORDS)
    if analyzer not in _CODES:
        return frozenset()
    from whoosh.lang.stopwords import stoplists  # noqa: PLC0415 - large, and only for other languages

    return frozenset(map(fold, stoplists.get(_CODES[analyzer], ())))  # there are none for Romanian


@cache
def _stemmer(analyzer: Analyzer) -> Callable[[str], str]:
    from whoosh.lang.snowball import classes  # noqa: PLC0415 - many modules, and only for other languages

    of_language: Any = classes[_CODES[analyzer]]()
    return of_language.stem  # type: ignore[no-any-return]  # Whoosh is typed in part
