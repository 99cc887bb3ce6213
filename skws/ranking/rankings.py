"""Rankings by name: a score is a product of parts.

The value of each built-in part is available without its explanation, for bounds. Other packages add rankings
by entry points of the group ``skws.rankings``.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.metadata import entry_points
from math import exp, fsum, log, log2
from typing import Final, Protocol, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt

from skws.results.result import FRESHNESS, ScorePart
from skws.spec.query_spec import DEFAULT
from skws_schema.errors import UsageError, nearest, shown
from skws_schema.model import Schema


@dataclass(frozen=True, slots=True)
class Match:
    """A keyword in one attribute of one tuple.

    ``occurrences``: the number of its occurrences. ``length``: the characters of the text. ``texts``,
    ``containing`` and ``mean_length``: for that attribute of the live tuples, the number of texts, the number
    of texts with the keyword, and their average length. A keyword in the name of the tuple's relation is as
    rare as possible: it is in one of as many texts as there are live tuples. ``referring``: the average
    number of live tuples that refer to a tuple of the relation.
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
    """A tuple through which the result passes, and a join that leads from it to ``tuples`` live tuples."""

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
_LENGTH_WEIGHT: Final = 0.75
_REFERENCE_WEIGHT: Final = 0.2  # by bench.ranking: from 0.15 to 0.3 the right answers are the same
_SIZE_EXPONENT: Final = 3  # by bench.ranking: from 3 to 4 the right answers are the same
_COVERAGE_WEIGHT: Final = 0.5  # by bench.ranking: from 0.25 to 1 the right answers are the same
_WHOLE_TEXT_WEIGHT: Final = 2.5  # by bench.ranking: from 0 to 4.5 the right answers are the same
_ALTERNATIVE: Final = re.compile(r'(?:"[^"]*"|[^"|])+')
_SCOPE_AND_SIGNS: Final = re.compile(r'^[^\W\d][^\s":]*:(?![:/\\])|~\d*$|["*?]')


Floats: TypeAlias = npt.NDArray[np.float64]
Number = TypeVar("Number", float, Floats)


class Ranking(Protocol):
    """Scores results. ``parts`` are at least 0; their product is the score.

    ``uses_joins``: True if it reads ``Evidence.joins``, which take time to count. A part called ``freshness``
    fades with the half-life. A ranking with a true ``monotone`` never gives a better score for lighter
    keywords, more tuples or busier joins, so that a search of a database can stop early.
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
    rarity = keyword_rarity(match.texts, match.containing) * reference_factor(match.referring)
    coverage = match.occurrences * letters(match.keyword) / match.length if match.length else 0.0
    return rarity * keyword_share(float(match.occurrences), length) * naming(min(coverage, 1.0))


def reference_factor(referring: float) -> float:
    """A factor for a keyword's relation; ``referring``: the number of tuples that refer to a tuple of it."""
    return 1 + _REFERENCE_WEIGHT * log2(1 + referring)


def naming(coverage: Number) -> Number:
    """A factor for a keyword that is a share of a text: a name is more significant than a mention.

    A keyword that is the whole text ranks before mentions, even in a relation so small that no word is rare.
    """
    return 1 + _COVERAGE_WEIGHT * coverage + _WHOLE_TEXT_WEIGHT * (coverage >= 1)


@cache
def letters(keyword: str) -> int:
    """The letters of a keyword (``Slot.text``) without scope and signs; those of the shortest alternative."""
    return min((len(_SCOPE_AND_SIGNS.sub("", each)) for each in _ALTERNATIVE.findall(keyword)), default=0)


def keyword_rarity(texts: int, containing: int) -> float:
    """The weight of a keyword in ``containing`` of ``texts`` texts."""
    return log(1 + (texts - containing + 0.5) / (containing + 0.5))


def keyword_share(occurrences: Number, length: Number) -> Number:
    """The share of its rarity that a keyword weighs in a text, by the text's length relative to the mean."""
    return occurrences * (_SATURATION + 1) / (occurrences + keyword_damping(length))


def keyword_damping(length: Number) -> Number:
    """The damping of further occurrences in a text, by its length relative to the mean."""
    return _SATURATION * (1 - _LENGTH_WEIGHT + _LENGTH_WEIGHT * length)


def referring(schema: Schema, relation: int, tuples: Callable[[int], int]) -> float:
    """The average number of tuples that refer to a tuple of a relation, by joins with it on their right."""
    name, count = schema.relations[relation].name, tuples(relation)
    referring_tuples = sum(tuples(schema.index[join.left]) for join in schema.joins if join.right == name)
    return referring_tuples / count if count else 0.0


