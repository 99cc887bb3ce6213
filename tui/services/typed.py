"""What a half-typed query means, as it is shown: without what finds that out, which takes a while to load."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

_LAST_WORD: Final = re.compile(r"[^\s\"():*+-]+$")


@dataclass(frozen=True, slots=True)
class TypedSlot:
    """A slot, and how many live tuples match it; ``meant``: a word of the data, if none does."""

    text: str
    count: int
    meant: str = ""


@dataclass(frozen=True, slots=True)
class Reading:
    """``fault``: why the text cannot be run. ``completions``: what the last word may become, with counts.

    ``dropped``: words that are not searched; ``ignored``: punctuation.
    ``start``: where the keywords begin.
    """

    text: str
    slots: tuple[TypedSlot, ...] = ()
    fault: str = ""
    dropped: tuple[str, ...] = ()
    ignored: tuple[str, ...] = ()
    start: int = 0
    tuples: int = 0
    whole: bool = True
    completions: tuple[tuple[str, int], ...] = ()

    @property
    def corrected(self) -> str:
        """The text with the words that are meant; the text itself if none is."""
        prefix, text = self.text[: self.start], self.text[self.start :]
        for slot in self.slots:
            if slot.meant:
                text = re.sub(re.escape(slot.text), slot.meant, text, flags=re.IGNORECASE)
        return prefix + text


def last_word(text: str) -> str:
    """The word at the end of a text, empty if it does not end in one."""
    found = _LAST_WORD.search(text)
    return found.group() if found else ""


def completed(text: str, word: str) -> str:
    """The text with its last word made ``word``."""
    return text[: len(text) - len(last_word(text))] + word
