"""Live results by their members: finds those that end, are retracted, or are emitted again."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Set
from typing import TypeAlias

import numpy as np

from skws.queries.keywords.result_emitter import Event, Output, ResultEmitter
from skws.store.directory import StableName, TupleDirectory
from skws_mesh.columnar.columns import Flags, Ints
from skws_mesh.columnar.store import NO_MEMBER, Partials, PartialStore
from skws_purging.lifespans import ALWAYS, StreamTuple
from skws_schema.evolution import SchemaChange
from skws_windows.window import FOREVER

Found: TypeAlias = tuple[int, int, tuple[int, ...]]
"""A result: query, operator, slots of its members."""
StableResult: TypeAlias = tuple[str, frozenset[StableName]]
"""The parts of a result that survive a change of the schema: the name of its query, and its members."""
Emitted: TypeAlias = tuple[int, int, list[int | StreamTuple]]
"""An emitted result: query, operator and members, as slots, or as tuples that get new slots."""


class LiveResults:
    """Live results, in one table for each size that the largest network of a query may have.

    There may be millions of results, so those of removed queries are only dropped at the next read.
    """

    def __init__(self) -> None:
        self._by_width: dict[int, PartialStore] = {}
        self._removed_queries: set[int] = set()

    def __len__(self) -> int:
        return sum(store.size for store in self._stores)

    @property
    def _stores(self) -> Collection[PartialStore]:
        self._sweep()
        return self._by_width.values()

    def _sweep(self) -> None:
        if self._removed_queries:
            removed = np.array(sorted(self._removed_queries), dtype=np.int64)
            self._removed_queries.clear()
            for store in self._by_width.values():
                store.keep(~np.isin(store.partials.query, removed))

    def add(self, results: Partials) -> None:
        width = results.members.shape[1]
        self._by_width.setdefault(width, PartialStore(width)).append(results.columns())

    def all_partials(self) -> Iterator[Partials]:
        """All remembered results; columns are as narrow as they are stored."""
        return (store.partials for store in self._stores)

    def end(self, slots: Ints, ends: Ints) -> Iterator[Partials]:
        """Results that end earlier with one of the tuples in ``slots``; ``ends``: the ends of all tuples."""
        for store in self._stores:
            rows = store.end(slots, ends)
            yield store.take(rows)

    def shorten(self, slots: Ints, ends: Ints) -> None:
        """As ``end``, for results that are not retracted."""
        for _ in self.end(slots, ends):
            pass

    def take(self, slots: Ints) -> Iterator[Partials]:
        """Remove and return the results that contain one of the tuples."""
        for store in self._stores:
            rows = store.rows_with(slots)
            if len(rows):
                yield store.take(rows)
                store.drop(rows)

    def take_due(self, due: Callable[[Partials], Ints]) -> Iterator[tuple[Partials, Ints]]:
        """Remove and return the results that are due, with their ticks. ``due``: FOREVER for others."""
        for store in self._stores:
            ticks = due(store.take(slice(None)))
            is_due: Flags = ticks < FOREVER
            if is_due.any():
                yield store.take(is_due), ticks[is_due]
                store.keep(~is_due)

    def alive(self, horizon: int) -> Iterator[Partials]:
        """Results that end after ``horizon``."""
        for store in self._stores:
            yield store.take(store.partials.end > horizon)

    def remove(self, *queries: int) -> None:
        """Forget the results of queries, whose numbers are not used again."""
        self._removed_queries.update(queries)

    def mark(self, horizon: int, flags: Flags) -> None:
        """Flag the tuples, by slot, of results that end after ``horizon``."""
        for store in self._stores:
            store.mark(horizon, flags)

    def compact(self, horizon: int, slots: Ints) -> None:
        """Forget the results that ended at or before ``horizon``; tuples have new slots."""
        for store in self._stores:
            store.compact(horizon, slots)


class EmittedResults(LiveResults):
    """The live results that were emitted."""

    def __init__(self, emitter: ResultEmitter, directory: TupleDirectory) -> None:
        super().__init__()
        self._emitter = emitter
        self._directory = directory

    def report(
        self,
        partials: list[Partials],
        retracted: list[Event],
        *,
        snapshot: bool = False,
        known: Set[Found] = frozenset(),
    ) -> Iterator[list[Output]]:
        """Remember results, to retract them later; emits them and the retractions, in consecutive pieces.

        Results in ``known`` were emitted before: they are only remembered.
        """
        for results in partials:
            self.add(results)
        if known:
            partials = [results.take(~self._is_among(results, known)) for results in partials]
        yield from self._emitter.pieces(partials, retracted, snapshot)

    def _is_among(self, results: Partials, keys: Set[Found]) -> Flags:
        return np.array([(row[0], row[1], tuple(row[2])) in keys for row in results.rows()], dtype=bool)

    def snapshot(self, query: int, now: int) -> list[Event]:
        """The results of a query that are alive at ``now``, in order."""
        live_results = self.alive(now)
        partials = [results.take(results.query == query) for results in live_results]
        return sorted(self._emitter.events(partials, snapshot=True))

    def retractions_by(self, change: SchemaChange, now: int, time: int) -> list[Event]:
        """Retractions of live results over removed relations and joins."""
        events: list[Event] = []
        for results in self.alive(now):
            uses = [self._emitter.tree(row).uses_any(*change.removed) for row in results.rows()]
            retracted_results = results.take(np.array(uses, dtype=bool))
            times = np.full(len(retracted_results), time)
            events += self._emitter.retractions_at(retracted_results, times, times)
        return events

    def has_ended_results(self, query: int, now: int) -> bool:
        """True if results of a query are remembered that have ended at ``now``: records may change them."""
        return any(
            (each.end.take(np.flatnonzero(each.query == query)) <= now).any() for each in self.all_partials()
        )

    def ended_results(self, horizon: int, now: int, name: Callable[[int], str]) -> set[StableResult]:
        """The results that have ended at ``now``, and that records from ``horizon`` on may still change.

        ``name``: the name of a query, given its number.
        """
        ended_results: set[StableResult] = set()
        for store in self._stores:
            is_over = (store.partials.end > horizon) & (store.partials.end <= now)
            ended_results.update(self._stable_result(row, name) for row in store.take(is_over).rows())
        return ended_results

    def report_added(
        self,
        change: SchemaChange,
        partials: list[Partials],
        now: int,
        former_ended: Collection[StableResult],
        name: Callable[[int], str],
    ) -> Iterator[list[Output]]:
        """Remember the results over a changed schema; emits those that the change adds, in pieces.

        ``former_ended``: the results that had ended before the change; ``name``: see ``ended_results``.
        """
        added_results = []
        for results in partials:
            is_alive = results.end > now
            self.add(results.take(is_alive))
            if former_ended:
                ended_results = results.take(~is_alive)
                is_reported = [
                    self._stable_result(row, name) in former_ended and not self._adds(change, row)
                    for row in ended_results.rows()
                ]
                self.add(ended_results.take(np.array(is_reported, dtype=bool)))
            results = results.take(is_alive)  # noqa: PLW2901 - the others were emitted before, or have ended
            uses = [self._adds(change, row) for row in results.rows()]
            added_results.append(results.take(np.array(uses, dtype=bool)))
        return self._emitter.pieces(added_results, [])

    def _adds(self, change: SchemaChange, row: tuple[int, int, list[int]]) -> bool:
        return self._emitter.tree(row).uses_any(*change.added)

    def _stable_result(self, row: tuple[int, int, list[int]], name: Callable[[int], str]) -> StableResult:
        members = frozenset(self._directory.stable_name(slot) for slot in row[2] if slot != NO_MEMBER)
        return name(row[0]), members

    def take_moved(self, queries: Set[int], partials: list[Partials]) -> list[Partials]:
        """Remember results of queries that moved to another mesh, by its networks; returns all other results.

        ``partials``: at least all live results of these queries.
        """
        live_members = set()
        for results in self.alive(ALWAYS):
            is_moved = np.isin(results.query, list(queries))
            live_members |= set(map(_members, results.take(is_moved).rows()))
        self.remove(*queries)
        self._sweep()
        other_results = []
        for results in partials:
            is_moved = np.isin(results.query, list(queries))
            moved_results = results.take(is_moved)
            self.add(
                moved_results.take(
                    np.array([_members(row) in live_members for row in moved_results.rows()], dtype=bool)
                )
            )
            other_results.append(results.take(~is_moved))
        return other_results

    def retractions(self, slots: Ints, ends: Ints) -> list[Event]:
        """The retractions of results that contain tuples which have ended. ``ends``: the ends of all tuples.

        Results that late records end before they began are forgotten: another version may begin at that time,
        and an even earlier end would retract that version.
        """
        if not len(slots):
            return []
        events = []
        for store in self._stores:
            rows = store.end(slots, ends)
            ended_results = store.take(rows)
            events += self._emitter.retractions(ended_results)
            unlived_rows = rows[ended_results.end <= self._emitter.starts(ended_results.members)]
            if len(unlived_rows):
                store.drop(unlived_rows)
        return events

    def forget_prolonged(self, prolonged: list[tuple[StreamTuple, int]]) -> list[Emitted]:
        """Forget the results with tuples that live longer than assumed and will be inserted again.

        Returns the results that need not be emitted again.
        """
        slots = self._directory.slots
        tuples_by_slot = {slots[t]: (t, former_end) for t, former_end in prolonged if t in slots}
        if not tuples_by_slot:
            return []
        reported_results = []
        for results in self.take(np.array(list(tuples_by_slot))):
            is_retracted = (results.end < self._emitter.natural_end(results.members)).tolist()
            for row, end, retracted in zip(results.rows(), results.end.tolist(), is_retracted, strict=True):
                members = [tuples_by_slot.get(slot, (slot, None)) for slot in row[2]]
                # Otherwise the tuple's former end had ended the result, which is alive again.
                if not retracted or all(end != its_end for _, its_end in members):
                    reported_results.append((row[0], row[1], [member for member, _ in members]))
        return reported_results

    def by_slots(self, emitted: list[Emitted]) -> set[Found]:
        """Results by the present slots of their members."""
        slots = self._directory.slots
        return {
            (query, operator, tuple(m if isinstance(m, int) else slots[m] for m in members))
            for query, operator, members in emitted
        }


def _members(row: tuple[int, int, list[int]]) -> tuple[int, frozenset[int]]:
    """A result by its query and members, whatever its network."""
    query, _, slots = row
    return query, frozenset(slot for slot in slots if slot != NO_MEMBER)
