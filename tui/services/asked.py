"""What is asked for in the query box: keywords, or what a prefix says of the text behind it.

``pattern: ...`` is a pattern, ``pattern select v.page: ...`` one that shows
attributes; ``rank: ...`` keywords with scores; ``top 5: ...``
their best results, ``top 5 window 1 hour: ...`` in a window of its own, ``top 5
group: ...`` near-duplicates as one; both fade by ``half-life 2 hours``;
``window open when ... close when ...: ...`` keywords over the windows of an
expression. All of the text names the query.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from schema.errors import UsageError
from skws.live.standing import KEYWORDS, WINDOW, Query

if TYPE_CHECKING:
    from skws.ranking.choice import RankingChoice

# A colon with a word right behind it binds a keyword to a relation.
_PREFIX: Final = re.compile(
    r"\s*(?:(?P<pattern>pattern\s*:|pattern\s+select\b\s*(?P<select>[^:]*?)\s*:(?=\s))"
    r"|(?P<rank>rank)(?:\s+(?P<ranking>\w+))?(?:\s+half-life\s+(?P<fading>.+?))?:(?=\s)"
    r"|top\s+(?P<top>\d+)(?P<group>\s+group)?(?:\s+half-life\s+(?P<top_fading>.+?))?(?:\s+window\s+(?P<within>.+?))?:(?=\s)"
    r"|window\s+(?P<window>.+?):(?=\s))\s*"
)


@dataclass(frozen=True, slots=True)
class Asked:
    """``text``: what is searched, which results name; ``prefix``: all before it. The rest is what it says."""

    text: str
    prefix: str = ""
    pattern: bool = False
    rank: bool = False
    ranking: str = ""
    top: int | None = None
    window: str = ""
    group: bool = False
    half_life: str = ""
    select: str | None = None

    @property
    def scored(self) -> bool:
        return self.rank or self.top is not None

    def query(self, *, allow_unbounded_windows: bool = False) -> Query:
        """As it shall stand. Raises UsageError."""
        if self.pattern:
            return Query.of_pattern(self.text, self.select)
        if self.scored:
            return self._scored()
        return self._windowed(allowed=allow_unbounded_windows) if self.window else Query(self.text)

    def _scored(self) -> Query:
        from skws.live.ranked import TOP, ranking_options, top_options  # noqa: PLC0415 - loads the engine
        from skws.ranking.top import TopChoice  # noqa: PLC0415

        options = ranking_options(self._choice())
        if self.top is None:
            return Query(self.text, kind=KEYWORDS, options=options)
        options |= top_options(TopChoice(self.top, self.group)) | (
            {WINDOW: self.window} if self.window else {}
        )
        return Query(self.text, kind=TOP, options=options)

    def _choice(self) -> RankingChoice:
        from skws.ranking.choice import RankingChoice  # noqa: PLC0415 - as above
        from skws.ranking.rankings import DEFAULT  # noqa: PLC0415
        from windows.window import parse_duration  # noqa: PLC0415

        half_life = parse_duration(self.half_life, what="half-life") if self.half_life else None
        return RankingChoice(self.ranking or DEFAULT, half_life, explain=True)

    def _windowed(self, *, allowed: bool) -> Query:
        from windows.window import ExpressionWindow, parse_window  # noqa: PLC0415 - as above

        window = parse_window(self.window)
        if not isinstance(window, ExpressionWindow):
            raise UsageError(
                f"window {self.window}: keywords share the window of the stream; expected an expression"
                f" (open when ... close when ...), or top 5 window {self.window}: KEYWORDS"
            )
        return Query(self.text).over(window, allowed=allowed)


def read_asked(asked: str) -> Asked:
    """What a text in the query box asks for."""
    found = _PREFIX.match(asked)
    if found is None:
        return Asked(asked.strip())
    top = found["top"]
    return Asked(
        asked[found.end() :].strip(),
        found.group(),
        found["pattern"] is not None,
        found["rank"] is not None,
        found["ranking"] or "",
        None if top is None else int(top),
        found["within"] or found["window"] or "",
        found["group"] is not None,
        found["fading"] or found["top_fading"] or "",
        found["select"],
    )


def is_pattern(asked: str) -> bool:
    """True if a pattern is asked for, no keywords."""
    return read_asked(asked).pattern


def query_of(asked: str) -> str:
    """The text that results name."""
    return read_asked(asked).text
