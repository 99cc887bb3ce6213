"""Removes the names and addresses of people from changelogs.

Names are taken from signatures, headings such as ``[ Ada Byron ]``, and fields such as ``Maintainer``; each
word of a name is one, too, if it never occurs in lower case. Other names are recognized after thanks, and
after words such as *by* that introduce an author.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from typing import Final

ADDRESS: Final = re.compile(r"<?[\w.+-]+@[\w-]+(?:\.[\w-]+)+>?")
_SHORT: Final = 2
_TOKEN: Final = re.compile(r"[^\W\d_][\w.'’-]*")
_CAPITAL: Final = r"[A-ZÀ-Þ][\w.'’-]+"
_JOINED: Final = rf"{_CAPITAL}(?:\s+(?:(?:van|von|de|der|den|la|and|&)\s+)*{_CAPITAL})"
_THANKED: Final = re.compile(
    rf"(?i:\bthank(?:s|\s+you)(?:\s+(?:go\s+)?to)?)[\s,:!]+(?P<names>{_JOINED}*(?:,\s+{_JOINED}*)*)"
)
_AUTHOR: Final = re.compile(rf"(?i:\b(?:by|from|author:|reported-by:))\s+(?P<names>{_JOINED}+)")


class People:
    """The names of people, and the words in them. ``usual_words``: words that occur in lower case.

    ``removed``: all words, in lower case, that ``without`` has removed so far.
    """

    def __init__(self, names: Iterable[str], usual_words: Collection[str]) -> None:
        self.removed: set[str] = set()
        self._names: dict[str, set[tuple[str, ...]]] = {}
        for name in names:
            words = _words(ADDRESS.sub(" ", name))
            if len(words) > 1:
                self._names.setdefault(words[0], set()).add(tuple(words[1:]))
            for word in words:
                if len(word) > _SHORT and not word.islower() and word.lower() not in usual_words:
                    self._names.setdefault(word, set()).add(())

    def without(self, text: str) -> str:
        """The text without people's names and addresses."""
        text = ADDRESS.sub(self._remove, text)
        for form in (_THANKED, _AUTHOR):
            text = form.sub(self._remove_names, text)
        tokens = list(_TOKEN.finditer(text))
        words = [_without_signs(token.group()) for token in tokens]
        parts, end = [], 0
        for index, token in enumerate(tokens):
            if token.start() < end or (length := self._length(words, index)) == 0:
                continue
            parts.append(text[end : token.start()])
            end = tokens[index + length - 1].end()
            self.removed |= {word.lower() for word in words[index : index + length]}
        return "".join([*parts, text[end:]])

    def _length(self, words: list[str], index: int) -> int:
        """The number of words of the longest name at a position; 0 if there is none."""
        known_names = self._names.get(words[index], ())
        return max(
            (
                1 + len(rest)
                for rest in known_names
                if tuple(words[index + 1 : index + 1 + len(rest)]) == rest
            ),
            default=0,
        )

    def _remove(self, match: re.Match[str]) -> str:
        self.removed |= {word.lower() for word in re.findall(r"\w+", match.group())}
        return ""

    def _remove_names(self, match: re.Match[str]) -> str:
        self.removed |= {word.lower() for word in re.findall(r"\w+", match["names"])}
        return match.group()[: match.start("names") - match.start()].rstrip()


def _words(text: str) -> list[str]:
    return [_without_signs(word) for word in _TOKEN.findall(text)]


def _without_signs(word: str) -> str:
    return word.rstrip(".'’-")
