"""Results of two keywords among the live tuples: finds the best and counts all, without forming all.

Each leaf of a result has a keyword that no other leaf has. So with two keywords a result is one tuple, or a
path: a tuple with only the first keyword, tuples with none, a tuple with only the second one. Walks are
counted by sums along joins, one for each join value; a walk is a path if it visits no tuple twice. The best
paths are walked first, by an upper bound on the weight after a join value: the same sums, of maxima.

Only tuples that joins reach from a keyword are examined, and each join value once.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from itertools import combinations
from math import inf
from typing import Final, NamedTuple

import numpy as np

from skws.keywords.plan import Plan
from skws.queries.keywords.result_source import ResultSource
from skws.ranking.rankings import Floats, log_of_fans
from skws.ranking.upper_bounds import UpperBounds
from skws_mesh.columnar.bitmaps import KeywordBitmaps
from skws_mesh.columnar.columns import NOTHING, NULL, Flags, Hashes, Ints, distinct, index_hashes, mix
from skws_mesh.columnar.live import LeavingEdges, LiveTuples
from skws_mesh.columnar.store import NO_MEMBER, Partials
from skws_mesh.delta.network_numbers import PathNetworks
from skws_schema.budgets import check
from skws_schema.graph import Edge

MOST_COUNTED: Final = 5
"""The most tuples of results that are counted: longer walks may return to a tuple in more ways."""
_STEPS_AT_A_TIME: Final = 512
_ROUNDING: Final = 1e-8  # the largest difference between the orders of scores and the orders here
_FIRST, _SECOND, _BOTH = 1, 2, 3  # keyword bitmaps


class Ways(NamedTuple):
    """Tuples in order of their slots, each with the number of walks that lead to it."""

    slots: Ints
    numbers: Floats

    def to(self, slots: Ints) -> Floats:
        """The number for each of some tuples."""
        if not len(self.slots):
            return np.zeros(len(slots))
        index = np.searchsorted(self.slots, slots)
        index[index == len(self.slots)] = 0
        return np.where(self.slots.take(index) == slots, self.numbers.take(index), 0.0)


class Roles:
    """The possible roles of live tuples in results at ``now``. ``bitmaps``: of the tuples with keywords.

    Tuples of relations that the query leaves out have no keywords, and no join leads to them.
    """

    def __init__(self, live: LiveTuples, bitmaps: KeywordBitmaps, now: int) -> None:
        self._tuples = live.tuples
        self._now = now
        slots, keywords = bitmaps.tuple, np.where(self._is_alive(bitmaps.tuple), bitmaps.bitmap, 0)
        self._keywords = np.zeros(len(live), dtype=np.int8)  # by slot, of the tuples that are alive
        self._keywords[slots] = keywords
        first, second, self.with_both = (slots[keywords == label] for label in (_FIRST, _SECOND, _BOTH))
        # Walks begin with the rarer keyword.
        self.is_turned = len(first) > len(second)
        self.begins, self.ends = (second, first) if self.is_turned else (first, second)
        """The tuples with only one keyword, at either end of a path; ``with_both``: the tuples with both."""
        self._end = _FIRST if self.is_turned else _SECOND

    def is_end(self, slots: Ints) -> Flags:
        flags: Flags = self._keywords.take(slots) == self._end
        return flags

    def is_free(self, slots: Ints) -> Flags:
        """Flags the tuples that can be inside results: those without keywords."""
        flags: Flags = self._keywords.take(slots) == 0
        return flags & self._is_alive(slots)

    def _is_alive(self, slots: Ints) -> Flags:
        flags: Flags = self._tuples.end.take(slots) > self._now
        return flags


class Links(NamedTuple):
    """Tuples with the edges that leave them, as (position of the tuple, edge, join value).

    An edge with a join value is a *link*; ``keys`` has a hash for each.
    """

    position: Ints
    edge: Ints
    value: Ints

    @property
    def keys(self) -> Hashes:
        return index_hashes(self.edge, self.value)

    @property
    def back(self) -> Hashes:
        """The hashes of the links that lead back to the tuples."""
        return index_hashes(self.edge ^ 1, self.value)

    def take(self, positions: Ints) -> Links:
        return Links(*(column.take(positions) for column in self))


class Numbered:
    """Numbers by hash; the numbers of equal hashes are added up."""

    def __init__(self, keys: Hashes, numbers: Floats) -> None:
        order = np.argsort(keys)
        keys, numbers = keys.take(order), numbers.take(order)
        first = np.flatnonzero(np.diff(keys, prepend=~keys[:1]))
        self._keys = keys.take(first)
        self._numbers = np.add.reduceat(numbers, first) if len(first) else numbers
        # Hashes are spread evenly, so their leading bits nearly determine their index.
        bits = max(1, len(first).bit_length())
        self._shift = np.uint64(64 - bits)
        places = (self._keys >> self._shift).view(np.int64)
        self._begins = np.searchsorted(places, np.arange((1 << bits) + 1))

    def __len__(self) -> int:
        return len(self._keys)

    def merged(self, other: Numbered) -> Numbered:
        """The numbers of both."""
        keys, numbers = (self._keys, other._keys), (self._numbers, other._numbers)
        return Numbered(np.concatenate(keys), np.concatenate(numbers))

    def of(self, keys: Hashes, otherwise: float) -> Floats:
        """The sum of the numbers of each hash; ``otherwise`` for unknown hashes."""
        leading = (keys >> self._shift).view(np.int64)
        index, end = self._begins.take(leading), self._begins.take(leading + 1)
        numbers_of = np.full(len(keys), otherwise)
        pending = np.flatnonzero(index < end)
        while len(pending):
            candidates = index.take(pending)
            is_equal = self._keys.take(candidates) == keys.take(pending)
            numbers_of[pending[is_equal]] = self._numbers.take(candidates[is_equal])
            index[pending] += 1
            pending = pending[~is_equal & (candidates + 1 < end.take(pending))]
        return numbers_of


class JoinedTuples:
    """The live tuples as joined by some edges. ``leaving``: these edges, by the relation that they leave."""

    def __init__(self, leaving: Sequence[Sequence[Edge]], live: LiveTuples) -> None:
        self._live = live
        self._leaving = LeavingEdges(leaving)
        edges = [edge for edges_of_relation in leaving for edge in edges_of_relation]
        self._loops = np.array([edge.id for edge in edges if edge.source == edge.target], dtype=np.int64)
        self._parallel_edges = [
            (edge.id, other.id)
            for edge, other in combinations(edges, 2)
            if (edge.source, edge.target) == (other.source, other.target)
        ]

    def links(self, slots: Ints) -> Links:
        """The links of some tuples, in the order of their slots."""
        position, edge = self._leaving.of(self._live.tuples.relation.take(slots))
        has_value, values = self._live.join_values(edge, slots.take(position))
        if len(values) < len(edge):
            position, edge = position[has_value], edge[has_value]
        return Links(position, edge, values)

    def next_to(self, slots: Ints) -> Ints:
        """The tuples joined with some, and perhaps others with equal hashes; each once, in order."""
        links = self.links(slots)
        hashes = distinct(index_hashes(self._live.key_sets.edge_index.take(links.edge), links.value))
        partners = [distinct(slot) for _, slot in self._live.probe_in_parts(hashes)]
        return distinct(np.concatenate([NOTHING, *partners]))

    def across(self, ways: Ways, slots: Ints) -> Floats:
        """For each of some tuples, the sum of ``ways`` over the other tuples to which edges lead."""
        way_links, links = self.links(ways.slots), self.links(slots)
        sums = Numbered(way_links.back, ways.numbers.take(way_links.position))
        sums_of_others = np.bincount(links.position, sums.of(links.keys, 0.0), len(slots)).astype(np.float64)
        if len(self._loops):
            sums_of_others -= self._loops_of(slots) * ways.to(slots)
        return sums_of_others

    def count(self, slots: Ints, is_chosen: Callable[[Ints], Flags]) -> Floats:
        """For each of some tuples, the number of chosen ones to which edges lead, itself included."""
        links = self.links(slots)
        keys, first, link_numbers = np.unique(links.keys, return_index=True, return_inverse=True)
        counts = np.zeros(len(keys), dtype=np.int64)
        for position, slot in self._live.partners(links.edge.take(first), links.value.take(first)):
            counts += np.bincount(position[is_chosen(slot)], minlength=len(keys))
        return np.bincount(links.position, counts.take(link_numbers), len(slots)).astype(np.float64)

    def returns(self, slots: Ints, is_chosen: Callable[[Ints], Flags]) -> Floats:
        """For each of some chosen tuples, the number of walks to another chosen one and back."""
        walks = self.count(slots, is_chosen)
        walks -= self._loops_of(slots) ** 2  # to itself, by one edge or by two
        for edge, other_edge in self._parallel_edges:  # there by one edge and back by another, either way
            walks += 2 * self._joined_by_both(edge, other_edge, slots, is_chosen)
        return walks

    def _joined_by_both(
        self, edge: int, other_edge: int, slots: Ints, is_chosen: Callable[[Ints], Flags]
    ) -> Floats:
        """For each of some tuples, the number of chosen ones to which two parallel edges both lead."""
        live, sets = self._live, self._live.key_sets
        keys = live.tuples.keys

        def values(slots: Ints, columns: Ints) -> tuple[Ints, Ints]:
            return keys[slots, columns[edge]], keys[slots, columns[other_edge]]

        def codes(values: tuple[Ints, Ints]) -> Hashes:
            return mix(index_hashes(np.zeros(len(values[0]), dtype=np.int64), values[0]), values[1])

        positions = np.flatnonzero(self._joins(edge, slots) & self._joins(other_edge, slots))
        join_values = values(slots.take(positions), sets.source)
        distinct_values = distinct(join_values[0])
        partner_lists = [
            slot for _, slot in live.partners(np.full(len(distinct_values), edge), distinct_values)
        ]
        partners = np.concatenate([NOTHING, *partner_lists])
        partners = partners[is_chosen(partners) & (keys[partners, sets.target[other_edge]] != NULL)]
        partner_codes = np.sort(codes(values(partners, sets.target)))
        own_codes = codes(join_values)
        counts = np.zeros(len(slots))
        counts[positions] = np.searchsorted(partner_codes, own_codes, side="right") - np.searchsorted(
            partner_codes, own_codes
        )
        return counts

    def _joins(self, edge: int, slots: Ints) -> Flags:
        """Which tuples have a join value for an edge."""
        joins: Flags = self._live.tuples.relation.take(slots) == self._live.key_sets.target_relation[edge ^ 1]
        joins[joins], _ = self._live.join_values(np.full(int(joins.sum()), edge), slots[joins])
        return joins

    def _loops_of(self, slots: Ints) -> Floats:
        """The number of edges by which each tuple joins itself."""
        loops = np.zeros(len(slots))
        for edge in self._loops.tolist():
            positions = np.flatnonzero(self._joins(edge, slots))
            joining_slots = slots.take(positions)
            loops[positions] += self._live.are_joined(
                np.full(len(positions), edge), joining_slots, joining_slots
            )
        return loops


class LinkNumbers(ABC):
    """A number for each link, computed once."""

    def __init__(self) -> None:
        self._numbered: list[Numbered] = []  # each more than twice as large as the next

    def of(self, edge: Ints, value: Ints) -> Floats:
        keys = index_hashes(edge, value)
        numbers_of, unknown = np.full(len(keys), np.nan), np.arange(len(keys))
        for numbered in self._numbered:
            numbers_of[unknown] = numbered.of(keys.take(unknown), np.nan)
            unknown = unknown.take(np.flatnonzero(np.isnan(numbers_of.take(unknown))))
        if len(unknown):
            distinct_keys, first, key_numbers = np.unique(
                keys.take(unknown), return_index=True, return_inverse=True
            )
            numbers = self._find(edge.take(unknown.take(first)), value.take(unknown.take(first)))
            numbers_of[unknown] = numbers.take(key_numbers)
            self._remember(Numbered(distinct_keys, numbers))
        return numbers_of

    def _remember(self, numbered: Numbered) -> None:
        while self._numbered and len(self._numbered[-1]) <= 2 * len(numbered):
            numbered = self._numbered.pop().merged(numbered)
        self._numbered.append(numbered)

    @abstractmethod
    def _find(self, edge: Ints, value: Ints) -> Floats:
        """The numbers of distinct links."""


class FanLogs(LinkNumbers):
    """The weight of a tuple that a link passes through, from the link's number of tuples (``log_of_fans``).

    ``is_counted``: flags the tuples that count.
    """

    def __init__(self, live: LiveTuples, is_counted: Callable[[Ints], Flags]) -> None:
        super().__init__()
        self._live = live
        self._is_counted = is_counted

    def _find(self, edge: Ints, value: Ints) -> Floats:
        counts = np.zeros(len(edge), dtype=np.int64)
        for position, slot in self._live.partners(edge, value):
            counts += np.bincount(position[self._is_counted(slot)], minlength=len(edge))
        return log_of_fans(counts)


class NextToEnds(LinkNumbers):
    """0 for links that lead to the end of a result, else minus infinity."""

    def __init__(self, live: LiveTuples, roles: Roles) -> None:
        super().__init__()
        self._live = live
        self._roles = roles

    def _find(self, edge: Ints, value: Ints) -> Floats:
        weights = np.full(len(edge), -inf)
        for position, slot in self._live.partners(edge, value):
            weights[position[self._roles.is_end(slot)]] = 0.0
        return weights


class MostAhead(LinkNumbers):
    """The greatest total weight of tuples that walks pass through after links, for a number of joins left.

    ``shorter``: the same for one join less.
    """

    def __init__(
        self,
        live: LiveTuples,
        joined: JoinedTuples,
        fans: FanLogs,
        shorter: LinkNumbers,
        roles: Roles,
    ) -> None:
        super().__init__()
        self._live = live
        self._joined = joined
        self._fans = fans
        self._shorter = shorter
        self._roles = roles

    def _find(self, edge: Ints, value: Ints) -> Floats:
        least, most = np.full((2, len(edge)), -inf)
        for position, slot in self._live.partners(edge, value):
            is_free = self._roles.is_free(slot)
            slots, slot_numbers = np.unique(slot[is_free], return_inverse=True)
            links = self._joined.links(slots)
            weights = self._shorter.of(links.edge, links.value)
            leading = np.flatnonzero(weights > -inf)
            links, weights = links.take(leading), weights.take(leading)
            fans = self._fans.of(links.edge, links.value)
            for numbers, greatest in ((weights, least), (weights + fans, most)):
                of_tuple = np.full(len(slots), -inf)
                np.maximum.at(of_tuple, links.position, numbers)
                np.maximum.at(greatest, position[is_free], of_tuple.take(slot_numbers))
        # The tuple after a link weighs as much as the heavier of its two joins.
        link_rows = np.flatnonzero(most > -inf)
        back_weights = self._fans.of(edge.take(link_rows) ^ 1, value.take(link_rows))
        most[link_rows] = np.maximum(least.take(link_rows) + back_weights, most.take(link_rows))
        return most


class WeighedWalks(NamedTuple):
    """Walks from tuples with the first keyword, in rows: the slots of each, and the edges between them.

    ``logs``: the total weight of the tuples that a walk passes through. ``last_weights``: the weight of
    the last join from its end. ``weights``: of the keyword.
    """

    members: Ints
    edges: Ints
    logs: Floats
    last_weights: Floats
    weights: Floats

    def take(self, rows: Ints) -> WeighedWalks:
        members, edges = self.members.take(rows, axis=0), self.edges.take(rows, axis=0)
        logs, last_weights = self.logs.take(rows), self.last_weights.take(rows)
        return WeighedWalks(members, edges, logs, last_weights, self.weights.take(rows))

    def further(self, edge: Ints, out: Floats, back: Floats, slots: Ints) -> WeighedWalks:
        """Each walk with one more join; ``out`` and ``back`` are the weights of this join from either end."""
        members, edges = np.column_stack([self.members, slots]), np.column_stack([self.edges, edge])
        # A tuple that is passed through counts by the join with the smaller fan.
        return WeighedWalks(
            members, edges, self.logs + np.maximum(self.last_weights, out), back, self.weights
        )


class Steps(NamedTuple):
    """Walks, each with a link by which it continues; best first, by ``ceilings``."""

    walks: WeighedWalks
    links: Links
    ceilings: Floats

    def take(self, rows: slice) -> Steps:
        (members, edges, *numbers), links = self.walks, self.links
        walks = WeighedWalks(members[rows], edges[rows], *(each[rows] for each in numbers))
        return Steps(walks, Links(*(column[rows] for column in links)), self.ceilings[rows])


class LivePaths:
    """The results of a search for two keywords that are alive at ``now``.

    ``bitmaps``: of the tuples with keywords. ``most``: the number of best results that are wanted.
    ``agreeing``: flags results that are joined by equal values; different values may have equal integers.
    """

    def __init__(
        self,
        query: int,
        plan: Plan,
        bitmaps: KeywordBitmaps,
        now: int,
        live: LiveTuples,
        networks: PathNetworks,
        ceilings: UpperBounds,
        most: int,
        agreeing: Callable[[Partials, Callable[[int], ResultSource]], Flags],
    ) -> None:
        self.plan = plan
        self.mesh = networks
        self.query = query
        self._live = live
        self._ceilings = ceilings
        self._agreeing = agreeing
        self._roles = Roles(live, bitmaps, now)
        weights = ceilings.weights[::-1] if self._roles.is_turned else ceilings.weights
        self._weights, self._weights_at_end = weights
        self._joined = JoinedTuples(plan.generator().edges_from, live)
        self._fans = FanLogs(live, ceilings.is_alive)
        self._heaviest = float(self._weights_at_end.take(self._roles.ends).max(initial=0))
        self._ahead: list[LinkNumbers] = [NextToEnds(live, self._roles)]
        self._most = most
        self._least = -inf
        self._found_size = 0  # results of at most this many tuples have been found
        self._partials = [Partials.none(plan.max_size)]
        self._orders: list[Floats] = [np.zeros(0)]

    def count(self, size: int) -> int:
        """The number of results of at most ``size`` tuples, which are at most ``MOST_COUNTED``."""
        total = len(self._roles.with_both)
        if size == 1:
            return total
        begins, ends = self._roles.begins, self._roles.ends
        total += round(float(self._joined.count(begins, self._roles.is_end).sum()))
        if size > 2:  # of three tuples, one is between them
            ways_out = self._next(Ways(begins, np.ones(len(begins))))
            walk_counts = ways_out.numbers * self._joined.count(ways_out.slots, self._roles.is_end)
            total += round(float(walk_counts.sum()))
        if size > 3:
            ways_back = self._next(Ways(ends, np.ones(len(ends))))
            total += round(float(ways_out.numbers @ self._joined.across(ways_back, ways_out.slots)))
        if size > 4:  # the first and the last of three may be one
            smaller, larger = sorted((ways_out, ways_back), key=lambda ways: len(ways.slots))
            middle = self._next(smaller)
            total += round(float(middle.numbers @ self._joined.across(larger, middle.slots)))
            turning = np.flatnonzero(walk_counts)
            returns = self._joined.returns(ways_out.slots.take(turning), self._roles.is_free)
            total -= round(float(walk_counts.take(turning) @ returns))
        return total

    def _next(self, ways: Ways) -> Ways:
        """The walks with one more join, to tuples without keywords."""
        slots = self._joined.next_to(ways.slots)
        slots = slots[self._roles.is_free(slots)]
        numbers = self._joined.across(ways, slots)
        nonzero = np.flatnonzero(numbers)
        return Ways(slots.take(nonzero), numbers.take(nonzero))

    @property
    def least(self) -> float:
        """The order that results must have to be among the best, by those found so far."""
        return self._least

    @property
    def found(self) -> tuple[Partials, Floats]:
        """The results that may be among the best, with their orders or slightly higher bounds."""
        self._choose()
        return self._partials[0], self._orders[0]

    def find(self, size: int) -> None:
        """Find the best results of at most ``size`` tuples, more than before. Raises TimeLimitError."""
        found_size, self._found_size = self._found_size, size
        if not found_size:
            self._take(self._first_walks(self._roles.with_both))
        stack = [self._steps(self._first_walks(self._roles.begins), size, found_size)]
        while stack:
            check()
            steps = stack.pop()
            if not len(steps.ceilings) or steps.ceilings[0] < self._least:
                continue
            stack.append(steps.take(slice(_STEPS_AT_A_TIME, None)))
            for walks in self._extended(steps.take(slice(_STEPS_AT_A_TIME))):
                at_end = self._roles.is_end(walks.members[:, -1])
                length = walks.members.shape[1]
                if length > found_size:
                    self._take(walks.take(np.flatnonzero(at_end)))
                if length < size:
                    stack.append(self._steps(walks.take(np.flatnonzero(~at_end)), size, found_size))

    def _take(self, walks: WeighedWalks) -> None:
        """Add results; those that can no longer be among the best are dropped."""
        weights = walks.weights + self._weights_at_end.take(walks.members[:, -1])
        specific = np.exp(walks.logs)
        orders = self._ceilings.orders_of(walks.members, weights, specific) + _ROUNDING
        rows = np.flatnonzero(orders >= self._least)
        partials, orders = self._formed(walks.take(rows)), orders.take(rows)
        is_joined = self._agreeing(partials, lambda _: self)
        self._partials.append(partials.take(is_joined))
        self._orders.append(orders[is_joined])
        if sum(map(len, self._orders[1:])) >= max(self._most, len(self._orders[0]) >> 2):
            self._choose()

    def _choose(self) -> None:
        """Keep only the results that may be among the best."""
        partials, orders = Partials.concat(self._partials), np.concatenate(self._orders)
        if len(orders) > self._most:
            last = len(orders) - self._most
            self._least = float(np.partition(orders, last)[last]) - _ROUNDING
            rows = np.flatnonzero(orders >= self._least)
            partials, orders = partials.take(rows), orders.take(rows)
        self._partials, self._orders = [partials], [orders]

    def _first_walks(self, slots: Ints) -> WeighedWalks:
        no_edges = np.empty((len(slots), 0), dtype=np.int64)
        zeros = np.zeros(len(slots))
        return WeighedWalks(slots[:, None], no_edges, zeros, zeros, self._weights.take(slots))

    def _steps(self, walks: WeighedWalks, size: int, found_size: int) -> Steps:
        """The continuations of some walks that may lead to good results."""
        length = walks.members.shape[1]
        links = self._joined.links(walks.members[:, -1])
        weights = walks.weights.take(links.position) + self._heaviest
        logs = walks.logs.take(links.position) + np.maximum(
            walks.last_weights.take(links.position), self._fans.of(links.edge, links.value)
        )
        ceilings = np.full(len(links.edge), -inf)
        for joins in range(max(1, found_size + 1 - length), size - length + 1):
            weights_ahead = self._most_ahead(joins).of(links.edge, links.value)
            leading = np.flatnonzero(weights_ahead > -inf)
            specific = np.exp(logs.take(leading) + weights_ahead.take(leading))
            sizes = np.full(len(leading), length + joins)
            orders = self._ceilings.of_weights(weights.take(leading), sizes, specific)
            ceilings[leading] = np.maximum(ceilings.take(leading), orders)
        rows = np.flatnonzero((ceilings >= self._least) & (ceilings > -inf))
        rows = rows.take(np.argsort(-ceilings.take(rows), kind="stable"))
        links = links.take(rows)
        return Steps(walks.take(links.position), links, ceilings.take(rows))

    def _extended(self, steps: Steps) -> Iterator[WeighedWalks]:
        """The walks to tuples that are not on them, with no keyword or the second one, in parts."""
        edge, value = steps.links.edge, steps.links.value
        out, back = self._fans.of(edge, value), self._fans.of(edge ^ 1, value)
        for walk_rows, slots in self._live.partners(edge, value):
            is_open = self._roles.is_free(slots) | self._roles.is_end(slots)
            is_open &= (steps.walks.members.take(walk_rows, axis=0) != slots[:, None]).all(axis=1)
            walk_rows, slots = walk_rows[is_open], slots[is_open]  # noqa: PLW2901 - fewer of them
            walks = steps.walks.take(walk_rows)
            yield walks.further(edge.take(walk_rows), out.take(walk_rows), back.take(walk_rows), slots)

    def _most_ahead(self, joins: int) -> LinkNumbers:
        """The greatest total weight after links, for a number of joins to the end."""
        while len(self._ahead) < joins:
            self._ahead.append(MostAhead(self._live, self._joined, self._fans, self._ahead[-1], self._roles))
        return self._ahead[joins - 1]

    def _formed(self, walks: WeighedWalks) -> Partials:
        tuples, length = self._live.tuples, walks.members.shape[1]
        members = np.full((len(walks.members), self.plan.max_size), NO_MEMBER, dtype=np.int64)
        is_turned = self._roles.is_turned  # networks begin with the first keyword
        members[:, :length] = walks.members[:, ::-1] if is_turned else walks.members
        edges = walks.edges[:, ::-1] ^ 1 if is_turned else walks.edges
        numbers = self.mesh.numbers(tuples.relation.take(members[:, 0]), edges.T)
        start, end = tuples.start.take(walks.members).max(axis=1), tuples.end.take(walks.members).min(axis=1)
        return Partials(np.full(len(numbers), self.query, dtype=np.int64), numbers, members, start, end)
