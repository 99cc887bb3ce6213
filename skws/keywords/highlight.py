"""Positions of a query's keywords in a text, found by the analysis that also matches tuples."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from skws.keywords.analysis import Token, tokens
from skws.keywords.conditions import text_satisfies
from skws.keywords.query import Alternative, Condition, KeywordQuery, Phrase, Slot
from skws.keywords.words import satisfies
from skws_schema.model import Schema

Span = tuple[int, int, int]


def highlight(query: KeywordQuery, schema: Schema, relation: str, attribute: str, text: str) -> list[Span]:
    """Spans (start, end, slot) of the keywords in an attribute's value, sorted, none overlapping.

    Offsets are in characters. Of overlapping spans the one that begins first
    stays, of those the longest. A value that satisfies a condition that is looked for is one span.
    None if the relation or the attribute was removed from the schema.
    """
    position = schema.index.get(relation)
    if position is None or attribute not in schema.relations[position].columns:
        return []
    column = schema.relations[position].columns[attribute]
    described = schema.relations[position].attributes[column]
    found = [
        (0, len(text), number)
        for number, slot in enumerate(query.slots)
        for each in slot.alternatives
        if isinstance(each, Condition) and each.relation == position
        if text_satisfies(each, column, described.type, text)
    ]
    if column not in schema.relations[position].search_columns:
        return _without_overlaps(found)
    words = list(tokens(text, described.analyzer))
    found += [
        (start, end, number)
        for number, slot in enumerate(query.slots)
        for alternative in slot.alternatives
        if alternative.applies(position, column)
        for start, end in _spans(alternative, words)
    ]
    return _without_overlaps(found)


def occurrences(slot: Slot, relation: int, column: int, text: str) -> int:
    """How often a slot's words, phrases and prefixes begin in a value; 0 if it cannot look there."""
    alternatives = [each for each in slot.alternatives if each.applies(relation, column)]
    if not alternatives:
        return 0
    words = list(tokens(text, alternatives[0].analyzer))
    return len({start for alternative in alternatives for start, _ in _spans(alternative, words)})


def _spans(alternative: Alternative, words: Sequence[Token]) -> Iterator[tuple[int, int]]:
    match alternative:
        case Phrase(stems=stems):
            pieces = [w for w in words if not w.whole]
            for i in range(len(pieces) - len(stems) + 1):
                run = pieces[i : i + len(stems)]
                if tuple(piece.stem for piece in run) == stems:
                    yield run[0].start, run[-1].end
        case Condition():
            return
        case _:
            yield from ((w.start, w.end) for w in words if satisfies(w, alternative))


def _without_overlaps(spans: list[Span]) -> list[Span]:
    kept: list[Span] = []
    for span in sorted(spans, key=lambda span: (span[0], -span[1], span[2])):
        if not kept or span[0] >= kept[-1][1]:
            kept.append(span)
    return kept
