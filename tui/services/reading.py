"""Reads what is typed as it would be searched: slots, matching tuples, what may be meant, completions."""

from __future__ import annotations

from schema.errors import SkwsError
from skws.keywords import Matcher, Term, parse_query, suggest
from skws.keywords.alphabet import fold
from skws.keywords.query import Slot
from tui.services.asked import read_asked
from tui.services.live_rows import LiveRows, SlotCounts
from tui.services.typed import Reading, TypedSlot, last_word
from tui.services.view import View


def read(text: str, view: View, rows: LiveRows | None) -> Reading:
    """Analyse a text as it would be searched."""
    completions = tuple(complete(text, rows)) if rows is not None else ()
    asked = read_asked(text)
    if not asked.text:
        return Reading(text, completions=completions)
    try:
        if asked.prefix:
            view.meanings.standing(text)
        if asked.pattern:
            return Reading(text)
        query = parse_query(asked.text, view.schema, match_names=view.request.match_names)
    except SkwsError as error:
        return Reading(text, fault=str(error).splitlines()[0], completions=completions)
    if rows is None:
        slots = tuple(TypedSlot(slot.text, 0) for slot in query.slots)
        return Reading(text, slots, dropped=query.dropped, ignored=query.ignored)
    counts = rows.slot_counts(Matcher(query, view.schema))
    return Reading(
        text,
        _slots(query.slots, counts, rows),
        dropped=query.dropped,
        ignored=query.ignored,
        start=len(asked.prefix),
        tuples=counts.tuples,
        whole=counts.whole,
        completions=completions,
    )


def complete(text: str, rows: LiveRows) -> list[tuple[str, int]]:
    """How the last word may go on, by words of live tuples."""
    start = fold(last_word(text))
    return [(word, n) for word, n in rows.completions(start) if word != start] if start else []


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
