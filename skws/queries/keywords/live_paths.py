"""Results of two keywords among the live tuples: the best are found, and all counted, without making all.

Each leaf of a result has a keyword of its own. So with two keywords a result is one tuple, or a path: a tuple
with the first keyword alone, tuples with none, a tuple with the second one alone. Walks are counted by
sums along joins, a number for each join value; of these, the paths are those that come back to no tuple.
The best paths are walked first, by what is at most ahead of a join value: the same sums, of maxima.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import combinations
from math import inf
from typing import Final, NamedTuple, TypeAlias

import numpy as np

from skws.keywords.plan import Plan
from skws.queries.keywords.live_words import LearnedRows
from skws.ranking.ceilings import Ceilings
from skws.ranking.rankings import Floats, log_of_fans
from skws.store.directory import TupleDirectory
from skws_mesh.columnar.bitmaps import KeywordBitmaps
from skws_mesh.columnar.columns import NOTHING, Flags, Ints
from skws_mesh.columnar.live import KeySets, LeavingEdges, LiveTuples
from skws_mesh.columnar.store import NO_MEMBER, Partials, Table
from skws_mesh.delta.networks import PathNetworks
from skws_schema.budgets import check
from skws_schema.graph import Edge, edges
from skws_schema.model import Schema, Value

MOST_COUNTED: Final = 5
"""Tuples of results that are counted: longer walks may come back in more ways."""
_ANEW: Final = 4
"""Numbers are given anew once there are so many times more than join values of live tuples."""
_TOGETHER: Final = 512  # steps
_ROUNDED: Final = 1e-8  # by so much at most the orders of scores differ from those here
_FIRST, _SECOND, _BOTH = 1, 2, 3  # keyword bitmaps
_NO_PART: Final = -1
_Vectors: TypeAlias = list[Floats]
"""By relation: a number for each of its live tuples, in the order of ``LiveJoins``."""
_KeySet: TypeAlias = tuple[int, int]
"""A relation, and the number of one of its key sets."""


class LiveJoins(LearnedRows):
    """The join values of the live tuples of ``known`` as numbers, 0 for NULL.

    Equal values have equal numbers in key sets that are joined, perhaps across others. They are brought up
    to date by searches, and between them once one has needed them.
    """

    _piece = 1 << 14

    def __init__(self, schema: Schema, key_sets: KeySets, known: TupleDirectory) -> None:
        self._key_sets = key_sets.columns
        self._known = known
        self.ends = [
            ((edge.source, int(key_sets.source[edge.id])), (edge.target, int(key_sets.target[edge.id])))
            for edge in edges(schema)
        ]
        """By edge: the key sets that it compares."""
        self._groups = _groups(self._key_sets, self.ends)
        self._begin()

    def _begin(self) -> None:
        self._numbers: list[dict[object, int]] = [{} for _ in self._groups]
        self._tables = [Table((NOTHING,) * (1 + len(sets))) for sets in self._key_sets]
        self.covered = 0

    def of(self, relation: int) -> tuple[Ints, ...]:
        """The slots of a relation, and for each of its key sets the numbers of their join values."""
        return self._tables[relation].columns()

    def size(self, key_set: _KeySet) -> int:
        """Above all numbers of a key set."""
        return 1 + len(self._numbers[self._groups[key_set]])

    def compact(self, slots: Ints) -> None:
        super().compact(slots)
        for table in self._tables:
            table.follow(slots)
        left = sum(table.size * len(sets) for table, sets in zip(self._tables, self._key_sets, strict=True))
        if sum(map(len, self._numbers)) > _ANEW * (left + self._piece):
            self._begin()

    def _learn(self, new: Ints) -> None:
        for block, mine, at in self._known.some_rows(new).by_block():
            numbered = [
                self._numbered(
                    self._groups[block.relation, number], [block.values_at(column, at) for column in columns]
                )
                for number, columns in enumerate(self._key_sets[block.relation])
            ]
            self._tables[block.relation].append((new[mine], *numbered))

    def _numbered(self, group: int, columns: Sequence[Sequence[Value]]) -> Ints:
        numbers = self._numbers[group]
        values: Iterable[object] = columns[0]
        if len(columns) > 1:
            values = (None if None in row else row for row in zip(*columns, strict=True))
        found = (0 if value is None else numbers.setdefault(value, len(numbers) + 1) for value in values)
        return np.fromiter(found, dtype=np.int64, count=len(columns[0]))


def _groups(
    key_sets: Sequence[Sequence[tuple[int, ...]]], ends: Sequence[tuple[_KeySet, _KeySet]]
) -> dict[_KeySet, int]:
    """The key sets by groups: those that edges compare are in one."""
    every = [(relation, number) for relation, sets in enumerate(key_sets) for number in range(len(sets))]
    groups = {key_set: number for number, key_set in enumerate(every)}
    for near, far in ends:
        groups = {key_set: groups[near] if n == groups[far] else n for key_set, n in groups.items()}
    return groups


class JoinedTuples:
    """The live tuples as some edges join them, for sums along edges.

    ``part``: by slot the keywords of a tuple, negative if it takes no part in results. ``parts``: the same by
    relation. A *link* is an edge with a join value, as one number.
    """

    def __init__(self, walked: Sequence[Edge], live: LiveTuples, joins: LiveJoins, part: Ints) -> None:
        self._walked = walked
        self._ends = joins.ends
        tuples = [joins.of(relation) for relation in range(len(live.key_sets.columns))]
        self._slots = [slots for slots, *_ in tuples]
        self._numbers = {
            (r, n): column for r, (_, *found) in enumerate(tuples) for n, column in enumerate(found)
        }
        self._sizes = {key_set: joins.size(key_set) for key_set in self._numbers}
        self.parts = [part.take(slots) for slots in self._slots]
        self._to_itself = self._joined_to_itself()
        self._row = np.zeros(len(live), dtype=np.int64)  # by slot: its place among those of its relation
        for slots in self._slots:
            self._row[slots] = np.arange(len(slots))
        begins = np.cumsum([0, *map(len, self._numbers.values())]).tolist()
        begin = dict(zip(self._numbers, begins, strict=False))
        self._flat = np.concatenate([NOTHING, *self._numbers.values()])
        self._near = np.array([begin[near] for near, _ in self._ends], dtype=np.int64)
        self._far = np.array([begin[far] for _, far in self._ends], dtype=np.int64)
        sizes = [self._sizes[near] for near, _ in self._ends]
        self._first: Ints = np.cumsum([0, *sizes], dtype=np.int64)

    def links(self, edge: Ints, slots: Ints) -> Ints:
        """By which each tuple has the others that an edge leads to."""
        return self._links(edge, self._near, slots)

    def linked(self, edge: Ints, slots: Ints) -> Ints:
        """By which others have each tuple, of the relation that the edge leads to."""
        return self._links(edge, self._far, slots)

    def _links(self, edge: Ints, begin: Ints, slots: Ints) -> Ints:
        found: Ints = self._first.take(edge)
        found += self._flat.take(begin.take(edge) + self._row.take(slots))
        return found

    def fans(self, counted: Flags) -> tuple[Ints, Ints]:
        """By link: how many tuples of some it leads to, and how many it leads from."""
        out, back = np.zeros((2, self._first[-1]), dtype=np.int64)
        shared = {
            key_set: np.bincount(
                column.compress(counted.take(self._slots[key_set[0]])), minlength=self._sizes[key_set]
            )
            for key_set, column in self._numbers.items()
        }
        for edge in self._walked:
            near, far = self._ends[edge.id]
            out[self._of(edge)], back[self._of(edge)] = shared[far], shared[near]
        return out, back

    def across(self, vectors: _Vectors) -> _Vectors:
        """For each tuple the sum over the others that edges lead to."""
        sums: dict[_KeySet, Floats] = {}
        totals: dict[_KeySet, Floats] = {}
        there = [bool(vector.any()) for vector in vectors]
        for edge in self._walked:
            near, far = self._ends[edge.id]
            if not there[edge.target]:
                continue
            if far not in sums:
                vector, size = vectors[edge.target], self._sizes[far]
                sums[far] = np.bincount(self._numbers[far], vector, size).astype(np.float64)
                sums[far][0] = 0
            totals[near] = totals[near] + sums[far] if near in totals else sums[far]
        found = [np.zeros(len(vector)) for vector in vectors]
        for near, total in totals.items():
            found[near[0]] += total.take(self._numbers[near])
        for relation, times in self._to_itself.items():
            found[relation] -= times * vectors[relation]
        return found

    def greatest(self, vectors: _Vectors) -> tuple[Floats, list[Edge]]:
        """By link: the greatest number of a tuple that it leads to; minus infinity if there is none.

        And the edges that lead to any.
        """
        found = np.full(self._first[-1], -inf)
        there = [np.flatnonzero(vector > -inf) for vector in vectors]
        reached = [edge for edge in self._walked if len(there[edge.target])]
        known: dict[_KeySet, Floats] = {}
        for edge in reached:
            _, far = self._ends[edge.id]
            if far not in known:
                most = known[far] = np.full(self._sizes[far], -inf)
                some = there[edge.target]
                np.maximum.at(most, self._numbers[far].take(some), vectors[edge.target].take(some))
                most[0] = -inf
            found[self._of(edge)] = known[far]
        return found, reached

    def best_links(self, links: Floats, walked: Sequence[Edge]) -> _Vectors:
        """For each tuple the greatest number of its links, of some edges."""
        most: dict[_KeySet, Floats] = {}
        for edge in walked:
            near, _ = self._ends[edge.id]
            mine = links[self._of(edge)]
            most[near] = np.maximum(most[near], mine) if near in most else mine
        found = [np.full(len(slots), -inf) for slots in self._slots]
        for near, mine in most.items():
            np.maximum(found[near[0]], mine.take(self._numbers[near]), out=found[near[0]])
        return found

    def to_and_fro(self, times: _Vectors, inner: _Vectors) -> float:
        """The walks from tuples, each so many times, to another inner one and back."""
        across = self.across(inner)
        found = sum(float(some @ ways) for some, ways in zip(times, across, strict=True))
        for relation, own in self._to_itself.items():
            found += float(times[relation] @ (inner[relation] * (own - own * own)))
        # Back by another edge.
        return found + sum(
            2 * self._by_both(one, other, times[one.source], inner[one.target])
            for one, other in combinations(self._walked, 2)
            if (one.source, one.target) == (other.source, other.target)
        )

    def _by_both(self, one: Edge, other: Edge, times: Floats, inner: Floats) -> float:
        """The tuples, each so many times, that two edges lead from to an inner one."""
        (near, far), (also_near, also_far) = self._ends[one.id], self._ends[other.id]
        size = self._sizes[also_near]

        def both(first: Ints, second: Ints, chosen: Floats) -> tuple[Ints, Ints]:
            some = np.flatnonzero((first > 0) & (second > 0) & (chosen > 0))
            return some, first.take(some) * size + second.take(some)

        rows, wanted = both(self._numbers[near], self._numbers[also_near], times)
        _, there = both(self._numbers[far], self._numbers[also_far], inner)
        there.sort()
        ways = np.searchsorted(there, wanted, side="right") - np.searchsorted(there, wanted)
        return float(times.take(rows) @ ways)

    def _of(self, edge: Edge) -> slice:
        return slice(self._first[edge.id], self._first[edge.id + 1])

    def _joined_to_itself(self) -> dict[int, Floats]:
        """By relation: by how many edges each tuple joins itself."""
        found: dict[int, Floats] = {}
        for edge in self._walked:
            if edge.source == edge.target:
                near, far = (self._numbers[end] for end in self._ends[edge.id])
                same = (near == far) & (near > 0)
                found[edge.source] = found.get(edge.source, 0) + same
        return found


class WeighedWalks(NamedTuple):
    """Walks from tuples with the first keyword, in rows: the slots of each, and the edges between them.

    ``logs``: of what the tuples that it passes through are worth, in all. ``arrived``: of what the last join
    is worth from its end. ``weights``: of the keyword.
    """

    members: Ints
    edges: Ints
    logs: Floats
    arrived: Floats
    weights: Floats

    def taken(self, chosen: Ints) -> WeighedWalks:
        members, edges = self.members.take(chosen, axis=0), self.edges.take(chosen, axis=0)
        logs, arrived = self.logs.take(chosen), self.arrived.take(chosen)
        return WeighedWalks(members, edges, logs, arrived, self.weights.take(chosen))

    def further(self, edge: Ints, out: Floats, back: Floats, slots: Ints) -> WeighedWalks:
        """Each with one join more, and what that is worth from either end."""
        members, walked = np.column_stack([self.members, slots]), np.column_stack([self.edges, edge])
        # Of the two joins of a tuple that is passed through the one with the smaller fan.
        return WeighedWalks(members, walked, self.logs + np.maximum(self.arrived, out), back, self.weights)


class Steps(NamedTuple):
    """Walks with an edge to go on by, and a link of it; best first, by ``ceilings``."""

    walks: WeighedWalks
    edge: Ints
    link: Ints
    ceilings: Floats

    def taken(self, chosen: slice) -> Steps:
        members, edges, *numbers = self.walks
        walks = WeighedWalks(members[chosen], edges[chosen], *(each[chosen] for each in numbers))
        return Steps(walks, self.edge[chosen], self.link[chosen], self.ceilings[chosen])


class LivePaths:
    """The results of a search for two keywords that are alive at ``now``.

    ``bitmaps``: of the tuples with keywords. ``most``: how many of the best are wanted.
    """

    def __init__(
        self,
        query: int,
        plan: Plan,
        bitmaps: KeywordBitmaps,
        now: int,
        live: LiveTuples,
        joins: LiveJoins,
        networks: PathNetworks,
        ceilings: Ceilings,
        most: int,
    ) -> None:
        self.plan = plan
        self.mesh = networks
        self.query = query
        self._live = live
        self._ceilings = ceilings
        alive = live.tuples.end > now
        self._part = np.zeros(len(live), dtype=np.int64)
        self._part[bitmaps.tuple] = bitmaps.bitmap
        self._part[~alive | np.isin(live.tuples.relation, list(plan.query.without))] = _NO_PART
        leaving = plan.generator().edges_from
        walked = [edge for some in leaving for edge in some]
        # Walks begin with the rarer keyword.
        labels = np.bincount(self._part[self._part > 0], minlength=_BOTH)
        self._ends = (_FIRST, _SECOND) if labels[_FIRST] <= labels[_SECOND] else (_SECOND, _FIRST)
        self._weights = [ceilings.weighed[:, label - 1] for label in self._ends]
        self._leaving = LeavingEdges(leaving)
        self._joined = JoinedTuples(walked, live, joins, self._part)
        # By link: what it is worth from either end.
        self._out, self._back = (
            log_of_fans(np.arange(int(fans.max(initial=0)) + 1)).take(fans)
            for fans in self._joined.fans(ceilings.counted)
        )
        self._heaviest = float(self._weights[1].take(self._slots(self._ends[1])).max(initial=0))
        self._ahead: list[Floats] = []
        self._reached: list[Edge] = []  # by the last of them
        self._most = most
        self._least = -inf
        self._done = 0  # results of so many tuples at most have been found
        self._found = [Partials.none(plan.max_size)]
        self._orders: list[Floats] = [np.zeros(0)]

    def count(self, size: int) -> int:
        """The number of results of at most ``size`` tuples, which are at most ``MOST_COUNTED``."""
        found = len(self._slots(_BOTH))
        if size == 1:
            return found
        first, second, free = (
            [(part == label).astype(np.float64) for part in self._joined.parts]
            for label in (_FIRST, _SECOND, 0)
        )
        ahead = self._joined.across(second)
        found += round(_product(first, ahead))
        inner = _times(free, self._joined.across(first))
        back = _times(inner, ahead)
        for joins in range(2, size):
            found += round(_product(inner, ahead))
            if joins + 1 == MOST_COUNTED:
                found -= round(self._joined.to_and_fro(back, free))
            elif joins + 1 < size:
                ahead = self._joined.across(_times(free, ahead))
        return found

    @property
    def least(self) -> float:
        """The order that results must have to be among the best, by those found so far."""
        return self._least

    @property
    def found(self) -> tuple[Partials, Floats]:
        """The results that may be among the best, and their orders, or a little more."""
        self._choose()
        return self._found[0], self._orders[0]

    def find(self, size: int) -> None:
        """Find the best results of at most ``size`` tuples, more than before. Raises TimeLimitError."""
        done, self._done = self._done, size
        if not done:
            self._take(self._begun(_BOTH))
        stack = [self._steps(self._begun(self._ends[0]), size, done)]
        while stack:
            check()
            steps = stack.pop()
            if not len(steps.edge) or steps.ceilings[0] < self._least:
                continue
            stack.append(steps.taken(slice(_TOGETHER, None)))
            for walks in self._gone(steps.taken(slice(_TOGETHER))):
                at_end = self._part.take(walks.members[:, -1]) == self._ends[1]
                length = walks.members.shape[1]
                if length > done:
                    self._take(walks.taken(np.flatnonzero(at_end)))
                if length < size:
                    stack.append(self._steps(walks.taken(np.flatnonzero(~at_end)), size, done))

    def _take(self, ended: WeighedWalks) -> None:
        """Take in results; those that cannot be among the best any more are dropped."""
        weights = ended.weights + self._weights[1].take(ended.members[:, -1])
        specific = np.exp(ended.logs)
        orders = self._ceilings.reached(ended.members, weights, specific) + _ROUNDED
        good = np.flatnonzero(orders >= self._least)
        self._found.append(self._formed(ended.taken(good)))
        self._orders.append(orders.take(good))
        if sum(map(len, self._orders[1:])) >= max(self._most, len(self._orders[0]) >> 2):
            self._choose()

    def _choose(self) -> None:
        """Of the results that were taken in, keep those that may be among the best."""
        found, orders = Partials.together(self._found), np.concatenate(self._orders)
        if len(orders) > self._most:
            last = len(orders) - self._most
            self._least = float(np.partition(orders, last)[last]) - _ROUNDED
            kept = np.flatnonzero(orders >= self._least)
            found, orders = found.taken(kept), orders.take(kept)
        self._found, self._orders = [found], [orders]

    def _slots(self, keywords: int) -> Ints:
        return np.flatnonzero(self._part == keywords)

    def _begun(self, keywords: int) -> WeighedWalks:
        slots = self._slots(keywords)
        nothing = np.empty((len(slots), 0), dtype=np.int64)
        none = np.zeros(len(slots))
        return WeighedWalks(slots[:, None], nothing, none, none, self._weights[0].take(slots))

    def _steps(self, walks: WeighedWalks, size: int, done: int) -> Steps:
        """The ways to go on with some walks that may lead to good results."""
        last, length = walks.members[:, -1], walks.members.shape[1]
        which, edge = self._leaving.of(self._live.tuples.relation.take(last))
        link = self._joined.links(edge, last.take(which))
        weights = walks.weights.take(which) + self._heaviest
        logs = walks.logs.take(which) + np.maximum(walks.arrived.take(which), self._out.take(link))
        ceilings = np.full(len(which), -inf)
        for joins in range(max(1, done + 1 - length), size - length + 1):
            ahead = self._most_ahead(joins).take(link)
            some = np.flatnonzero(ahead > -inf)
            specific = np.exp(logs.take(some) + ahead.take(some))
            sizes = np.full(len(some), length + joins)
            orders = self._ceilings.of_weights(weights.take(some), sizes, specific)
            ceilings[some] = np.maximum(ceilings.take(some), orders)
        kept = np.flatnonzero((ceilings >= self._least) & (ceilings > -inf))
        kept = kept.take(np.argsort(-ceilings.take(kept), kind="stable"))
        return Steps(walks.taken(which.take(kept)), edge.take(kept), link.take(kept), ceilings.take(kept))

    def _gone(self, steps: Steps) -> Iterator[WeighedWalks]:
        """The walks to other tuples, with no keyword or the second one, in parts."""
        target = self._live.key_sets.target_relation.take(steps.edge)
        _, hashes = self._live.wanted(steps.edge, steps.walks.members[:, -1])
        for which, slots in self._live.probed(hashes):
            part = self._part.take(slots)
            there = (part == 0) | (part == self._ends[1])
            there &= self._live.tuples.relation.take(slots) == target.take(which)
            there = np.flatnonzero(there)
            which, slots = which.take(there), slots.take(there)  # noqa: PLW2901 - fewer of them
            edge = steps.edge.take(which)
            joined = self._joined.linked(edge, slots) == steps.link.take(which)
            joined &= (steps.walks.members.take(which, axis=0) != slots[:, None]).all(axis=1)
            there = np.flatnonzero(joined)
            which, slots, edge = which.take(there), slots.take(there), edge.take(there)  # noqa: PLW2901
            link = steps.link.take(which)
            yield steps.walks.taken(which).further(edge, self._out.take(link), self._back.take(link), slots)

    def _most_ahead(self, joins: int) -> Floats:
        """By link: the most of what is passed through behind it, so many joins from the second keyword."""
        while len(self._ahead) < joins:
            if not self._ahead:
                ends = [np.where(part == self._ends[1], 0.0, -inf) for part in self._joined.parts]
                links, reached = self._joined.greatest(ends)
            else:
                # The tuple behind a link is worth what either of its joins is, whichever is more.
                before = self._ahead[-1]
                (least, reached), (most, _) = map(self._passing, (before, before + self._out))
                links = np.maximum(least + self._back, most)
            self._reached = reached
            self._ahead.append(links)
        return self._ahead[joins - 1]

    def _passing(self, links: Floats) -> tuple[Floats, list[Edge]]:
        """By link: the greatest number of links that go on from a tuple without keywords."""
        vectors = self._joined.best_links(links, self._reached)
        return self._joined.greatest(
            [np.where(part == 0, vector, -inf) for part, vector in self._by_relation(vectors)]
        )

    def _by_relation(self, vectors: _Vectors) -> Iterator[tuple[Ints, Floats]]:
        return zip(self._joined.parts, vectors, strict=True)

    def _formed(self, walks: WeighedWalks) -> Partials:
        tuples, length = self._live.tuples, walks.members.shape[1]
        members = np.full((len(walks.members), self.plan.max_size), NO_MEMBER, dtype=np.int64)
        turned = self._ends[0] == _SECOND  # networks begin with the first keyword
        members[:, :length] = walks.members[:, ::-1] if turned else walks.members
        edges = walks.edges[:, ::-1] ^ 1 if turned else walks.edges
        numbers = self.mesh.numbers(tuples.relation.take(members[:, 0]), edges.T)
        start, end = tuples.start.take(walks.members).max(axis=1), tuples.end.take(walks.members).min(axis=1)
        return Partials(np.full(len(numbers), self.query, dtype=np.int64), numbers, members, start, end)


def _times(one: _Vectors, other: _Vectors) -> _Vectors:
    return [here * there for here, there in zip(one, other, strict=True)]


def _product(one: _Vectors, other: _Vectors) -> float:
    return sum(float(here @ there) for here, there in zip(one, other, strict=True))
