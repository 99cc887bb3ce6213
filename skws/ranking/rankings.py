"""Rankings by name: which parts a score is the product of.

Each part of the built-in ones has a value by itself, too: what bounds compare
need not be explained. Another package adds its own by an entry point of the group ``skws.rankings``.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.metadata import entry_points
from math import exp, fsum, log, log2, prod
from typing import Final, Protocol, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt

from skws.results.model import FRESHNESS, Part
from skws.spec.query import DEFAULT
from skws_schema.errors import UsageError, nearest


@dataclass(frozen=True, slots=True)
class Match:
    """A keyword in one attribute of one tuple.

    ``occurrences``: how often it stands there. ``length``: of the text, in
    characters. ``texts``, ``containing`` and ``mean_length`` are of that
    attribute in the live tuples: how many are not NULL, how many contain the
    keyword, how long they are on average.
    """

    keyword: str
    tuple: str
    attribute: str
    occurrences: int
    length: int
    texts: int
    containing: int
    mean_length: float


@dataclass(frozen=True, slots=True)
class JoinFan:
    """A join of the result: on its busier side so many live ``tuples`` have the joined value."""

    name: str
    tuples: int


@dataclass(frozen=True, slots=True)
class Evidence:
    """``ages``: seconds from each stream tuple to the newest. ``half_life`` in seconds, None for none."""

    matches: tuple[Match, ...]
    size: int
    ages: tuple[float, ...]
    joins: tuple[JoinFan, ...]
    half_life: float | None


GROUP: Final = "skws.rankings"
_SATURATION: Final = 1.2  # k1 and b of BM25, as customary
_BY_LENGTH: Final = 0.75


Floats: TypeAlias = npt.NDArray[np.float64]
Number = TypeVar("Number", float, Floats)


class Ranking(Protocol):
    """Judges results. ``parts`` are above or equal to 0; their product is the score.

    ``uses_joins``: whether it asks for ``Evidence.joins``, which take time to
    count. A part called ``freshness`` is taken to fade with the half-life. One
    that also has a true ``monotone`` is never better for lighter keywords, more
    tuples or busier joins: over a database it can stop early.
    """

    @property
    def name(self) -> str: ...

    @property
    def uses_joins(self) -> bool: ...

    def parts(self, evidence: Evidence) -> tuple[Part, ...]: ...


def keyword_weight(match: Match) -> float:
    """BM25 of a keyword in an attribute, over that attribute of the live tuples.

    Robertson and Zaragoza, The Probabilistic Relevance Framework, 2009.
    """
    length = match.length / match.mean_length if match.mean_length else 1.0
    return keyword_rarity(match.texts, match.containing) * keyword_share(float(match.occurrences), length)


def keyword_rarity(texts: int, containing: int) -> float:
    """What a keyword weighs that ``containing`` of some texts contain."""
    return log(1 + (texts - containing + 0.5) / (containing + 0.5))


def keyword_share(occurrences: Number, length: Number) -> Number:
    """Of its rarity what a keyword weighs in a text, by the text's length as a share of the mean."""
    return occurrences * (_SATURATION + 1) / (occurrences + keyword_damping(length))


def keyword_damping(length: Number) -> Number:
    """What more occurrences have to outweigh in a text, by its length as a share of the mean."""
    return _SATURATION * (1 - _BY_LENGTH + _BY_LENGTH * length)


def keywords(evidence: Evidence) -> Part:
    """The sum over keywords of the weight in the tuple where it weighs most, attributes summed."""
    by_keyword: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    why = []
    for match in evidence.matches:
        weight = keyword_weight(match)
        by_keyword[match.keyword][match.tuple].append(weight)
        why.append(
            {
                "keyword": match.keyword,
                "tuple": match.tuple,
                "attribute": match.attribute,
                "weight": weight,
                "occurrences": match.occurrences,
                "length": match.length,
                "texts": match.texts,
                "containing": match.containing,
                "mean_length": match.mean_length,
            }
        )
    return Part(
        "keywords", fsum(max(map(fsum, tuples.values())) for tuples in by_keyword.values()), tuple(why)
    )


def size(evidence: Evidence) -> Part:
    """The fewer tuples it takes, the more closely its keywords belong together."""
    return Part("size", 1 / evidence.size, ({"tuples": evidence.size},))


