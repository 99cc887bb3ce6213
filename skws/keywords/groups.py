"""Cuts a query of keywords in order at the semicolons outside quotes and parentheses."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from skws.keywords.syntax import QUOTES, fault
from skws_schema.errors import QueryError


class Part(NamedTuple):
    """One group of keywords in the text of a query, and the place of the semicolon next to it."""

    start: int
    end: int
    semicolon: int

    def alone(self, text: str) -> str:
        """The text with blanks in place of the other parts, so that offsets stay."""
        return " " * self.start + text[self.start : self.end] + " " * (len(text) - self.end)


def parts(text: str) -> list[Part]:
    """The parts between semicolons; one if there is none. Raises QueryError."""
    cuts = list(_semicolons(text))
    if not cuts:
        return [Part(0, len(text), -1)]
    starts, ends = [0, *(cut + 1 for cut in cuts)], [*cuts, len(text)]
    found = [Part(*place) for place in zip(starts, ends, [cuts[0], *cuts], strict=True)]
    for part in found:
        if not text[part.start : part.end].strip():
            raise missing(part, text)
    return found


def missing(part: Part, text: str, reason: str = "") -> QueryError:
    """The error for a part without keywords."""
    side = "after" if part.semicolon < part.start else "before"
    return fault(f"there is no keyword {side} this ';'{reason}", text, part.semicolon)


def _semicolons(text: str) -> Iterator[int]:
    quoted, opened = False, 0
    for place, character in enumerate(text):
        if character in QUOTES:
            quoted = not quoted
        elif quoted:
            continue
        elif character in "()":
            opened += 1 if character == "(" else -1
        elif character == ";":
            if opened > 0:
                message = "';' says that all keywords before it come first; it cannot stand in parentheses"
                raise fault(message, text, place)
            yield place
