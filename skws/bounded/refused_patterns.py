"""Patterns without a window that show whole tuples: why these are not run for ever, and what would be."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from bounds.names import attribute_of
from bounds.verdict import check
from schema.errors import PatternError, UsageError
from schema.model import Schema
from skws.bounded.guard import FORCE
from skws.bounded.patterns import pattern_query, pattern_verdict
from skws.bounded.report import reasons

_MOST_TRIED: Final = 100
"""Attributes that are tried one by one."""


def refuse_whole_tuples(text: str, schema: Schema) -> None:
    """Raises UsageError with the conditions that fail, and the attributes that could be shown for ever."""
    raise UsageError("\n".join(_refusal(text, schema)))


def _refusal(text: str, schema: Schema) -> Iterator[str]:
    yield f"pattern {text!r}: without a window every tuple that it reads is kept for ever"
    shown: tuple[str, ...] | None = None
    try:
        union = pattern_query(text, schema)
        yield from reasons(union, pattern_verdict(text, schema))
        shown = showable(text, schema)
    except PatternError as error:
        yield f"  {error}"
    yield "any of these would make it bounded:"
    if shown is not None:
        yield f"  - show attributes instead of whole tuples (--select {','.join(shown) or repr('')})"
    yield "  - give it a window of its own (within 10 minutes), or all of them one (--window '10 minutes')"
    yield f"{FORCE} keeps all tuples for as long as there is memory"


def showable(text: str, schema: Schema) -> tuple[str, ...] | None:
    """The attributes that a pattern can show for ever in constant memory; None if not even a count can be.

    Raises PatternError.
    """
    union = pattern_query(text, schema, ())
    if not check(union).bounded:
        return None
    aliases = [{s.alias for s in q.streams} for q in union.queries]
    streams = [s for s in union.queries[0].streams if all(s.alias in known for known in aliases)]
    found: list[str] = []
    for stream in streams:
        for attribute in schema.relation(stream.relation).attributes[:_MOST_TRIED]:
            name = str(attribute_of(schema, stream, attribute.name))
            try:
                if check(pattern_query(text, schema, (*found, name))).bounded:
                    found.append(name)
            except UsageError:
                continue  # an alternative has no such attribute
    return tuple(found)
