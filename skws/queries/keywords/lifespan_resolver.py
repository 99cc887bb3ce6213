"""Batches of tuples whose lifespans are settled: tuples may be ended by others.

Tuples of keyed relations are followed one by one; those of other relations
from their first deletion on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby, islice
from operator import itemgetter

import numpy as np
import orjson

from skws.data.batch import Record, RecordBatch, Rows
from skws.data.blocks import Block
from skws_mesh.columnar.bitmaps import KeywordBitmaps
from skws_mesh.columnar.columns import Ints
from skws_purging.lifespans import ALWAYS, Front, GroupKey, Lifespans, StreamTuple
from skws_schema.model import Row, Schema, Value
from skws_windows.window import FOREVER, ArrivalWindow, ExpressionWindow, Unbounded, Window


@dataclass(slots=True)
class TupleBatch:
    """Tuples in order of their start.

    ``times`` are event times in microseconds; ``place`` is the order of
    arrival. ``followed``, by number: tuples whose deletion is known, or whose
    name depends on more than their columns. ``bitmaps``: None if keywords are
    still to be matched.
    """

    relation: Ints
    rows: Rows
    start: Ints
    end: Ints
    times: Ints
    place: Ints
    followed: dict[int, StreamTuple] = field(default_factory=dict)
    bitmaps: KeywordBitmaps | None = None

    def merged(self, other: TupleBatch) -> TupleBatch:
        """These and other tuples in order of start; keywords of both are still to be matched."""
        start, place = np.concatenate([self.start, other.start]), np.concatenate([self.place, other.place])
        order = np.argsort(start, kind="stable")
        number = np.empty_like(order)
        number[order] = np.arange(len(order))
        own = {int(number[at]): known for at, known in self.followed.items()}
        others = {int(number[len(self.start) + at]): known for at, known in other.followed.items()}
        return TupleBatch(
            np.concatenate([self.relation, other.relation])[order],
            Rows.together([self.rows, other.rows]).taken(order),
            start[order],
            np.concatenate([self.end, other.end])[order],
            np.concatenate([self.times, other.times])[order],
            place[order],
            own | others,
        )


def of_tuples(tuples: list[StreamTuple], follow: Callable[[StreamTuple], bool]) -> TupleBatch:
    """A batch of tuples; ``follow``: True for those to follow."""
    relation = np.array([t.relation for t in tuples], dtype=np.int64)
    return TupleBatch(
        relation,
        Rows.of(relation, [t.row for t in tuples]),
        np.array([t.start for t in tuples], dtype=np.int64),
        np.array([t.end for t in tuples], dtype=np.int64),
        np.array([t.time for t in tuples], dtype=np.int64),
        np.array([t.place for t in tuples], dtype=np.int64),
        {place: t for place, t in enumerate(tuples) if follow(t)},
    )


def of_table_rows(blocks: Sequence[Block], occurrences: Mapping[int, int]) -> TupleBatch:
    """Rows of static tables, alive for ever; ``occurrences``: the number of equal rows before, by number."""
    sizes = [len(block) for block in blocks]
    relation = np.repeat([block.relation for block in blocks], sizes).astype(np.int64)
    block = np.repeat(np.arange(len(blocks), dtype=np.int64), sizes)
    place = np.concatenate([np.arange(size, dtype=np.int64) for size in sizes])
    rows, size = Rows(block, place, tuple(blocks)), len(relation)
    return TupleBatch(
        relation,
        rows,
        np.full(size, ALWAYS),
        np.full(size, FOREVER),
        np.zeros(size, dtype=np.int64),
        np.zeros(size, dtype=np.int64),
        {
            number: StreamTuple(int(relation[number]), rows.row(number), ALWAYS, FOREVER, occurrence=before)
            for number, before in occurrences.items()
        },
    )


def natural_ends(window: Window, starts: Ints) -> Ints:
    """The ends that a window gives to tuples."""
    if isinstance(window, Unbounded | ExpressionWindow):
        return np.full(len(starts), FOREVER, dtype=np.int64)
    return starts + window.end(0)


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
    """Follows tuples of some relations; ``relations`` are their positions. ``lateness`` in ticks."""

    def __init__(self, schema: Schema, window: Window, lateness: int = 0) -> None:
        self.relations = {i for i, r in enumerate(schema.relations) if r.key and not r.table}
        self._schema = schema
        self._window = window
        self._lifespans = Lifespans(schema, window, lateness)

    def __len__(self) -> int:
        return len(self._lifespans)

    def follow(self, relation: int, live: list[StreamTuple]) -> None:
        """Follow a relation from now on, also its live tuples."""
        self.relations.add(relation)
        for known in sorted(live, key=lambda t: t.start):
            self._lifespans.remember(known)

    def await_late(self) -> None:
        """Records may come in any order from now on, as far back as what is not forgotten yet."""
        self._lifespans.await_late()

    def forget(self, horizon: int) -> None:
        """Forget tuples that no record at or after ``horizon`` can change."""
        self._lifespans.forget(horizon)

    def snapshot(self, horizon: int) -> bytes:
        """What a replay of the log must ``expect``; empty if nothing. Later records begin at ``horizon``."""
        return fronts_to_bytes(self._lifespans.fronts(horizon))

    def leading_records(self) -> tuple[list[Record], list[StreamTuple]]:
        """Records that lead to the lifespans of tuples that are not the only one of their identity.

        Truncations are among them. And these tuples. Of equal rows of one instant those that were deleted are
        among the records, as the others are named by their number.
        """
        records: list[tuple[int, int, Record]] = []  # by time and arrival
        tuples: list[StreamTuple] = []
        for relation, tick, arrival in self._lifespans.truncations():
            records.append((tick, arrival, Record.truncation(relation, tick)))
        for key, timeline in self._lifespans.timelines():
            for known in islice(timeline.before, 1):
                for _ in range(known.occurrence):
                    record = Record(known.relation, known.time, known.row)
                    records.append((known.time, -1, record))
                    records.append((known.time, -1, record._replace(delete=True)))
            for known in timeline.before:
                records.append((known.time, -1, Record(known.relation, known.time, known.row)))
                tuples.append(known)
            for mark in timeline.marks:
                if mark.truncates:
                    continue  # all of them are among the truncations
                if mark.inserted is None:
                    record = Record(key[0], mark.tick, self._row(key), True)
                else:
                    record = Record(key[0], mark.tick, mark.inserted.row)
                    tuples.append(mark.inserted)
                records.append((mark.tick, mark.arrival, record))
        return [record for _, _, record in sorted(records, key=itemgetter(0, 1))], tuples

    def _row(self, key: GroupKey) -> Row:
        """A row of an identity; only its key counts if it has one."""
        relation, values, keyed = key
        if not keyed:
            return values
        described = self._schema.relations[relation]
        row: list[Value] = [None] * len(described.attributes)
        for column, value in zip(described.key_columns, values, strict=True):
            row[column] = value
        return tuple(row)

    def expect(self, state: bytes) -> None:
        """Make the replay of a log lead to a state from ``snapshot``."""
        if not state:
            return
        fronts = fronts_of(state)
        self._lifespans.expect(fronts)
        self.relations |= {front.relation for front in fronts}

    def change_schema(self, schema: Schema) -> None:
        """Go on with a changed schema, whose relations keep their positions."""
        self._schema = schema
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
