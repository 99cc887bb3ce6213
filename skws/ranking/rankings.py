"""Rankings by name: which parts a score is the product of.

Each part of the built-in ones has a value by itself, too: what bounds compare
need not be explained. Another package adds its own by an entry point of the group ``skws.rankings``.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.metadata import entry_points
from math import exp, fsum, log, log2, prod
from typing import Final, Protocol, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt

from skws.results.model import FRESHNESS, ScorePart
from skws.spec.query import DEFAULT
from skws_schema.errors import UsageError, nearest
from skws_schema.model import Schema


@dataclass(frozen=True, slots=True)
class Match:
    """A keyword in one attribute of one tuple.

    ``occurrences``: how often it stands there. ``length``: of the text, in
    characters. ``texts``, ``containing`` and ``mean_length`` are of that
    attribute in the live tuples: how many are not NULL, how many contain the
    keyword, how long they are on average. A keyword in the name of the tuple's
    relation is the rarest there can be: one of as many texts as there are live
    tuples. ``referring``: how many live tuples refer to one of the relation's, on average.
    """

    keyword: str
    tuple: str
    attribute: str
    occurrences: int
    length: int
    texts: int
    containing: int
    mean_length: float
    referring: float = 0.0


@dataclass(frozen=True, slots=True)
class JoinFan:
    """A tuple that the result passes through: this join alone leads from it to so many live ``tuples``."""

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
_STANDING: Final = 0.2  # of bench.ranking: from 0.15 to 0.3 the right answers are the same
_BY_SIZE: Final = 3  # of bench.ranking: from 3 to 4 the right answers are the same
_NAMING: Final = 0.5  # of bench.ranking: from 0.25 to 1 the right answers are the same
_WHOLE: Final = 2.5  # of bench.ranking: from 0 to 4.5 the right answers are the same
_SCOPE_AND_SIGNS: Final = re.compile(r".*:|[\"*?~]")


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

    def parts(self, evidence: Evidence) -> tuple[ScorePart, ...]: ...


def keyword_weight(match: Match) -> float:
    """BM25 of a keyword in an attribute, over that attribute of the live tuples.

    Robertson and Zaragoza, The Probabilistic Relevance Framework, 2009.
    """
    length = match.length / match.mean_length if match.mean_length else 1.0
    rarity = keyword_rarity(match.texts, match.containing) * standing(match.referring)
    covered = match.occurrences * letters(match.keyword) / match.length if match.length else 0.0
    return rarity * keyword_share(float(match.occurrences), length) * naming(min(covered, 1.0))


def standing(referring: float) -> float:
    """By what a keyword weighs more in a relation to whose tuples so many refer, on average."""
    return 1 + _STANDING * log2(1 + referring)


def naming(covered: Number) -> Number:
    """By what a keyword weighs more that is such a share of a text: a name says more than a mention.

    One that is the whole text comes before mentions, also in a relation so small that no word is rare.
    """
    return 1 + _NAMING * covered + _WHOLE * (covered >= 1)


@cache
def letters(keyword: str) -> int:
    """The letters of a keyword in a text, without its scope; of alternatives the fewest."""
    return min(len(_SCOPE_AND_SIGNS.sub("", each)) for each in keyword.split(" OR "))


def keyword_rarity(texts: int, containing: int) -> float:
    """What a keyword weighs that ``containing`` of some texts contain."""
    return log(1 + (texts - containing + 0.5) / (containing + 0.5))


def keyword_share(occurrences: Number, length: Number) -> Number:
    """Of its rarity what a keyword weighs in a text, by the text's length as a share of the mean."""
    return occurrences * (_SATURATION + 1) / (occurrences + keyword_damping(length))


def keyword_damping(length: Number) -> Number:
    """What more occurrences have to outweigh in a text, by its length as a share of the mean."""
    return _SATURATION * (1 - _BY_LENGTH + _BY_LENGTH * length)


def referring(schema: Schema, relation: int, tuples: Callable[[int], int]) -> float:
    """How many tuples refer to one of a relation, on average: by joins that have it on their right."""
    name, count = schema.relations[relation].name, tuples(relation)
    found = sum(tuples(schema.index[join.left]) for join in schema.joins if join.right == name)
    return found / count if count else 0.0