def keywords_value(weights: Iterable[Sequence[float]]) -> float:
    """The part ``keywords`` of tuples, of which each has a weight for each keyword."""
    return fsum(map(max, zip(*weights, strict=True)))


def freshness(evidence: Evidence) -> Part:
    """The mean over the stream's tuples of what their age has left of them; 1 for the newest."""
    if evidence.half_life is None or not evidence.ages:
        return Part(FRESHNESS, 1.0)
    left = [0.5 ** (age / evidence.half_life) for age in evidence.ages]
    why = {"half_life": evidence.half_life, "ages": list(evidence.ages)}
    return Part(FRESHNESS, fsum(left) / len(left), (why,))


def specificity(evidence: Evidence) -> Part:
    """The geometric mean over joins; one through a value that many tuples share says little."""
    if not evidence.joins:
        return Part("specificity", 1.0)
    values = [_of_fan(join.tuples) for join in evidence.joins]
    why = tuple(
        {"join": join.name, "tuples": join.tuples, "value": value}
        for join, value in zip(evidence.joins, values, strict=True)
    )
    return Part("specificity", exp(fsum(map(log, values)) / len(values)), why)


def specificity_value(fans: Iterable[int], joins: int) -> float:
    """The part ``specificity`` of so many joins; what ``fans`` leaves out nobody shares."""
    return exp(fsum(map(_log_of_fan, fans)) / joins) if joins else 1.0


def log_of_fans(fans: npt.NDArray[np.int64]) -> Floats:
    """The logarithm of what joins with some fans give the part ``specificity``."""
    found: Floats = -np.log(1 + np.log2(np.maximum(fans, 1)))
    return found


def _of_fan(tuples: int) -> float:
    return 1 / (1 + log2(max(tuples, 1)))


@cache
def _log_of_fan(tuples: int) -> float:
    return log(_of_fan(tuples))


_Part: TypeAlias = Callable[[Evidence], Part]
_VALUES: Final[dict[_Part, Callable[[Sequence[Sequence[float]], int, Sequence[int]], float]]] = {
    keywords: lambda weights, size, fans: keywords_value(weights),  # noqa: ARG005
    size: lambda weights, size, fans: 1 / size,  # noqa: ARG005
    specificity: lambda weights, size, fans: specificity_value(fans, size - 1),  # noqa: ARG005
    freshness: lambda weights, size, fans: 1.0,  # noqa: ARG005
}


@dataclass(frozen=True, slots=True)
class Product:
    """A ranking by some parts."""

    name: str
    of: tuple[_Part, ...]
    monotone: bool = True

    @property
    def uses_joins(self) -> bool:
        return specificity in self.of

    @property
    def fades(self) -> bool:
        return freshness in self.of

    def parts(self, evidence: Evidence) -> tuple[Part, ...]:
        return tuple(part(evidence) for part in self.of)

    def value(self, weights: Sequence[Sequence[float]], size: int, fans: Sequence[int]) -> float:
        """The score of static tuples, by what each keyword weighs in each, but for the last bits."""
        return prod(_VALUES[part](weights, size, fans) for part in self.of)

    def most(self, weights: Floats, sizes: npt.NDArray[np.int64], specific: Floats | None = None) -> Floats:
        """What no score exceeds, by the parts ``keywords`` and ``specificity`` and the number of tuples."""
        found = np.ones(len(sizes))
        if keywords in self.of:
            found *= weights
        if size in self.of:
            found /= sizes
        if specificity in self.of and specific is not None:
            found *= specific
        return found


BUILT_IN: Final = (
    Product(DEFAULT, (keywords, size, freshness, specificity)),
    Product("keywords", (keywords,)),
    Product("compact", (size, specificity)),
    Product("recency", (freshness,)),
)


@cache
def rankings() -> dict[str, Ranking]:
    """All rankings by name: the built-in ones, and those of other packages."""
    found: dict[str, Ranking] = {each.name: each for each in BUILT_IN}
    for entry in entry_points(group=GROUP):
        found.setdefault(entry.name, entry.load())
    return found


def known_ranking(name: str) -> str:
    """The name of a ranking that is there. Raises UsageError for any other."""
    ranking_named(name)
    return name


def ranking_named(name: str) -> Ranking:
    """Raises UsageError if there is none of that name."""
    known = rankings()
    if name not in known:
        raise UsageError(f"ranking {name!r}: expected one of {', '.join(known)}{nearest(name, known)}")
    return known[name]
