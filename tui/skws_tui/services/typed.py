"""The text of the query box: keywords, or a prefix for another kind of query.

Keywords alone give their best results if rows live until they are deleted, otherwise all results in order of
time, as ``all: ...`` always does.

- ``pattern: ...`` is a pattern;
- ``rank: ...`` gives results scores, and ``top 5: ...`` reports the best five, ``top 5 window 1 hour: ...``
  in a window of its own, ``top 5 group: ...`` with near-duplicates as one; with ``half-life 2 hours``, scores
  fade;
- ``window open when ... close when ...: ...`` searches the windows of an expression.

The whole text names the query; results name it without the prefix.

This module loads before the first picture; ``analyzer`` loads after it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Final

from skws.ranking.rankings import known_ranking
from skws.spec.query_spec import DEFAULT, WINDOW, Query, RankingChoice, TopChoice, corrected
from skws_schema.errors import UsageError
from skws_windows.window import ExpressionWindow, parse_duration, parse_window

_PATTERN: Final = re.compile(r"\s*pattern\s*:\s*")
# A colon directly before a word limits the keyword to a relation.
_END: Final = re.compile(r":(?=\s)\s*")
_PREFIX: Final = re.compile(
    r"\s*(?:all"
    r"|(?P<rank>rank)(?:\s+(?P<ranking>\w+))?(?:\s+half-life\s+(?P<fading>.+))?"
    # The lookbehind avoids a try at every blank of a row of blanks.
    r"|top\s+(?P<top>\d{1,9})(?P<group>\s+group)?(?:\s+half-life\s+(?P<top_fading>.+?))?(?:(?<!\s)\s+window\s+(?P<within>.+))?"
    r"|window\s+(?P<window>.+))",
    re.DOTALL,
)


_MEANT: Final = re.compile(r"\s*(?:pattern|all|rank|top|window|sql)\b[^:\"]*:(?=\s)", re.IGNORECASE)
_FORMS: Final = (
    "pattern:, all:, rank [NAME] [half-life TIME]:,"
    " top N [group] [half-life TIME] [window TIME]: or window EXPRESSION: before the query, one of them"
)


@dataclass(frozen=True, slots=True)
class TypedText:
    """A parsed text. ``text``: everything after ``prefix``; the other fields come from the prefix."""

    text: str
    prefix: str = ""
    pattern: bool = False
    rank: bool = False
    ranking: str = ""
    top: int | None = None
    window: str = ""
    group: bool = False
    half_life: str = ""

    @property
    def scored(self) -> bool:
        return self.rank or self.top is not None


def parse_typed(name: str) -> TypedText:
    """Split a text of the query box into its prefix and the rest."""
    if (pattern := _PATTERN.match(name)) is not None:
        return TypedText(name[pattern.end() :].strip(), pattern.group(), pattern=True)
    end = _END.search(name)
    prefix = None if end is None else _PREFIX.fullmatch(name, 0, end.start())
    if end is None or prefix is None:
        return TypedText(name.strip())
    top = prefix["top"]
    return TypedText(
        name[end.end() :].strip(),
        name[: end.end()],
        False,
        prefix["rank"] is not None,
        prefix["ranking"] or "",
        None if top is None else int(top),
        prefix["within"] or prefix["window"] or "",
        prefix["group"] is not None,
        prefix["fading"] or prefix["top_fading"] or "",
    )


def text_of(name: str) -> str:
    """A text of the query box without its prefix."""
    return parse_typed(name).text


def as_query(typed_text: TypedText, *, allow_unbounded_windows: bool = False) -> Query:
    """The query of a typed text. Raises UsageError."""
    if typed_text.pattern:
        return Query.of_pattern(typed_text.text)
    if (prefix_match := _MEANT.match(typed_text.text)) is not None:
        also = " after another prefix" if typed_text.prefix else ""
        raise UsageError(
            f"{prefix_match.group()}{also}: expected {_FORMS} (to search for the words, leave out the colon)"
        )
    if typed_text.scored:
        return _scored_query(typed_text)
    if not typed_text.window:
        return Query(typed_text.text)
    window = parse_window(typed_text.window)
    if not isinstance(window, ExpressionWindow):
        raise UsageError(
            f"window {typed_text.window}: keywords share the window of the stream; expected an expression"
            f" (open when ... close when ...), or top 5 window {typed_text.window}: KEYWORDS"
        )
    return Query(typed_text.text).over(window, allowed=allow_unbounded_windows)


def _scored_query(typed_text: TypedText) -> Query:
    half_life = parse_duration(typed_text.half_life, what="half-life") if typed_text.half_life else None
    choice = RankingChoice(known_ranking(typed_text.ranking or DEFAULT), half_life, explain=True)
    top = None if typed_text.top is None else TopChoice(typed_text.top, typed_text.group)
    query = Query.of_keywords(typed_text.text, choice, top)
    window_option = {WINDOW: typed_text.window} if top is not None and typed_text.window else {}
    return replace(query, options={**query.options, **window_option})


@dataclass(frozen=True, slots=True)
class SlotAnalysis:
    """A slot and the number of live tuples that match it.

    ``correction``: a similar word of the data if no tuple matches.
    """

    text: str
    count: int
    correction: str = ""


@dataclass(frozen=True, slots=True)
class Analysis:
    """The analysis of a half-typed query. ``fault``: why it cannot run.

    ``completions``: completions of the last word, with their counts; 0 for names of compared attributes.
    ``restricting``: conditions that are not slots. ``dropped``: stop words; ``ignored``: punctuation.
    ``start``: the offset of the keywords. ``tuples``: the number of live tuples that were counted;
    ``complete``: True if these are all.
    """

    text: str
    slots: tuple[SlotAnalysis, ...] = ()
    fault: str = ""
    dropped: tuple[str, ...] = ()
    ignored: tuple[str, ...] = ()
    start: int = 0
    tuples: int = 0
    complete: bool = True
    completions: tuple[tuple[str, int], ...] = ()
    restricting: tuple[str, ...] = ()

    @property
    def corrected(self) -> str:
        """The text with the suggested words in place of unknown ones."""
        prefix, text = self.text[: self.start], self.text[self.start :]
        return prefix + corrected(
            text, {slot.text: slot.correction for slot in self.slots if slot.correction}
        )
