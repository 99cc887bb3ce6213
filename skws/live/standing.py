"""A standing query: its name, its text, and how the text is meant."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from windows.window import ExpressionWindow

KEYWORDS: Final = "keywords"
PATTERN: Final = "pattern"
SQL: Final = "sql"
SELECTED: Final = "selected"
"""A pattern whose matches show the attributes that its option ``select`` names."""
SELECT: Final = "select"
WINDOWED: Final = "windowed"
"""Keywords over the windows of an expression, which its options say."""
WINDOW: Final = "window"
ALLOWED: Final = "allow_unbounded_windows"


@dataclass(frozen=True, slots=True)
class Standing:
    """Immutable and JSON throughout: journals, control folders and state stores keep it.

    ``kind``: a name of ``skws.live.kinds``; ``options``: what it needs besides.
    """

    name: str
    query: str
    max_size: int
    kind: str = KEYWORDS
    options: Mapping[str, str] = field(default_factory=dict)

    def answers_like(self, other: Standing) -> bool:
        """True if both give the same results, which name their query by its text."""
        return (self.query, self.max_size, self.kind, dict(self.options)) == (
            other.query,
            other.max_size,
            other.kind,
            dict(other.options),
        )


@dataclass(frozen=True, slots=True)
class Query:
    """What a standing query is to be, before it has a name. ``max_size``: None for the stream's."""

    text: str
    max_size: int | None = None
    kind: str = KEYWORDS
    options: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of_pattern(cls, text: str, select: str | None = None, max_size: int | None = None) -> Query:
        """A pattern; ``select``: the attributes that its matches show (by commas), None for whole tuples."""
        if select is None:
            return cls(text, max_size, PATTERN)
        return cls(text, max_size, SELECTED, {SELECT: select})

    def named(self, name: str, max_size: int) -> Standing:
        """The standing query of a name; ``max_size``: that of the stream."""
        return Standing(name, self.text, self.max_size or max_size, self.kind, dict(self.options))

    def over(self, window: ExpressionWindow, *, allowed: bool) -> Query:
        """The same over the windows of an expression; ``allowed``: even if these pile up."""
        options = {**self.options, WINDOW: window.text, **({ALLOWED: "yes"} if allowed else {})}
        return Query(self.text, self.max_size, self.kind if self.kind == PATTERN else WINDOWED, options)
