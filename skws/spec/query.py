"""A standing query: its name, its text, and how the text is meant."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from skws.spec.ranking import RankingChoice, TopChoice
from skws_windows.window import ExpressionWindow

KEYWORDS: Final = "keywords"
PATTERN: Final = "pattern"
SQL: Final = "sql"
SELECTED: Final = "selected"
"""A pattern whose matches show the attributes that its option ``select`` names."""
SELECT: Final = "select"
TOP: Final = "top"
"""Keywords of which the best results are told."""
WINDOWED: Final = "windowed"
"""Keywords over the windows of an expression, which its options say."""
WINDOW: Final = "window"
ALLOWED: Final = "allow_unbounded_windows"
RANK: Final = "rank"
HALF_LIFE: Final = "half-life"
EXPLAIN: Final = "explain"
SIZE: Final = "size"
GROUP: Final = "group"
APPEND_ONLY: Final = "append-only"
SCORED: Final = (RANK, HALF_LIFE, EXPLAIN)
"""Options that ask for scores."""
_YES: Final = "yes"


@dataclass(frozen=True, slots=True)
class Standing:
    """Immutable and JSON throughout: journals, control folders and state stores keep it.

    ``kind``: a name of ``skws.queries.kinds``; ``options``: what it needs besides.
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
    def of_keywords(
        cls, text: str, ranking: RankingChoice | None = None, top: TopChoice | None = None
    ) -> Query:
        """Keywords, with scores or the best results alone if these are asked for."""
        options = {} if ranking is None else ranking_options(ranking)
        return (
            cls(text, None, KEYWORDS, options)
            if top is None
            else cls(text, None, TOP, options | top_options(top))
        )

    @property
    def scored(self) -> bool:
        """True if its results have scores."""
        return self.kind == TOP or any(name in self.options for name in SCORED)

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


def ranking_options(ranking: RankingChoice) -> dict[str, str]:
    """A ranking as options of a query."""
    chosen = {RANK: ranking.name}
    if ranking.half_life is not None:
        chosen[HALF_LIFE] = f"{ranking.half_life} us"
    return chosen | ({EXPLAIN: _YES} if ranking.explain else {})


def top_options(top: TopChoice) -> dict[str, str]:
    """How many of the best results, as options of a query."""
    chosen = {SIZE: str(top.size)}
    return chosen | {name: _YES for name, on in ((GROUP, top.group), (APPEND_ONLY, top.append_only)) if on}