def keywords(evidence: Evidence) -> ScorePart:
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
                "referring": match.referring,
            }
        )
    return ScorePart(
        "keywords", fsum(max(map(fsum, tuples.values())) for tuples in by_keyword.values()), tuple(why)
    )


def size(evidence: Evidence) -> ScorePart:
    """The fewer tuples it takes, the more closely its keywords belong together."""
    return ScorePart("size", size_value(evidence.size), ({"tuples": evidence.size},))


def size_value(tuples: int) -> float:
    """The part ``size``: it outweighs what joins say, so a detour ranks behind what is joined directly."""
    return 1 / tuples**_BY_SIZE


def keywords_value(weights: Iterable[Sequence[float]]) -> float:
    """The part ``keywords`` of tuples, of which each has a weight for each keyword."""
    return fsum(map(max, zip(*weights, strict=True)))


def freshness(evidence: Evidence) -> ScorePart:
    """The mean over the stream's tuples of what their age has left of them; 1 for the newest."""
    if evidence.half_life is None or not evidence.ages:
        return ScorePart(FRESHNESS, 1.0)
    left = [0.5 ** (age / evidence.half_life) for age in evidence.ages]
    why = {"half_life": evidence.half_life, "ages": list(evidence.ages)}
    return ScorePart(FRESHNESS, fsum(left) / len(left), (why,))


def specificity(evidence: Evidence) -> ScorePart:
    """The product over the tuples that a result passes through; one that joins many others says little.

    What leads to one tuple from either end says all, however many there are from the other one: a film is in
    one language, which many films share, so a film and its language are as close as can be, two films in one
    language are not.
    """
    values = [_of_fan(join.tuples) for join in evidence.joins]
    why = tuple(
        {"join": join.name, "tuples": join.tuples, "value": value}
        for join, value in zip(evidence.joins, values, strict=True)
        if join.tuples > 1
    )
    return ScorePart("specificity", exp(fsum(map(log, values))), why)


def specificity_value(fans: Iterable[int]) -> float:
    """The part ``specificity`` of ``passed`` joins; what ``fans`` leaves out leads to one tuple."""
    return exp(fsum(map(_log_of_fan, fans)))


Fans: TypeAlias = tuple[int, int]
"""Of a join: how many tuples it leads to from the node nearer to the root, and from the other one."""


def passed(parents: Sequence[int], fans: Sequence[Fans]) -> Iterator[tuple[int, int]]:
    """The joins by which a tree's nodes are passed through: of each its lower node, and its fan.

    ``fans``: of the first joins of the tree. At a node all of its joins but that with the largest fan.
    """
    at: dict[int, list[tuple[int, int]]] = defaultdict(list)
    for node, (out, back) in enumerate(fans, 1):
        at[parents[node]].append((out, node))
        at[node].append((back, node))
    for known in at.values():
        for fan, node in sorted(known)[:-1]:
            yield node, fan


def log_of_fans(fans: npt.NDArray[np.int64]) -> Floats:
    """The logarithm of what ``passed`` joins with some fans give the part ``specificity``."""
    found: Floats = -np.log(1 + np.log2(np.maximum(fans, 1)))
    return found


def _of_fan(tuples: int) -> float:
    return 1 / (1 + log2(max(tuples, 1)))


@cache
def _log_of_fan(tuples: int) -> float:
    return log(_of_fan(tuples))


_Part: TypeAlias = Callable[[Evidence], ScorePart]
_VALUES: Final[dict[_Part, Callable[[Sequence[Sequence[float]], int, Sequence[int]], float]]] = {
    keywords: lambda weights, size, fans: keywords_value(weights),  # noqa: ARG005
    size: lambda weights, size, fans: size_value(size),  # noqa: ARG005
    specificity: lambda weights, size, fans: specificity_value(fans),  # noqa: ARG005
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

    def parts(self, evidence: Evidence) -> tuple[ScorePart, ...]:
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
            found /= sizes**_BY_SIZE
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
