"""A search among the live tuples: the best results of keywords now, as a new query would find them.

A search has its own mesh and network templates, so it does not affect standing queries, even if it is
interrupted. It looks for the smallest results first (``SIZES``), and ends when no larger one can be among
the best.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from heapq import nsmallest
from typing import Final, NamedTuple

import numpy as np
from msgspec.structs import replace as struct_replace

from skws.keywords.keyword_matching import KeywordMatching
from skws.keywords.match import EXCLUDED
from skws.keywords.plan import Plan
from skws.queries.keywords.diagnosis import EmptyResult, KeywordCounts
from skws.queries.keywords.live_paths import MOST_COUNTED, LivePaths
from skws.queries.keywords.live_words import LiveWords
from skws.queries.keywords.meshes import Meshes, in_codes_of
from skws.queries.keywords.referred_rows import referred_notes
from skws.queries.keywords.result_emitter import ResultEmitter
from skws.queries.keywords.result_source import ResultSource
from skws.ranking.rankings import Floats
from skws.ranking.scoring import Scoring
from skws.ranking.top import Candidate, candidate
from skws.ranking.upper_bounds import UpperBounds
from skws.results.result import Result, TopChange
from skws.store.directory import TupleDirectory
from skws_mesh.columnar.bitmaps import KeywordBitmaps
from skws_mesh.columnar.columns import Flags, Ints, distinct
from skws_mesh.columnar.live import LiveTuples
from skws_mesh.columnar.store import Partials
from skws_mesh.delta.network_numbers import PathNetworks
from skws_schema.budgets import TimeLimitError, check
from skws_schema.model import Row, Schema
from skws_windows.window import Window

SIZES: Final = (1, 2, 3)
"""The first sizes of results to look for if keywords are common; then all sizes."""
_RARE_TUPLES: Final = 64
"""A keyword with at most this many tuples has few results, which are all searched at once."""
_FEW_TUPLES: Final = 8
"""If at most this many tuples have one of two keywords, a mesh is faster than sums over all tuples."""
_TIES: Final = 2048
"""The most results to examine among those that can only equal the last of the best: there may be a million,
as for a word that stands for a state."""
_TOLERANCE: Final = 1e-7
"""The largest difference between the orders of equal scores and their ceilings."""
_SCORES_AT_A_TIME: Final = 24  # results to score at a time: a page and a few, since each may end the search

Agreeing = Callable[[Partials, Callable[[int], ResultSource]], Flags]
"""A function that tells which results are joined by equal values, given their queries by number."""


class Searched(NamedTuple):
    """The best results, best first. ``found``: the number of results of at most ``size`` tuples.

    Larger results cannot be better, unless the search ran out of time and is not ``complete``.
    ``why_nothing``: set if there are no results. ``notes``: on rows that the results hide.
    """

    results: list[Result]
    found: int
    size: int
    complete: bool
    why_nothing: EmptyResult | None = None
    notes: tuple[str, ...] = ()


class LiveSearch:
    """Searches of an operator, one at a time."""

    def __init__(
        self,
        schema: Schema,
        window: Window,
        live: LiveTuples,
        directory: TupleDirectory,
        meshes: Meshes,
        scoring: Scoring,
        agreeing: Agreeing,
    ) -> None:
        self.words = LiveWords(schema, live, directory)
        self._networks = PathNetworks(schema)
        self._schema = schema
        self._window = window
        self._live = live
        self._directory = directory
        self._meshes = meshes
        self._scoring = scoring
        self._agreeing = agreeing

    def prepare(self, most: int) -> bool:
        """Index the words of at most ``most`` live tuples; True if there are more."""
        size = len(self._live)
        self.words.catch_up(size, most)
        return self.words.is_behind(size)

    def index_only(self, plan: Plan) -> None:
        """Index only the tuples that a query needs, as no other search follows."""
        if self.words.on_disk:
            return
        slots = KeywordMatching.only(0, plan.matcher).of(self._directory.rows).tuple
        self.words.index_only(slots, len(self._live))

    def compact(self, slots: Ints) -> None:
        """Live tuples have new slots, in the same order; removed ones have negative slots."""
        self.words.compact(slots)

    def search(self, query: int, plan: Plan, now: int, most: int) -> Searched:
        """The ``most`` best results that are alive at ``now``. ``query``: a number that no other query has.

        The plan has a ranking. Raises TimeLimitError if the time was too short for the smallest results.
        """
        try:
            bitmaps = self._labels(query, plan)
            self._scoring.advance_to(now)
            searched = self._best_results(query, plan, bitmaps, now, most)
            if not searched.found:
                return searched._replace(why_nothing=self._why_nothing(plan, bitmaps))
            return searched._replace(notes=self._notes(plan, bitmaps, now, searched.results))
        finally:
            self._scoring.remove(query)

    def completions(self, start: str, now: int, most: int) -> list[tuple[str, int]]:
        """The words that begin with a folded text and occur in the most tuples alive at ``now``."""
        ends = self._live.tuples.end
        return self.words.completions(start, most, lambda slots: ends.take(slots) > now)

    def _notes(
        self, plan: Plan, bitmaps: KeywordBitmaps, now: int, results: Sequence[Result]
    ) -> tuple[str, ...]:
        tuples = self._live.tuples

        def carriers(relation: int) -> Iterator[tuple[Row, int]]:
            is_carrier = tuples.relation.take(bitmaps.tuple) == relation
            is_carrier &= tuples.end.take(bitmaps.tuple) > now
            carrier_bitmaps = bitmaps.take(is_carrier)
            pairs = zip(carrier_bitmaps.tuple.tolist(), carrier_bitmaps.bitmap.tolist(), strict=True)
            return ((self._directory.row(slot), bitmap) for slot, bitmap in pairs)

        return referred_notes(plan, results, carriers)

    def _why_nothing(self, plan: Plan, bitmaps: KeywordBitmaps) -> EmptyResult:
        excludes = bool(plan.query.without) or bool((bitmaps.bitmap == EXCLUDED).any())
        counts = KeywordCounts(plan, tuples=len(self._live), excludes=excludes)
        relation = self._live.tuples.relation.take(bitmaps.tuple)
        for number in np.unique(relation).tolist():
            for slot, tuples in enumerate(_tuple_counts(plan, bitmaps.take(relation == number))):
                counts.count(slot, number, tuples)
        return counts.why_nothing(self.words.vocabulary)

    def _labels(self, query: int, plan: Plan) -> KeywordBitmaps:
        """The labels of the tuples with keywords; prepares the scoring of the query's results."""
        self.words.catch_up(len(self._live))
        self._scoring.keep_statistics()
        labels = self.words.label(query, plan.matcher)
        self._scoring.add_carriers(query, plan, labels.carriers)
        return labels.bitmaps

    def _best_results(self, query: int, plan: Plan, bitmaps: KeywordBitmaps, now: int, most: int) -> Searched:
        best = Best(most, self._scoring.ceilings(query))
        plan = replace(plan, frequencies=_frequencies(plan, bitmaps))
        if (
            best.ceilings is not None
            and self._are_paths(plan)
            and min(_tuple_counts(plan, bitmaps)) > _FEW_TUPLES
        ):
            return self._best_paths(query, plan, bitmaps, now, most, best.ceilings)
        count = searched_size = 0
        for size in _sizes(plan, bitmaps):
            if searched_size and best.none_better(searched_size + 1):
                break
            results_before = best.results
            try:
                partials, emitter = self._results_of_size(
                    query, replace(plan, max_size=size), bitmaps, now, searched_size
                )
                best.take(emitter, partials)
            except TimeLimitError:
                if not searched_size:
                    raise
                return Searched(ranked(results_before), count, searched_size, complete=False)
            count, searched_size = count + len(partials), size
        return Searched(ranked(best.results), count, searched_size, complete=True)

    def _are_paths(self, plan: Plan) -> bool:
        """True if all results, whatever their roots, are paths of tuples in any order."""
        return len(plan.query.slots) == 2 and not plan.query.sequence and not self._meshes.by_root

    def _best_paths(
        self, query: int, plan: Plan, bitmaps: KeywordBitmaps, now: int, most: int, ceilings: UpperBounds
    ) -> Searched:
        """As ``_best_results``; only the best results are formed."""
        paths = LivePaths(
            query, plan, bitmaps, now, self._live, self._networks, ceilings, most, self._agreeing
        )
        emitter = self._emitter({query: paths})
        small_size = min(SIZES[-1], plan.max_size)
        paths.find(small_size)
        small_results = paths.found
        best = Best(most, ceilings)
        try:
            if small_size < plan.max_size and paths.least <= ceilings.of_size(small_size + 1)[1]:
                paths.find(plan.max_size)
            best.take(emitter, *paths.found)
            if not best.full:
                return Searched(ranked(best.results), len(best.results), plan.max_size, complete=True)
            largest_size = max(small_size, *(len(each.result.tuples) for each in best.results))
            count = paths.count(min(largest_size, MOST_COUNTED))
            if largest_size > MOST_COUNTED:
                counting_plan = replace(plan, max_size=largest_size)
                count += len(self._results_of_size(query, counting_plan, bitmaps, now, MOST_COUNTED)[0])
            return Searched(ranked(best.results), count, largest_size, complete=True)
        except TimeLimitError:
            partials, orders = small_results
            best = Best(most, ceilings)
            best.form(emitter, partials.take(np.argsort(-orders, kind="stable")[:most]))
            return Searched(ranked(best.results), paths.count(small_size), small_size, complete=False)

    def _results_of_size(
        self, query: int, plan: Plan, bitmaps: KeywordBitmaps, now: int, searched_size: int
    ) -> tuple[Partials, ResultEmitter]:
        """The live results of a plan with more than ``searched_size`` tuples, and their emitter."""
        tenants = {query: self._meshes.search_tenant(plan)}
        emitter = self._emitter(tenants)
        mesh = tenants[query].mesh
        partials = mesh.add([query], in_codes_of(mesh, bitmaps))
        is_wanted = (partials.end > now) & (partials.sizes > searched_size)
        return partials.take(is_wanted & self._agreeing(partials, tenants.__getitem__)), emitter

    def _emitter(self, sources: Mapping[int, ResultSource]) -> ResultEmitter:
        return ResultEmitter(
            sources.__getitem__, self._live, self._directory, self._scoring, self._window, self._schema
        )


