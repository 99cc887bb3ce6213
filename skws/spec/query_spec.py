"""A query before it is parsed: its text, kind and options, and the choices of rankings and best results."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from json import dumps
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from skws.spec.enums import DEFAULT_MAX_SIZE, EvaluatorName, ToldUpdates
from skws_mesh.mesh_kinds import MeshChoice
from skws_schema.errors import UsageError, shown
from skws_schema.model import Schema
from skws_windows.window import (
    MICROSECOND,
    CountWindow,
    ExpressionWindow,
    TimeWindow,
    Window,
    parse_duration,
    parse_window,
)

if TYPE_CHECKING:
    from skws.data.batch import RecordBatch

DEFAULT: Final = "relevance"


@dataclass(frozen=True, slots=True)
class RankingChoice:
    """``name``: a ranking of ``skws.ranking.rankings``. ``explain``: results show the parts of their score.

    ``half_life``: the microseconds in which freshness halves; None for half of a window of time.
    """

    name: str = DEFAULT
    half_life: int | None = None
    explain: bool = False

    def fading(self, window: Window) -> float | None:
        """The half-life in seconds; None if scores do not fade."""
        if self.half_life is not None:
            return self.half_life / MICROSECOND
        return window.length / 2 / MICROSECOND if isinstance(window, TimeWindow) else None


@dataclass(frozen=True, slots=True)
class TopChoice:
    """The number of best results. ``group``: near-duplicates count as one, and only the best is reported.

    ``append_only``: the user promises that nothing is deleted or replaced.
    Raises UsageError for a number below 1.
    """

    size: int
    group: bool = False
    append_only: bool = False

    def __post_init__(self) -> None:
        if self.size < 1:
            raise UsageError(f"--top {self.size}: expected a number above 0")


KEYWORDS: Final = "keywords"
PATTERN: Final = "pattern"
SQL: Final = "sql"
SELECT: Final = "select"
TOP: Final = "top"
"""Keywords; only the best results are reported."""
WINDOWED: Final = "windowed"
"""Keywords over the windows of the expression in the option ``window``."""
WINDOWS: Final = "windows"
"""A window expression whose windows are the results (``skws windows``)."""
PAIRS: Final = "pairs"
FORMULA: Final = "formula"
LOOKBACK: Final = "lookback"
PER: Final = "per"
AGGREGATES: Final = "aggregates"
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
# Words with a wildcard and values of comparisons are not completed.
_LAST_WORD: Final = re.compile(r"(?:^|(?<=[\s\"():!+-]))[^\s\"():*?~<>=!+-]+$")


@dataclass(frozen=True, slots=True)
class Query:
    """Immutable. ``kind`` is a name in ``skws.queries.kinds``; ``options`` depend on it.

    ``max_size``: the most tuples of a result; None for the stream's limit.
    ``name``: the query's name in a run; empty until it has one. ``tag``: opaque text of the caller, such as
    JSON; it is returned unchanged, and does not affect results.
    """

    text: str
    max_size: int | None = None
    kind: str = KEYWORDS
    options: Mapping[str, str] = field(default_factory=dict)
    name: str = ""
    tag: str = ""

    def __post_init__(self) -> None:
        """Raises UsageError for fields of other types, and for texts that cannot be encoded."""
        if not isinstance(self.options, Mapping):
            raise UsageError(f"options: expected texts by name, found {type(self.options).__name__}")
        size = self.max_size
        if size is not None and (not isinstance(size, int) or isinstance(size, bool) or size < 1):
            raise UsageError(f"max_size: expected a whole number of 1 or more, found {shown(size)}")
        for label, text in (("query", self.text), ("name", self.name), *self.options.items()):
            if not isinstance(text, str):
                raise UsageError(f"{label}: expected a text, found {type(text).__name__}")
            try:
                text.encode()
            except UnicodeEncodeError as error:
                raise UsageError(
                    f"{label} {text!a}: expected Unicode text, not half of a surrogate pair or a byte"
                    f" of another encoding (character {error.start + 1})"
                ) from None

    @classmethod
    def of_keywords(
        cls, text: str, ranking: RankingChoice | None = None, top: TopChoice | None = None
    ) -> Query:
        """Keywords; with a ranking, results have scores; with ``top``, only the best are reported."""
        options = {} if ranking is None else ranking_options(ranking)
        if top is None:
            return cls(text, None, KEYWORDS, options)
        return cls(text, None, TOP, options | top_options(top))

    @classmethod
    def of_pattern(cls, text: str) -> Query:
        return cls(text, kind=PATTERN)

    @classmethod
    def of_windows(
        cls,
        text: str = "",
        *,
        pairs: Sequence[tuple[str, str]] = (),
        formula: str = "",
        lookback: int = 0,
        select: str | None = None,
        per: Sequence[str] = (),
        aggregates: Sequence[str] = (),
    ) -> Query:
        """A window expression in one of three forms. Lists are JSON among the options."""
        options = {
            PAIRS: dumps(pairs) if pairs else "",
            FORMULA: formula,
            LOOKBACK: str(lookback) if lookback else "",
            SELECT: select or "",
            PER: dumps(per) if per else "",
            AGGREGATES: dumps(aggregates) if aggregates else "",
        }
        return cls(text, None, WINDOWS, {name: value for name, value in options.items() if value})

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Query:
        """Inverse of ``to_dict``."""
        return cls(
            values["query"],
            values["max_size"],
            values["kind"],
            values["options"],
            values["name"],
            values.get("tag", ""),
        )

    def to_dict(self) -> dict[str, Any]:
        """The form that journals, control folders and state stores keep."""
        values = {
            "name": self.name,
            "query": self.text,
            "max_size": self.max_size,
            "kind": self.kind,
            "options": dict(self.options),
        }
        return values | {"tag": self.tag} if self.tag else values

    @property
    def scored(self) -> bool:
        """True if its results have scores."""
        return self.kind == TOP or any(name in self.options for name in SCORED)

    def named(self, name: str, max_size: int) -> Query:
        """The same query with a name; ``max_size`` applies if it has none of its own."""
        # There may be many saved searches; most have both already, and replace is several times slower.
        if self.name == name and self.max_size:
            return self
        return Query(self.text, self.max_size or max_size, self.kind, self.options, name, self.tag)

    def over(self, window: ExpressionWindow, *, allowed: bool) -> Query:
        """The same query over the windows of an expression; ``allowed``: even if these can pile up."""
        options = {**self.options, WINDOW: window.text, **({ALLOWED: _YES} if allowed else {})}
        return replace(self, kind=WINDOWED, options=options)

    def over_expression(self, window: Window, *, allowed: bool = False) -> Query:
        """The same query, over the windows of an expression if its own window, or else ``window``, is one."""
        text = self.options.get(WINDOW)
        own = window if text is None else parse_window(text)
        if self.kind in (KEYWORDS, TOP) and isinstance(own, ExpressionWindow):
            return self.over(own, allowed=allowed)
        return self

    def answers_like(self, other: Query) -> bool:
        """True if both queries give the same results, whatever their names and tags."""
        return replace(self, name="", tag="") == replace(other, name="", tag="")


def last_word(text: str) -> str:
    """The word at the end of a text; empty if it does not end in one."""
    match = _LAST_WORD.search(text)
    return match.group() if match else ""


def completed(text: str, word: str) -> str:
    """The text with ``word`` in place of its last word."""
    return text[: len(text) - len(last_word(text))] + word


def corrected(text: str, corrections: Mapping[str, str]) -> str:
    """The text of a query with suggested keywords in place of those that were typed."""
    for word, correction in corrections.items():
        literal = correction.replace("\\", r"\\")
        text = re.sub(rf"(?<!\w){re.escape(word)}(?!\w)", literal, text, flags=re.IGNORECASE)
    return text


def ranking_options(ranking: RankingChoice) -> dict[str, str]:
    options = {RANK: ranking.name}
    if ranking.half_life is not None:
        options[HALF_LIFE] = f"{ranking.half_life} us"
    return options | ({EXPLAIN: _YES} if ranking.explain else {})


def top_options(top: TopChoice) -> dict[str, str]:
    """The number of best results, and how they are chosen, as options of a query."""
    options = {SIZE: str(top.size)}
    return options | {name: _YES for name, on in ((GROUP, top.group), (APPEND_ONLY, top.append_only)) if on}


@dataclass(frozen=True, slots=True)
class Stream:
    """The schema, the window of queries, and the lateness of records (microseconds of event time).

    ``match_names``: a keyword may also be the name of a relation or attribute. ``evaluator``: of candidate
    networks, unless ``mesh`` is one of the paper's; results do not depend on either. ``finite``: the stream
    ends, as a replay does, so nothing is kept for ever. ``overrides``: the window also applies to patterns
    with their own window. ``updates``: how updates of results are reported. ``sample``: the first records, by
    which the keywords of a query are ordered; results do not depend on it.
    """

    schema: Schema
    window: Window
    lateness: int = 0
    max_size: int = DEFAULT_MAX_SIZE
    match_names: bool = False
    evaluator: EvaluatorName = EvaluatorName.AUTO
    mesh: MeshChoice | None = None
    finite: bool = False
    overrides: bool = False
    updates: ToldUpdates = ToldUpdates.TELL
    sample: RecordBatch | None = field(default=None, compare=False, repr=False)

    @property
    def by_count(self) -> bool:
        """True if ticks count positions in the stream instead of microseconds."""
        return isinstance(self.window, CountWindow)


_ZERO: Final = re.compile(r"0+(?:\.0+)?\s*([a-zA-Z]*)")


def read_lateness(text: object) -> int:
    """A lateness in microseconds; unlike other durations it may be 0. Raises UsageError."""
    if not isinstance(text, str):
        raise UsageError(f"lateness: expected a duration such as '5 s', found {type(text).__name__}")
    zero = _ZERO.fullmatch(text.strip())
    if zero is not None and not zero[1]:
        return 0
    return parse_duration(text, what="lateness", may_be_zero=zero is not None)


class TypedSearch(NamedTuple):
    """A search as it was typed: its data, and the file of its schema, both quoted for a shell."""

    data: str
    schema: str
