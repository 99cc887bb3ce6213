"""What a half-typed query means: its slots with their live tuples, what may be meant, how it goes on."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from schema.errors import QueryError
from skws.keywords import Matcher, Term, parse_query, suggest
from skws.keywords.alphabet import fold
from skws.keywords.query import Slot
from tui.services.live_rows import LiveRows, SlotCounts
from tui.services.view import View

_LAST_WORD: Final = re.compile(r"[^\s\"():*+-]+$")


@dataclass(frozen=True, slots=True)
class TypedSlot:
    """A slot, and how many live tuples match it; ``meant``: a word of the data, if none does."""

    text: str
    count: int
    meant: str = ""


@dataclass(frozen=True, slots=True)
class Reading:
    """``fault``: why the text cannot be run. ``completions``: what the last word may become, with counts."""

    text: str
    slots: tuple[TypedSlot, ...] = ()
    fault: str = ""
    dropped: tuple[str, ...] = ()
    tuples: int = 0
    whole: bool = True
    completions: tuple[tuple[str, int], ...] = ()

    @property
    def corrected(self) -> str:
        """The text with the words that are meant; the text itself if none is."""
        text = self.text
        for slot in self.slots:
            if slot.meant:
                text = re.sub(re.escape(slot.text), slot.meant, text, flags=re.IGNORECASE)
        return text


def read(text: str, view: View, rows: LiveRows) -> Reading:
    """Analyse a text as it would be searched."""
    completions = tuple(complete(text, rows))
    if not text.strip():
        return Reading(text, completions=completions)
    try:
        query = parse_query(text, view.schema, match_names=view.request.match_names)
    except QueryError as error:
        return Reading(text, fault=str(error).splitlines()[0], completions=completions)
    counts = rows.slot_counts(Matcher(query, view.schema))
    return Reading(
        text,
        _slots(query.slots, counts, rows),
        dropped=query.dropped,
        tuples=counts.tuples,
        whole=counts.whole,
        completions=completions,
    )


def last_word(text: str) -> str:
    """The word at the end of a text, empty if it does not end in one."""
    found = _LAST_WORD.search(text)
    return found.group() if found else ""


def complete(text: str, rows: LiveRows) -> list[tuple[str, int]]:
    """How the last word may go on, by words of live tuples."""
    start = fold(last_word(text))
    return [(word, n) for word, n in rows.completions(start) if word != start] if start else []


def completed(text: str, word: str) -> str:
    """The text with its last word made ``word``."""
    return text[: len(text) - len(last_word(text))] + word


def _slots(slots: tuple[Slot, ...], counts: SlotCounts, rows: LiveRows) -> tuple[TypedSlot, ...]:
    absent = any(not count for count in counts.slots) and counts.tuples
    words = rows.words() if absent else {}
    return tuple(
        TypedSlot(slot.text, count, "" if count else _meant(slot, words))
        for slot, count in zip(slots, counts.slots, strict=True)
    )


def _meant(slot: Slot, words: object) -> str:
    if not isinstance(slot.alternatives[0], Term) or not isinstance(words, dict) or not words:
        return ""
    scope, colon, word = slot.text.rpartition(":")
    near = suggest(word, words, limit=1)
    return f"{scope}{colon}{near[0]}" if near else ""