def keywords(evidence: Evidence) -> ScorePart:
    """The sum of each keyword's greatest weight in a tuple, where weights of attributes are added."""
    by_keyword: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    facts = []
    for match in evidence.matches:
        weight = keyword_weight(match)
        by_keyword[match.keyword][match.tuple].append(weight)
        facts.append(
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
        "keywords", fsum(max(map(fsum, tuples.values())) for tuples in by_keyword.values()), tuple(facts)
    )


def size(evidence: Evidence) -> ScorePart:
    """The part for the number of tuples: fewer tuples connect the keywords more closely.

    It outweighs ``specificity``, so a detour ranks behind a direct join.
    """
    return ScorePart("size", 1 / evidence.size**_SIZE_EXPONENT, ({"tuples": evidence.size},))


def freshness(evidence: Evidence) -> ScorePart:
    """The mean freshness of the stream's tuples by age; 1 for the newest."""
    if evidence.half_life is None or not evidence.ages:
        return ScorePart(FRESHNESS, 1.0)
    freshness_values = [0.5 ** (age / evidence.half_life) for age in evidence.ages]
    why = {"half_life": evidence.half_life, "ages": list(evidence.ages)}
    return ScorePart(FRESHNESS, fsum(freshness_values) / len(freshness_values), (why,))


def specificity(evidence: Evidence) -> ScorePart:
    """The product over the tuples through which a result passes; a tuple with many partners is unspecific.

    A join that leads to one tuple from either end is the most specific, however many tuples it leads to from
    the other end: a film is in one language, which many films share, so a film and its language are as close
    as possible, but two films in one language are not.
    """
    values = [_of_fan(join.tuples) for join in evidence.joins]
    why = tuple(
        {"join": join.name, "tuples": join.tuples, "value": value}
        for join, value in zip(evidence.joins, values, strict=True)
        if join.tuples > 1
    )
    return ScorePart("specificity", exp(fsum(map(log, values))), why)


Fans: TypeAlias = tuple[int, int]
"""The number of tuples to which a join leads from the node nearer to the root, and from the other node."""


def passed_joins(
    parents: Sequence[int], joins: Sequence[str], fans: Sequence[Fans]
) -> Iterator[tuple[int, int]]:
    """The joins by which a result passes through a tree's nodes, each as its lower node and its fan.

    These are all joins at a node except the one with the largest fan; among equal fans, the one whose name
    is last, so that the choice does not depend on the root of the tree. ``joins`` and ``fans``: the names and
    fans of the joins from each node but the root to its parent.
    """
    fans_by_node: dict[int, list[tuple[int, str, int]]] = defaultdict(list)
    for node, (join, (out, back)) in enumerate(zip(joins, fans, strict=True), 1):
        fans_by_node[parents[node]].append((out, join, node))
        fans_by_node[node].append((back, join, node))
    for fans_of_node in fans_by_node.values():
        for fan, _, node in sorted(fans_of_node)[:-1]:
            yield node, fan


def log_of_fans(fans: npt.NDArray[np.int64]) -> Floats:
    """The logarithms of the factors of ``passed_joins`` in the part ``specificity``, from their fans."""
    logarithm: Floats = -np.log(1 + np.log2(np.maximum(fans, 1)))
    return logarithm


def _of_fan(tuples: int) -> float:
    return 1 / (1 + log2(max(tuples, 1)))


_Part: TypeAlias = Callable[[Evidence], ScorePart]


@dataclass(frozen=True, slots=True)
class Product:
    """A ranking that is a product of some parts."""

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

    def most(self, weights: Floats, sizes: npt.NDArray[np.int64], specific: Floats | None = None) -> Floats:
        """An upper bound of scores, by the parts ``keywords`` and ``specificity``, and by size."""
        bounds = np.ones(len(sizes))
        if keywords in self.of:
            bounds *= weights
        if size in self.of:
            bounds /= sizes**_SIZE_EXPONENT
        if specificity in self.of and specific is not None:
            bounds *= specific
        return bounds


BUILT_IN: Final = (
    Product(DEFAULT, (keywords, size, freshness, specificity)),
    Product("keywords", (keywords,)),
    Product("compact", (size, specificity)),
    Product("recency", (freshness,)),
)


@cache
def rankings() -> dict[str, Ranking]:
    """All rankings by name, built-in ones and those of other packages."""
    by_name: dict[str, Ranking] = {each.name: each for each in BUILT_IN}
    for entry in entry_points(group=GROUP):
        by_name.setdefault(entry.name, entry.load())
    return by_name


def known_ranking(name: str) -> str:
    """The name of an existing ranking. Raises UsageError for any other."""
    ranking_named(name)
    return name


def ranking_named(name: str) -> Ranking:
    """The ranking with a name. Raises UsageError if there is none."""
    by_name = rankings()
    if name not in by_name:
        raise UsageError(
            f"ranking {shown(name)}: expected one of {', '.join(by_name)}{nearest(name, by_name)}"
        )
    return by_name[name]
