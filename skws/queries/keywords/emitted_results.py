"""Results that were told and are alive: what becomes of them when tuples or the schema change."""

from __future__ import annotations

from collections.abc import Iterator, Set
from itertools import chain
from typing import TypeAlias

import numpy as np

from skws.queries.keywords.events import Event, Output
from skws.queries.keywords.live_results import Found, LiveResults
from skws.queries.keywords.operator import KeywordOperator
from skws_mesh.columnar import Partials
from skws_mesh.columnar.columns import Flags, Ints
from skws_purging.tuples import StreamTuple
from skws_schema.evolution import SchemaChange

Told: TypeAlias = tuple[int, int, list[int | StreamTuple]]
"""A result that was told by query, operator and members: slots, or tuples that change theirs."""


class EmittedResults:
    """The live results of a finder's queries."""

    def __init__(self, finder: KeywordOperator) -> None:
        self._finder = finder
        self._telling = finder.telling
        self._reported = LiveResults()

    def __len__(self) -> int:
        return len(self._reported)

    def held(self) -> Iterator[Partials]:
        """All that are remembered."""
        return self._reported.held()

    def report(
        self,
        found: list[Partials],
        retracted: list[Event],
        *,
        snapshot: bool = False,
        told: Set[Found] = frozenset(),
    ) -> Iterator[list[Output]]:
        """Remember results while they are alive, for their retraction; give them and what was retracted.

        Those that are ``told`` already are remembered only. Pieces come one after the other in the output.
        """
        for results in found:
            self._reported.add(results)
        if told:
            found = [results.taken(~self._among(results, told)) for results in found]
        yield from self._telling.pieces(found, retracted, snapshot)

    def _among(self, results: Partials, told: Set[Found]) -> Flags:
        return np.array([(row[0], row[1], tuple(row[2])) in told for row in results.rows()], dtype=bool)

    def alive(self, query: int, now: int) -> list[Event]:
        """The results of a query that are alive at ``now``, in order."""
        alive = self._reported.alive(now)
        found = [results.taken(results.query == query) for results in alive]
        return sorted(self._telling.events(found, snapshot=True))

    def retracted_by(self, change: SchemaChange, now: int, time: int) -> list[Event]:
        """Live results over what a change of the schema takes away."""
        rows = chain.from_iterable(map(Partials.rows, self._reported.alive(now)))
        uses = self._telling.tree
        return [self._telling.taken_back(*row, time) for row in rows if uses(row).uses_any(*change.removed)]

    def new_by(self, change: SchemaChange, found: list[Partials], now: int) -> Iterator[list[Output]]:
        """Remember the results found over a changed schema; give those that the change makes, in pieces."""
        new = []
        for results in found:
            alive = results.taken(results.end > now)
            self._reported.add(alive)
            uses = [self._telling.tree(row).uses_any(*change.added) for row in alive.rows()]
            new.append(alive.taken(np.array(uses, dtype=bool)))
        return self._telling.pieces(new, [])

    def end(self, ended: list[StreamTuple]) -> list[Event]:
        """Known tuples end; gives the retractions of reported results that contain them."""
        known = [t for t in ended if t in self._finder.known.slots]
        if not known:
            return []
        slots = np.array([self._finder.known.slots[t] for t in known])
        self._finder.end(slots, np.array([t.end for t in known]))
        rows = chain.from_iterable(
            map(Partials.rows, self._reported.end(slots, self._finder.live.tuples.end))
        )
        return [self._telling.retraction(*row) for row in rows]

    def rebuilt(self, prolonged: list[tuple[StreamTuple, int]]) -> list[Told]:
        """Tuples that live longer than they seemed give up their slots, and are to be inserted again.

        Gives the results with them that were told and need not be told again.
        """
        slots = self._finder.known.slots
        moved = {slots[t]: (t, former) for t, former in prolonged if t in slots}
        if not moved:
            return []
        standing = []
        for results in self._reported.take(np.array(list(moved))):
            retracted = (results.end < self._telling.natural_end(results.members)).tolist()
            for row, end, gone in zip(results.rows(), results.end.tolist(), retracted, strict=True):
                members = [moved.get(slot, (slot, None)) for slot in row[2]]
                # A result that the tuple's former end had ended lives again.
                if not gone or all(end != its_end for _, its_end in members):
                    standing.append((row[0], row[1], [member for member, _ in members]))
        self._finder.release([known for known, _ in moved.values()])
        return standing

    def by_slots(self, standing: list[Told]) -> set[Found]:
        """Results by the slots that their members have now."""
        slots = self._finder.known.slots
        return {
            (query, operator, tuple(m if isinstance(m, int) else slots[m] for m in members))
            for query, operator, members in standing
        }

    def forget(self, slots: Ints) -> None:
        """Tuples have ended without a word: results that hold them are not taken back."""
        for _ in self._reported.end(slots, self._finder.live.tuples.end):
            pass

    def remove(self, query: int) -> None:
        """Forget the results of a query."""
        self._reported.remove(query)

    def mark(self, horizon: int, referred: Flags) -> None:
        """Flag the tuples, by slot, that may be asked for again."""
        self._reported.mark(horizon, referred)

    def compact(self, horizon: int, slots: Ints) -> None:
        """Forget what ended at or before ``horizon``, tuples having got new slots."""
        self._reported.compact(horizon, slots)
