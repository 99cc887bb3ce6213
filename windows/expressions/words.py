"""The plainest meaning of "contains a keyword", for when no text analysis is given."""

from __future__ import annotations

import re

_WORD = re.compile(r"\w+")


def contains_word(keyword: str, text: str) -> bool:
    """Whether all words of ``keyword`` are words of ``text``, whatever their case."""
    return set(_WORD.findall(keyword.casefold())) <= set(_WORD.findall(text.casefold()))
