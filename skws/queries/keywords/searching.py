"""A search among the live tuples: the best results of keywords now, found as a new query would find them.

A search has a mesh and readings of its own, so what stands is left alone, also where it is broken off. The
smallest results come first (``SIZES``): larger ones are not looked for once none can be among the best.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from heapq import nsmallest
from typing import Final, NamedTuple

import numpy as np
from msgspec.structs import replace as struct_replace

from skws.keywords.keyword_matching import KeywordMatching
from skws.keywords.match import EXCLUDED
from skws.keywords.plan import Plan
from skws.keywords.suggest import meant_for
from skws.queries.keywords.live_words import LiveWords
from skws.queries.keywords.meshes import Meshes, coded_by
from skws.queries.keywords.result_emitter import FormedQuery, ResultEmitter
from skws.ranking.judging import Scorer
from skws.ranking.rankings import Floats
from skws.ranking.top import Candidate, candidate
from skws.results.directory import TupleDirectory
from skws.results.model import Place, Result
from skws_mesh.columnar.bitmaps import KeywordBitmaps
from skws_mesh.columnar.columns import Ints, distinct
from skws_mesh.columnar.live import LiveTuples
from skws_mesh.columnar.store import Partials
from skws_schema.memory import TimeLimitError, check
from skws_schema.model import Schema
from skws_windows.window import Window

SIZES: Final = (1, 2, 3)
"""The first sizes that are looked for, where keywords are common; then all."""
_RARE: Final = 64
"""Tuples with a keyword: so few have few results, and are searched at once."""
_SCORED: Final = 24  # results at a time: a page and a few, since each may end the search
_HEAVY: Final = 8
"""Larger results are looked for among the heavy tuples alone if these are at most such a part of all."""

TrulyJoined = Callable[[Partials, Callable[[int], FormedQuery]], Partials]


class Searched(NamedTuple):
    """The best results, best first. ``found``: how many there are, of at most ``size`` tuples.

    Larger ones cannot be better, unless the search is not ``complete``, since time ran out. ``missing``: the
    keywords that no tuple has, if nothing was found, each with a similar one or nothing.
    """

    results: list[Result]
    found: int
    size: int
    complete: bool
    missing: Mapping[str, str] = {}


class LiveSearch:
    """Searches of an operator, one at a time."""

    def __init__(
        self,
        schema: Schema,
        window: Window,
        live: LiveTuples,
        known: TupleDirectory,
        meshes: Meshes,
        scoring: Scorer,
        truly_joined: TrulyJoined,
    ) -> None:
        self.words = LiveWords(schema, known)
        self._schema = schema
        self._window = window
        self._live = live
        self._known = known
        self._meshes = meshes
        self._scoring = scoring
        self._truly_joined = truly_joined

    def search(self, query: int, plan: Plan, now: int, most: int) -> Searched:
        """The ``most`` best results that are alive at ``now``. ``query``: a number that no other query has.

        The plan has a ranking. Raises TimeLimitError if there was no time for the smallest ones.
        """
        try:
            bitmaps = self._labels(query, plan)
            found = self._searched(query, plan, bitmaps, now, most)
            return found if found.found else found._replace(missing=self._missing(plan, bitmaps))
        finally:
            self._scoring.remove(query)

    def completions(self, start: str, now: int, most: int) -> list[tuple[str, int]]:
        """The words that begin with a folded text and stand in the most tuples alive at ``now``."""
        ends = self._live.tuples.end
        return self.words.completions(start, most, lambda slots: ends.take(slots) > now)

    def _missing(self, plan: Plan, bitmaps: KeywordBitmaps) -> Mapping[str, str]:
        counts = _carrying(plan, bitmaps)
        return {} if all(counts) else meant_for(plan.query.slots, counts, self.words.vocabulary())

    def _labels(self, query: int, plan: Plan) -> KeywordBitmaps:
        """The tuples with keywords; from now on the results of the query are scored."""
        self.words.catch_up(len(self._live))
        self._scoring.stay()
        labelled = self.words.label(query, plan.matcher, len(self._live))
        if labelled is None:
            bitmaps = KeywordMatching.only(query, plan.matcher).of(self._known.rows)
            self._scoring.add(query, plan, bitmaps)
            return bitmaps
        self._scoring.add_carriers(query, plan, labelled.carriers)
        return labelled.bitmaps

    def _searched(self, query: int, plan: Plan, bitmaps: KeywordBitmaps, now: int, most: int) -> Searched:
        best: list[Candidate] = []
        count = done = 0
        plan = replace(plan, frequencies=_frequencies(plan, bitmaps))
        for size in _sizes(plan, bitmaps):
            if done and none_better(self._scoring, query, best, most, done + 1):
                break
            try:
                known = self._best_with_few(query, plan, bitmaps, now, most, best, done)
                if known is not None:
                    reach = max(len(each.result.tuples) for each in known)
                    if reach > done:
                        count += len(self._found(query, replace(plan, max_size=reach), bitmaps, now, done)[0])
                    return Searched(ranked(known), count, max(reach, done), complete=True)
                larger, emitter = self._found(query, replace(plan, max_size=size), bitmaps, now, done)
                best = best_of(self._scoring, query, emitter, larger, most, best)
            except TimeLimitError:
                if not done:
                    raise
                return Searched(ranked(best), count, done, complete=False)
            count, done = count + len(larger), size
        return Searched(ranked(best), count, done, complete=True)

    def _best_with_few(
        self,
        query: int,
        plan: Plan,
        bitmaps: KeywordBitmaps,
        now: int,
        most: int,
        best: list[Candidate],
        done: int,
    ) -> list[Candidate] | None:
        """The best results of all sizes, given those of up to ``done`` tuples; None if it does not pay.

        Larger ones are looked for without the tuples that are too light for them: with one of two keywords,
        and beside the heaviest tuple with the other one still below the last of ``best``.
        """
        if not done or len(best) < most or len(plan.query.slots) != 2 or best[-1].order[0]:
            return None
        ceilings = self._scoring.leaf_ceilings(query, bitmaps, done + 1)
        light = (ceilings < -best[-1].order[1]) & (bitmaps.bitmap > 0)
        if _HEAVY * np.count_nonzero(~light) > len(bitmaps):
            return None
        few = KeywordBitmaps(bitmaps.tuple, bitmaps.query, np.where(light, EXCLUDED, bitmaps.bitmap))
        larger, emitter = self._found(query, plan, few, now, done)
        return best_of(self._scoring, query, emitter, larger, most, best)

    def _found(
        self, query: int, plan: Plan, bitmaps: KeywordBitmaps, now: int, done: int
    ) -> tuple[Partials, ResultEmitter]:
        """The live results of a plan with more than ``done`` tuples, and what forms them."""
        own = {query: self._meshes.passing(plan)}
        emitter = ResultEmitter(
            own.__getitem__, self._live, self._known, self._scoring, self._window, self._schema
        )
        mesh = own[query].mesh
        found = self._truly_joined(mesh.add(query, coded_by(mesh, bitmaps)), own.__getitem__)
        return found.taken((found.end > now) & (found.sizes > done)), emitter


def _frequencies(plan: Plan, bitmaps: KeywordBitmaps) -> tuple[float, ...]:
    """The order of the keywords by how many tuples have them: a mesh begins with the rarest.

    Not the numbers themselves, so that searches have few shapes.
    """
    carrying = _carrying(plan, bitmaps)
    order = sorted(range(len(carrying)), key=carrying.__getitem__)
    return tuple(2.0 ** (order.index(slot) - len(order)) for slot in range(len(order)))


def _sizes(plan: Plan, bitmaps: KeywordBitmaps) -> list[int]:
    """The sizes up to which results are looked for, one after the other."""
    if min(_carrying(plan, bitmaps)) <= _RARE:
        return [plan.max_size]
    return [*(size for size in SIZES if size < plan.max_size), plan.max_size]


def _carrying(plan: Plan, bitmaps: KeywordBitmaps) -> list[int]:
    """How many tuples have each keyword."""
    labels = bitmaps.bitmap[bitmaps.bitmap > 0]
    return [int((labels >> slot & 1).sum()) for slot in range(len(plan.query.slots))]


def best_of(
    scoring: Scorer,
    query: int,
    emitter: ResultEmitter,
    found: Partials,
    most: int,
    best: list[Candidate],
) -> list[Candidate]:
    """The best of some results and of ``best``; larger ones are not scored if none can be better."""
    sizes = found.sizes
    for size in distinct(sizes).tolist():
        if none_better(scoring, query, best, most, size):
            break
        best = _best_of_size(scoring, query, emitter, found.taken(sizes == size), most, best)
    return best


def _best_of_size(
    scoring: Scorer, query: int, emitter: ResultEmitter, found: Partials, most: int, best: list[Candidate]
) -> list[Candidate]:
    """As ``best_of``; those that can be best come first, so the rest need not be scored."""
    ceilings = scoring.ceilings(query, found)
    rows = _hopeful(ceilings, np.arange(len(found)), best, most)
    counted = False
    while len(rows):
        check()
        if len(best) >= most and not counted and len(rows) > _SCORED:
            ceilings[rows] = scoring.ceilings(
                query, found.taken(rows), lambda operator: emitter.tree((query, operator, []))
            )
            counted = True
            rows = _hopeful(ceilings, rows, best, most)
            continue
        some, rows = rows[:_SCORED], rows[_SCORED:]
        new = (event.result for event in emitter.events([found.taken(some)], snapshot=True))
        best = nsmallest(most, [*best, *(candidate(each) for each in new if each.op == "+")])
        rows = _hopeful(ceilings, rows, best, most)
    return best


def _hopeful(ceilings: Floats, rows: Ints, best: list[Candidate], most: int) -> Ints:
    """The rows that can be among the best, those with the highest ceilings first."""
    if len(best) >= most and best[-1].order[0] == 0:
        rows = rows[ceilings[rows] >= -best[-1].order[1]]
    return rows[np.argsort(-ceilings[rows], kind="stable")]


def none_better(scoring: Scorer, query: int, best: list[Candidate], most: int, size: int) -> bool:
    """Whether no result with ``size`` tuples or more can be among the best."""
    if len(best) < most:
        return False
    bound = scoring.bound(query, size)
    return bound is not None and (-bound[0], -bound[1]) > best[-1].order[:2]


def ranked(best: list[Candidate]) -> list[Result]:
    return [_placed(each.result, rank) for rank, each in enumerate(best, 1)]


def _placed(result: Result, rank: int) -> Result:
    return struct_replace(result, place=Place("enter", rank, None))
