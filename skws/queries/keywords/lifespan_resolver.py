"""Lifespans of tuples that others may end, settled batch by batch.

Tuples of keyed relations are followed one by one; those of other relations
from their first deletion on.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby

import orjson

from skws.data.batch import RecordBatch
from skws.data.record import Record
from skws_mesh.columnar.columns import Ints
from skws_purging.lifespans import Front, Lifespans
from skws_purging.tuples import StreamTuple
from skws_schema.model import Schema
from skws_windows.window import ArrivalWindow, Window


@dataclass(slots=True)
class Settled:
    """The effects of a batch: new tuples, and known ones with their former ends."""

    new: list[StreamTuple] = field(default_factory=list)
    ended: list[tuple[StreamTuple, int]] = field(default_factory=list)
    prolonged: list[tuple[StreamTuple, int]] = field(default_factory=list)
    unmatched: int = 0


def fronts_to_bytes(fronts: Sequence[Front]) -> bytes:
    """As JSON; empty if there are none."""
    return orjson.dumps(list(map(tuple, fronts))) if fronts else b""


def fronts_of(state: bytes) -> list[Front]:
    """Inverse of ``fronts_to_bytes``. Earlier versions kept one tick, and then all fronts."""
    found = orjson.loads(state)
    if isinstance(found[0], int):
        tick, found = found
        found = [[*front, tick] for front in found]
    return [Front(relation, tuple(row), *rest) for relation, row, *rest in found]


class LifespanResolver:
    """Follows tuples of some relations; ``relations`` are their positions."""

    def __init__(self, schema: Schema, window: Window) -> None:
        self.relations = {i for i, r in enumerate(schema.relations) if r.key and not r.table}
        self._window = window
        self._lifespans = Lifespans(schema, window)

    def __len__(self) -> int:
        return len(self._lifespans)

    def follow(self, relation: int, live: list[StreamTuple]) -> None:
        """Follow a relation from now on, also its live tuples."""
        self.relations.add(relation)
        for known in sorted(live, key=lambda t: t.start):
            self._lifespans.remember(known)

    def forget(self, horizon: int) -> None:
        """Forget tuples that no record at or after ``horizon`` can change."""
        self._lifespans.forget(horizon)

    def snapshot(self, horizon: int) -> bytes:
        """What a replay of the log must ``expect``; empty if nothing. Later records begin at ``horizon``."""
        return fronts_to_bytes(self._lifespans.fronts(horizon))

    def expect(self, state: bytes) -> None:
        """Make the replay of a log lead to a state from ``snapshot``."""
        if not state:
            return
        fronts = fronts_of(state)
        self._lifespans.expect(fronts)
        self.relations |= {front.relation for front in fronts}

    def change_schema(self, schema: Schema) -> None:
        """Go on with a changed schema, whose relations keep their positions."""
        self._lifespans.change_schema(schema)
        keyed = {i for i, r in enumerate(schema.relations) if r.key and not r.table}
        self.relations = (self.relations | keyed) - schema.evolution.removed_relations

    def settle(self, batch: RecordBatch, ticks: Ints, places: Ints) -> Settled:
        """Apply the records of followed relations, in order of ticks; sets the ends of tuples.

        ``places``: the order of arrival.
        """
        settled = Settled()
        place = iter(places.tolist())
        new: dict[StreamTuple, None] = {}
        before: dict[StreamTuple, int] = {}
        for tick, step in self._steps(batch, ticks):
            records = ((r.relation, r.row, r.delete, r.time, next(place)) for r in step)
            changes = self._lifespans.step(tick, records)
            settled.unmatched += changes.unmatched
            new.update(dict.fromkeys(changes.inserted))
            for late in changes.inserted:  # perhaps after the record that ended it
                self._end(late, late.end, late.end)
            for known, end in changes.ended + changes.prolonged:
                if known not in new:
                    before.setdefault(known, known.end)
                self._end(known, end, step[0].time)
        settled.new = list(new)
        for known, former in before.items():
            if known.end != former:
                (settled.ended if known.end < former else settled.prolonged).append((known, former))
        return settled

    def _end(self, known: StreamTuple, end: int, time: int) -> None:
        known.end = end
        if end == self._window.end(known.start):
            known.ended_at = None
        else:
            known.ended_at = time if isinstance(self._window, ArrivalWindow) else end

    def _steps(self, batch: RecordBatch, ticks: Ints) -> Iterator[tuple[int, list[Record]]]:
        """Instants, as in the paper's engine; between two arrivals there may be several."""
        pairs = zip(ticks.tolist(), batch.records(), strict=True)
        for (tick, _), together in groupby(pairs, key=lambda pair: (pair[0], pair[1].time)):
            yield tick, [record for _, record in together]