def _frequencies(plan: Plan, bitmaps: KeywordBitmaps) -> tuple[float, ...]:
    """The rank of each keyword by its number of tuples: a mesh begins with the rarest.

    Ranks in place of numbers keep the number of shapes of searches small.
    """
    tuple_counts = _tuple_counts(plan, bitmaps)
    order = sorted(range(len(tuple_counts)), key=tuple_counts.__getitem__)
    return tuple(2.0 ** (order.index(slot) - len(order)) for slot in range(len(order)))


def _sizes(plan: Plan, bitmaps: KeywordBitmaps) -> list[int]:
    """The limits on the size of results, to be searched one after the other."""
    if min(_tuple_counts(plan, bitmaps)) <= _RARE_TUPLES:
        return [plan.max_size]
    return [*(size for size in SIZES if size < plan.max_size), plan.max_size]


def _tuple_counts(plan: Plan, bitmaps: KeywordBitmaps) -> list[int]:
    """The number of tuples with each keyword."""
    labels = bitmaps.bitmap[bitmaps.bitmap > 0]
    return [int((labels >> slot & 1).sum()) for slot in range(len(plan.query.slots))]


class Best:
    """The best results of a search so far, at most ``most``. ``ceilings``: of its results, if known."""

    def __init__(self, most: int, ceilings: UpperBounds | None) -> None:
        self.results: list[Candidate] = []
        self.ceilings = ceilings
        self._most = most

    @property
    def full(self) -> bool:
        """True if further results would have to be better than the last one."""
        return len(self.results) >= self._most

    @property
    def least(self) -> float:
        """The order that further results must have, in the tier of the ceilings."""
        if self.ceilings is None or not self.full or -self.results[-1].order[0] != self.ceilings.tier:
            return -np.inf
        return -self.results[-1].order[1]

    def none_better(self, size: int) -> bool:
        """True if no result with ``size`` tuples or more can be among the best."""
        if self.ceilings is None or not self.full:
            return False
        tier, order = self.ceilings.of_size(size)
        return (-tier, -order) > self.results[-1].order[:2]

    def take(self, emitter: ResultEmitter, partials: Partials, orders: Floats | None = None) -> None:
        """Add results; those that cannot be among the best are not scored. ``orders``: if known."""
        if orders is not None:
            self._take(emitter, partials, orders, counted=True)
            return
        sizes = partials.sizes
        for size in distinct(sizes).tolist():
            if self.none_better(size):
                break
            sized = partials.take(sizes == size)
            bounds = np.full(len(sized), np.inf) if self.ceilings is None else self.ceilings.of(sized)
            self._take(emitter, sized, bounds, counted=self.ceilings is None)

    def form(self, emitter: ResultEmitter, partials: Partials) -> None:
        """Add results, each of which is scored."""
        results = (event.result for event in emitter.events([partials], snapshot=True))
        candidates = (candidate(each) for each in results if each.op == "+")
        self.results = nsmallest(self._most, [*self.results, *candidates])

    def _take(self, emitter: ResultEmitter, partials: Partials, bounds: Floats, *, counted: bool) -> None:
        """Add results in the order of their ceilings, so that the rest need not be scored."""
        rows = np.arange(len(partials))
        while len(rows := _promising_rows(bounds, rows, self.least)):
            check()
            if self.full and bounds.item(rows.item(0)) <= self.least + _TOLERANCE:
                rows = rows[:_TIES]
            if self.ceilings is not None and self.full and not counted and len(rows) > _SCORES_AT_A_TIME:
                bounds[rows] = self.ceilings.of(partials.take(rows), emitter.tree)
                counted = True
                continue
            page_size = max(_SCORES_AT_A_TIME, self._most - len(self.results))
            page_rows, rows = rows[:page_size], rows[page_size:]
            self.form(emitter, partials.take(page_rows))


def _promising_rows(bounds: Floats, rows: Ints, least: float) -> Ints:
    """The rows whose ceilings reach an order, the highest first."""
    rows = rows[bounds[rows] >= least]
    return rows[np.argsort(-bounds[rows], kind="stable")]


def ranked(candidates: list[Candidate]) -> list[Result]:
    return [_with_rank(each.result, rank) for rank, each in enumerate(candidates, 1)]


def _with_rank(result: Result, rank: int) -> Result:
    return struct_replace(result, place=TopChange("enter", rank, None))
