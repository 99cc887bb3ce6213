"""Standing queries as users write them on the command line."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from skws.cli import options
from skws.spec.query import Query
from skws_schema.errors import UsageError


def named_queries(
    words: list[str],
    patterns: list[str],
    given: Mapping[str, Query],
    select: str | None = None,
    without: Sequence[str] | None = None,
) -> dict[str, Query]:
    """Queries by name, those of a file among them; the others are named by their texts.

    ``select``: what the one pattern shows, None for whole tuples. ``without``: relations that the keywords
    leave out. Raises UsageError.
    """
    if select is not None and len(patterns) != 1:
        raise UsageError(f"--select needs one --pattern: there are {len(patterns)}")
    text = options.query_text(words, without)
    named = {text: Query(text)} if text else {}
    for pattern in patterns:
        if pattern in named:
            raise UsageError(f"--pattern {pattern!r}: there is a query of this text already")
        named[pattern] = pattern_query(pattern, select)
    return {**named, **given}


def pattern_query(text: str, select: str | None = None) -> Query:
    """The query that a pattern is; with ``select`` it shows attributes. Raises UsageError for no text."""
    return Query.of_pattern(options.query_text([text]), select)
