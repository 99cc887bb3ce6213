"""Standing queries as users write them on the command line."""

from __future__ import annotations

from collections.abc import Mapping

from schema.errors import UsageError
from skws.cli import options
from skws.live.standing import PATTERN, Query


def named_queries(words: list[str], patterns: list[str], given: Mapping[str, Query]) -> dict[str, Query]:
    """Queries by name, those of a file among them; the others are named by their texts. Raises UsageError."""
    text = options.query_text(words)
    named = {text: Query(text)} if text else {}
    for pattern in patterns:
        if pattern in named:
            raise UsageError(f"--pattern {pattern!r}: there is a query of this text already")
        named[pattern] = pattern_query(pattern)
    return {**named, **given}


def pattern_query(text: str) -> Query:
    """The query that a pattern is. Raises UsageError for bytes that are no text."""
    return Query(options.query_text([text]), kind=PATTERN)
