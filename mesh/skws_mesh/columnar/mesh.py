"""Joins in batches: new partials with all live tuples, and waiting partials with new tuples.

One mesh serves all queries of one shape: the same number of keywords, searched
in the same relations, and networks of the same size. They have the same
operators, so their partials are in the same tables and are joined together; the
query is one more column.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from itertools import chain, pairwise

import numpy as np

from skws_mesh.backend import OperatorUse
from skws_mesh.columnar.bitmaps import KeywordBitmaps, LiveBitmaps, WakeStates
from skws_mesh.columnar.columns import Flags, Hashes, Ints, cells, mix, ranges
from skws_mesh.columnar.hash_index import PAIRS, HashIndex, in_fewer_parts
from skws_mesh.columnar.live import InsertedTuples, LiveTuples
from skws_mesh.columnar.operators import NONE, NewPartials, OperatorTable, Waiting
from skws_mesh.columnar.semi_join import BridgeEntries, SemiJoinFilter
from skws_mesh.columnar.store import NO_MEMBER, Partials
from skws_mesh.sequence import FREE
from skws_mesh.tree import Tree
from skws_purging.lifespans import ALWAYS
from skws_schema.budgets import check


class Pairs:
    """Joins pairs over live tuples, their keyword bitmaps and the operators of a mesh.

    ``in_order``: the query prescribes an order of its keywords.
    """

    def __init__(
        self, live: LiveTuples, bitmaps: LiveBitmaps, operators: OperatorTable, *, width: int, in_order: bool
    ) -> None:
        self._live = live
        self._bitmaps = bitmaps
        self._operators = operators
        self._width = width
        self._in_order = in_order

    def join(self, partials: Partials, groups: Ints, rows: Ints, partners: Ints) -> Partials:
        """Join each partial with its tuple, if an operator accepts the pair and all are alive together.

        ``groups``, ``rows`` and ``partners`` give, for each pair, the group, the
        row of the partial and the slot of the tuple.
        """
        tuples = self._live.tuples
        start = np.maximum(partials.start.take(rows), tuples.start.take(partners))
        end = np.minimum(partials.end.take(rows), tuples.end.take(partners))
        # in many pairs one side is dead, so the cheapest test rules out most
        alive = np.flatnonzero(start < end)
        rows, partners = rows.take(alive), partners.take(alive)
        query = partials.query.take(rows).astype(np.int64, copy=False)
        labels = self._bitmaps.of(query, partners)
        operators = self._operators.next(groups.take(alive).astype(np.int64, copy=False), labels)
        members = partials.members.take(rows, axis=0)
        valid = operators != NONE
        for node in range(self._width - 1):
            valid &= members[:, node] != partners
        indices = np.flatnonzero(valid)
        if self._in_order:
            indices = indices[self._in_sequence(operators[indices], members[indices], partners[indices])]
        operators, alive = operators.take(indices), alive.take(indices)
        members = members.take(indices, axis=0).astype(np.int64, copy=False)
        members[np.arange(len(indices)), self._operators.size(operators) - 1] = partners.take(indices)
        return Partials(query.take(indices), operators, members, start.take(alive), end.take(alive))

    def _in_sequence(self, operators: Ints, members: Ints, partners: Ints) -> Flags:
        """True for each partner whose keywords are in order with those of the members."""
        tuples, ranks = self._live.tuples, self._operators.ranks(operators)
        rank = ranks[np.arange(len(ranks)), self._operators.size(operators) - 1][:, None]
        start, member_start = tuples.start[partners][:, None], tuples.start[members]
        is_later = (start > member_start) | (
            (start == member_start) & (tuples.place[partners][:, None] > tuples.place[members])
        )
        is_unordered = (rank == FREE) | (ranks == FREE) | (ranks == rank)
        in_order: Flags = (is_unordered | (is_later == (rank > ranks))).all(axis=1)
        return in_order

    def verify(self, results: Partials) -> Partials:
        """Drop results whose joins agree only in the leading bits of hashes, and duplicates."""
        valid = np.concatenate([np.empty(0, dtype=bool), *map(self._joins_match, results.parts(PAIRS))])
        return _distinct(results if valid.all() else results.take(valid))

    def _joins_match(self, results: Partials) -> Flags:
        """True for each result whose joins all agree."""
        valid = np.ones(len(results), dtype=bool)
        for node in range(1, self._width):
            parents, edges = self._operators.joins(results.operator, node)
            rows = np.flatnonzero(edges != NONE)
            source = results.members[rows, parents[rows]]
            valid[rows] &= self._live.are_joined(edges[rows], source, results.members[rows, node])
        return valid


def _distinct(results: Partials) -> Partials:
    """Each result once: an index returns a tuple twice if hashes of two of its join values begin alike."""
    codes = mix(results.operator.view(np.uint64), results.query)
    for slots in results.members.T:
        codes = mix(codes, np.ascontiguousarray(slots))
    codes.sort()
    if not (codes[1:] == codes[:-1]).any():
        return results
    rows = np.column_stack([results.query, results.operator, results.members])
    _, first = np.unique(rows, axis=0, return_index=True)
    return results.take(np.sort(first))


# With fewer partials there are fewer groups than PAIRS, so counting them does not pay.
_LEAST_PARTIALS = PAIRS >> 6


class ColumnarMesh:
    """Full mesh of the keyword queries of one shape, fed by batches of tuples with final lifespans.

    ``accepts_root`` restricts the mesh to results whose root tuple, by slot, it
    accepts. Meshes whose generators have one shape may share ``operators``.
    Queries are numbers below 2**QUERY_BITS.

    A *closed* group waits only for tuples with keywords, or for bridges to such
    tuples. These are few, so they meet its partials in a separate index, by
    query.

    Sleeping queries have no partials (``WakeStates``).
    """

    def __init__(
        self,
        live: LiveTuples,
        operators: OperatorTable,
        accepts_root: Callable[[Ints], Flags] | None = None,
    ) -> None:
        generator = operators.generator
        self._live = live
        self._operators = operators
        self._accepts_root = accepts_root
        self._width = generator.max_size
        self._bitmaps = LiveBitmaps()
        self._sleep = WakeStates(generator.all, self.excluded)
        self._pairs = Pairs(
            live, self._bitmaps, self._operators, width=self._width, in_order=bool(generator.sequence)
        )
        self._carriers = HashIndex()  # live tuples with keywords: (join value, query) -> slot
        self._bridges = SemiJoinFilter(live, self._bitmaps, generator)
        # Removed queries, with the number of their bitmaps still in the indexes.
        self._removed: dict[int, int] = {}
        self._waiting = Waiting(self._width, self._operators)
        self._results: list[Partials] = []  # while partials grow
        self._new = NewPartials()

    @property
    def partials(self) -> int:
        """The number of waiting partials, including dead ones not yet purged."""
        return len(self._waiting)

    @property
    def results(self) -> list[Partials]:
        """Results found so far for the tuples of the running call."""
        return self._results

    def partial_results(self) -> Iterator[Partials]:
        """The waiting partials, and the new ones that will wait; columns are as narrow as stored."""
        yield self._waiting.partials
        yield from self._new.partials

    @property
    def labels(self) -> int:
        """The number of pairs of a live tuple and a query of which the tuple contains keywords."""
        return len(self._bitmaps)

    def bitmaps_of(self, slots: Ints) -> KeywordBitmaps:
        """The bitmaps of some tuples, by their position in ``slots``."""
        positions, bitmaps = self._bitmaps.bitmaps_of(slots)
        return KeywordBitmaps(positions, bitmaps.query, bitmaps.bitmap)

    @property
    def operators(self) -> int:
        """The number of operators made so far."""
        return len(self._operators)

    @property
    def excluded(self) -> int:
        """The bitmap of tuples that are excluded from a query."""
        return self._operators.excluded

    def insert(self, new_tuples: InsertedTuples, bitmaps: KeywordBitmaps, horizon: int = ALWAYS) -> Partials:
        """Insert new live tuples; returns the results that they complete.

        ``bitmaps`` are those of the new tuples with keywords, by slot. Partials
        that end by ``horizon`` do not wait.
        """
        self._bridges.renew()
        self._bitmaps.append(bitmaps, len(self._live))
        slots, hashes = self._entries(bitmaps)
        self._carriers.add(hashes, slots)
        bridge_entries = self._bridges.insert(new_tuples, bitmaps)
        roots = self._roots_of(bitmaps.take(self._sleep.is_awake(bitmaps.query)))
        front = chain(
            self._join_matches(self._waiting.in_open_groups(new_tuples.hashes), new_tuples.slots),
            self._join_matches(self._waiting.in_closed_groups(hashes), slots),
            self._join_bridges(new_tuples, bridge_entries),
            (roots, self._wake(bitmaps)),
        )
        return self._grow(front, horizon)

    def add(self, queries: Iterable[int], bitmaps: KeywordBitmaps) -> Partials:
        """Add queries, given the live tuples with their keywords; returns the results that are alive now."""
        numbers = set(queries)
        if not numbers.isdisjoint(self._removed):
            self._purge()
        for query in numbers:
            self._sleep.enrol(query)
        return self._grow(iter([self._add_labels(bitmaps)]))

    def load(self, bitmaps: KeywordBitmaps) -> Iterator[Partials]:
        roots = self._add_labels(bitmaps)
        for part in roots.parts(PAIRS):
            yield self._grow(iter([part]))

    def _add_labels(self, bitmaps: KeywordBitmaps) -> Partials:
        """Add bitmaps of live tuples; returns the partials of size 1 of the queries that they wake."""
        self._bitmaps.insert(bitmaps, len(self._live))
        slots, hashes = self._entries(bitmaps)
        self._carriers.add(hashes, slots)
        self._bridges.add(bitmaps)
        return self._wake(bitmaps)

    def remove(self, query: int) -> None:
        self._removed[query] = self._bitmaps.forget(query)
        self._sleep.forget(query)
        remaining = self._waiting.partials.query != query
        if not remaining.all():
            self._waiting.keep(remaining)
        if sum(self._removed.values()) > len(self._bitmaps):
            self._purge()

    def live_keywords(self, query: int) -> int:
        """The keywords of a query that live tuples carry; dead tuples may count until they are purged."""
        return self._sleep.keywords(query)

    def operator_uses(self) -> list[OperatorUse]:
        """The operators that have had partials."""
        return self._operators.uses(self._waiting.groups)

    @property
    def waiting_counts(self) -> tuple[int, int]:
        return self._operators.expanded, len(self._waiting.groups)

    def network(self, operator: int) -> Tree:
        """The candidate network of a complete operator."""
        return self._operators.trees[operator]

    def end(self, slots: Ints) -> None:
        """End the partials that contain these tuples, which were ended early."""
        self._waiting.end(slots, self._live.tuples.end)

    def expire(self, horizon: int) -> None:
        """Nothing to do: ``compact`` drops ended partials, as one sweep costs less than many."""

    def mark(self, horizon: int, flags: Flags) -> None:
        """Flag the tuples, by slot, that bridges need, or partials that are alive after ``horizon``.

        A free tuple without a flag may be dropped if it can be inserted again on demand.
        """
        self._waiting.mark(horizon, flags)
        self._bridges.mark(flags)

    def mark_carriers(self, flags: Flags, *, leaving: Collection[int] = ()) -> None:
        """Flag the tuples, by slot, that have keywords of a query outside ``leaving`` or are excluded."""
        labels = self._bitmaps.all()
        flags[labels.tuple[~np.isin(labels.query, list(leaving))] if leaving else labels.tuple] = True

    def lookups(self) -> Iterator[tuple[Ints, Ints]]:
        """The look-ups that new tuples may answer, as (edges, members)."""
        yield self._waiting.lookups()
        yield self._bridges.lookups()

    def compact(self, horizon: int, slots: Ints) -> None:
        """Drop partials that ended at or before ``horizon``, and give tuples their new slots."""
        self._bitmaps.remap(slots)
        self._carriers.remap(slots)
        self._bridges.compact(slots)
        self._waiting.compact(horizon, slots)
        if self._sleep.reset(self._bitmaps.all()):
            self._drop_partials_of_sleepers()

    def _purge(self) -> None:
        """Drop the entries of removed queries."""
        self._removed = {}
        self._carriers = HashIndex()
        slots, hashes = self._entries(self._bitmaps.all())
        self._carriers.add(hashes, slots)
        self._bridges.forget()

    def _wake(self, bitmaps: KeywordBitmaps) -> Partials:
        """Wake queries by new bitmaps; returns their partials of size 1."""
        newly_awake = self._sleep.wake(bitmaps)
        if not newly_awake.any():
            return Partials.none(self._width)
        labels = self._bitmaps.all()
        return self._roots_of(labels.take(newly_awake[labels.query]))

    def _drop_partials_of_sleepers(self) -> None:
        self._waiting.keep(self._sleep.is_awake(self._waiting.partials.query))

    def _entries(self, bitmaps: KeywordBitmaps) -> tuple[Ints, Hashes]:
        """Entries for the index of tuples with keywords: slots, and hashes of join value and query."""
        included = bitmaps.bitmap != self.excluded
        slots, query = bitmaps.tuple[included], bitmaps.query[included]
        position, hashes = self._live.entries(slots)
        return slots[position], mix(hashes, query[position])

    def _join_bridges(self, new_tuples: InsertedTuples, bridge_entries: BridgeEntries) -> Iterator[Partials]:
        """Join partials with new bridges, and with new tuples across older bridges."""
        matches = self._waiting.in_closed_groups(bridge_entries.hashes)
        for partials in self._join_matches(matches, bridge_entries.slots):
            is_new = partials.members[:, self._width - 2] >= new_tuples.first
            yield partials.take(is_new)
            old_partials = partials.take(~is_new)
            partial, groups, hashes = self._spread(old_partials)
            for positions, slots in self._carriers.probe_in_parts(mix(hashes, old_partials.query[partial])):
                is_closing = slots >= new_tuples.first
                positions, slots = positions[is_closing], slots[is_closing]  # noqa: PLW2901 - fewer of them
                yield self._pairs.join(old_partials, groups[positions], partial[positions], slots)

    def _roots_of(self, bitmaps: KeywordBitmaps) -> Partials:
        """The partials of size 1: tuples that belong to a root."""
        tuples = self._live.tuples
        operators = self._operators.roots(tuples.relation[bitmaps.tuple], bitmaps.bitmap)
        indices = np.flatnonzero(operators != NONE)
        slots = bitmaps.tuple[indices]
        valid = tuples.start[slots] < tuples.end[slots]
        if self._accepts_root is not None:
            valid &= self._accepts_root(slots)
        indices, slots = indices[valid], slots[valid]
        members = np.full((len(slots), self._width), NO_MEMBER, dtype=np.int64)
        members[:, 0] = slots
        return Partials(
            bitmaps.query[indices], operators[indices], members, tuples.start[slots], tuples.end[slots]
        )

    def _grow(self, front: Iterator[Partials], horizon: int = ALWAYS) -> Partials:
        """Join new partials with all live tuples until none arise; returns results, stores other partials.

        The first tuples of a batch may end before the last ones, so only partials that outlive ``horizon``
        wait. The order is depth first: partials that grow from one part are joined before the next part is
        made, so that not all pairs are in memory at once.
        """
        self._results, self._new = [Partials.none(self._width)], NewPartials()
        levels = [_in_fewer_parts(front)]
        while levels:
            batch = next(levels[-1], None)
            if batch is None:
                levels.pop()
                continue
            check()
            complete = self._operators.complete(batch.operator)
            if complete.any():
                self._results.append(batch.take(complete))
                batch = batch.take(~complete)
            if len(batch):
                levels.append(self._extend(batch, horizon))
        if len(self._new):
            check(self._new.nbytes)
            self._waiting.add(*self._new.all())
        self._new = NewPartials()
        check(2 * sum(part.nbytes for part in self._results))
        results, self._results = self._results, []
        return self._pairs.verify(Partials.concat(results))

    def _extend(self, front: Partials, horizon: int) -> Iterator[Partials]:
        """Join new partials with the live tuples, in parts; collects those that will wait."""
        for portion in self._portions(front):
            partial, groups, hashes = self._spread(portion)
            waiters = np.flatnonzero((portion.end > horizon).take(partial) & ~self._operators.passing(groups))
            if len(waiters):
                self._new.add(portion, partial.take(waiters), groups.take(waiters), hashes.take(waiters))
            for positions, slots in in_fewer_parts(self._partners(portion, partial, groups, hashes)):
                yield self._pairs.join(portion, groups.take(positions), partial.take(positions), slots)

    def _portions(self, front: Partials) -> Iterator[Partials]:
        """The partials in parts with about PAIRS groups."""
        if len(front) <= _LEAST_PARTIALS:
            yield front
            return
        ends = np.cumsum(self._operators.groups(front.operator)[1])
        cuts = np.searchsorted(ends, np.arange(PAIRS, int(ends[-1]), PAIRS))
        for begin, end in pairwise([0, *cuts.tolist(), len(front)]):
            yield front.take(slice(begin, end)) if cuts.size else front

    def _partners(
        self, front: Partials, partial: Ints, groups: Ints, hashes: Hashes
    ) -> Iterator[tuple[Ints, Ints]]:
        """Live tuples for groups, as (index in ``groups``, slot); ``partial``: the partial of each group."""
        query = front.query.take(partial)
        is_open, query_hashes = self._operators.open(groups), mix(hashes, query)
        self._gather(front, partial, groups, is_open)
        yield from _probe_some(self._live.probe_in_parts, hashes, np.flatnonzero(is_open))
        yield from _probe_some(self._carriers.probe_in_parts, query_hashes, np.flatnonzero(~is_open))
        bridge_groups = np.flatnonzero(self._operators.bridged(groups))
        bridge_groups = bridge_groups.take(self._bridges.candidates(query_hashes.take(bridge_groups)))
        if not len(bridge_groups):
            return
        self._gather(front, partial, groups, bridge_groups)
        for positions, slots in _probe_some(self._live.probe_in_parts, hashes, bridge_groups):
            indices = np.flatnonzero(self._bridges.is_bridge(slots))
            positions, slots = positions[indices], slots[indices]  # noqa: PLW2901 - fewer of them
            is_free = self._bitmaps.of(query[positions], slots) == 0
            yield positions[is_free], slots[is_free]

    def _gather(self, front: Partials, partial: Ints, groups: Ints, selection: Ints | Flags) -> None:
        """Insert the partners of the chosen groups that are in the reserve."""
        if self._live.reserve is not None:
            groups = groups[selection]
            members = cells(front.members, partial[selection], self._operators.node(groups))
            self._live.gather(self._operators.edge(groups), members)

    def _spread(self, new: Partials) -> tuple[Ints, Ints, Hashes]:
        """Each partial once for every group of its operator, as (row, group, hash to wait for).

        A NULL joins nothing, so it has no entry.
        """
        first, counts = self._operators.groups(new.operator)
        partial = np.repeat(np.arange(len(new), dtype=np.int64), counts)
        groups = ranges(first, counts)
        self._operators.count_probes(new.operator, counts)
        members = cells(new.members, partial, self._operators.node(groups))
        present, hashes = self._live.probe_hashes(self._operators.edge(groups), members)
        if not present.all():
            partial, groups = partial[present], groups[present]
        return partial, groups, hashes

    def _join_matches(self, matches: Iterable[tuple[Ints, Ints, Ints]], slots: Ints) -> Iterator[Partials]:
        """Join waiting partials with tuples; ``matches`` has the index of each slot in ``slots``."""
        for position, rows, groups in matches:
            yield self._pairs.join(self._waiting.partials, groups, rows, slots[position])


def _probe_some(
    probe: Callable[[Hashes], Iterator[tuple[Ints, Ints]]], hashes: Hashes, indices: Ints
) -> Iterator[tuple[Ints, Ints]]:
    """Probe with the hashes at ``indices``; returned positions refer to all hashes."""
    if len(indices):
        for positions, slots in probe(hashes.take(indices)):
            yield indices.take(positions), slots


def _in_fewer_parts(parts: Iterator[Partials]) -> Iterator[Partials]:
    """The partials in parts of PAIRS to twice as many; smaller parts are joined."""
    pending: list[Partials] = []
    for part in parts:
        pending.append(part)
        if sum(map(len, pending)) >= PAIRS:
            yield Partials.concat(pending)
            pending = []
    if pending:
        yield Partials.concat(pending)
