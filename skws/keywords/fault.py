"""How a fault in a keyword query is shown: the message, the query, a caret below the place."""

from __future__ import annotations

from schema.errors import QueryError

_SHOWN = 72


def fault(message: str, text: str, position: int | None = None) -> QueryError:
    """The error for a query ``text`` that is wrong at ``position`` (an offset in characters)."""
    if position is None:
        return QueryError(message)
    start = max(0, position - _SHOWN // 2)
    shown = text[start : start + _SHOWN]
    # What is not printable would move the caret (or the cursor).
    return QueryError(f"{message}\n  {visible(shown)}\n  {' ' * (position - start)}^")


def visible(text: str) -> str:
    """The text with blanks for what is not printable."""
    return "".join(char if char.isprintable() else " " for char in text)
