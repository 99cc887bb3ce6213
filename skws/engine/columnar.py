"""The default in-process engine: batches of records through the columnar mesh.

Gives what the tuple-at-a-time engine gives, record for record, for streams in
order of time. A batch ends where an instant ends. Lifespans are settled for
the whole batch before it is joined, so a result that is found and retracted
within one batch gives both records, each at its time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import groupby

import numpy as np

from mesh.columnar.columns import Flags, Ints
from mesh.columnar.store import PartialStore
from skws.batches import RecordBatch, batched, whole_instants
from skws.engine.engine import Counts, arrivals
from skws.engine.events import Event, in_order
from skws.engine.finder import Arrivals, Finder, pairs
from skws.plan import Plan
from skws.records import Record
from skws.results.model import Result
from windows.lifespans import Lifespans, static_tuples
from windows.tuples import ALWAYS, StreamTuple
from windows.window import FOREVER, Unbounded, Window


class ColumnarEngine:
    """Runs one plan over one stream. ``on_late`` hears of records that come after later ones."""

    def __init__(self, plan: Plan, on_late: Callable[[Record], None] = lambda _: None) -> None:
        if plan.lateness:
            raise ValueError("the columnar engine takes streams in order of time")
        self.plan = plan
        self.counts = Counts()
        self._finder = Finder(plan, plan.generator(), on_compact=self._renumber)
        self.mesh = self._finder.mesh
        self._lifespans = Lifespans(plan.schema, plan.window)
        # Relations whose tuples may end each other: by key, or since a deletion was seen.
        self._managed = {i for i, r in enumerate(plan.schema.relations) if r.key and not r.table}
        self._reported = [PartialStore(size) for size in range(1, plan.max_size + 1)]
        self._on_late = on_late
        self._position = 0
        self._now = ALWAYS

    def load_tables(self, records: Iterable[Record]) -> Iterator[Result]:
        """Take in the static tables, before the stream; give the results of static tuples alone."""
        static = static_tuples(self.plan.schema, ((r.relation, r.row) for r in records))
        self.counts.static += len(static)
        yield from self._told(self._insert(_of_tuples(static, lambda t: t.occurrence > 0), snapshot=True))

    def process(self, records: Iterable[Record]) -> Iterator[Result]:
        """Take in stream records in order of time. Neighbours with equal time are one instant."""
        yield from self.process_batches(batched(records))

    def process_batches(self, batches: Iterable[RecordBatch]) -> Iterator[Result]:
        """Take in stream records as columns."""
        for batch in whole_instants(batches):
            yield from self._batch(batch)

    def expire(self, tick: int) -> None:
        """Let time pass without a record, up to ``tick`` (a position for count windows)."""
        self._now = max(self._now, tick)
        self._lifespans.forget(self._now)
        self.mesh.purge(self._now)

    @property
    def idle(self) -> bool:
        """True if nothing of the stream is remembered."""
        self.mesh.compact(self._now)
        stored = len(self.mesh.tuples) + self.mesh.partials + sum(store.size for store in self._reported)
        return not (stored or len(self._lifespans) or self._finder.slots)

    def _batch(self, batch: RecordBatch) -> Iterator[Result]:
        if not self.plan.by_count:
            batch = self._without_late(batch)
        if not len(batch):
            return
        ticks = self._ticks(batch)
        self.expire(int(ticks[0]))
        if batch.delete is not None:
            self.counts.deletions += int(batch.delete.sum())
            self._manage(set(np.unique(batch.relation[batch.delete]).tolist()))
        self.counts.tuples += len(batch) - (0 if batch.delete is None else int(batch.delete.sum()))
        managed = np.isin(batch.relation, list(self._managed))
        new, ended = self._settle(batch.taken(np.flatnonzero(managed)), ticks[managed])
        events = self._end(ended)
        events += self._insert(self._arrivals(batch, ticks, ~managed, new))
        self._now = max(self._now, int(ticks[-1]))
        yield from self._told(events)

    def _ticks(self, batch: RecordBatch) -> Ints:
        if not self.plan.by_count:
            return batch.time
        inserted = (
            np.ones(len(batch), dtype=np.int64) if batch.delete is None else 1 - batch.delete.astype(np.int64)
        )
        reached: Ints = self._position + np.cumsum(inserted)
        self._position = int(reached[-1])
        return reached - inserted

    def _without_late(self, batch: RecordBatch) -> RecordBatch:
        late: Flags = batch.time < np.maximum.accumulate(np.concatenate([[self._now], batch.time[:-1]]))
        if not late.any():
            return batch
        for record in batch.taken(np.flatnonzero(late)).records():
            self.counts.late += 1
            self._on_late(record)
        return batch.taken(np.flatnonzero(~late))

    def _manage(self, deleting: set[int]) -> None:
        """From its first deletion on a relation's tuples are followed one by one, the live ones included."""
        for relation in deleting - self._managed:
            self._managed.add(relation)
            tuples = self.mesh.tuples
            for slot in np.flatnonzero((tuples.relation == relation) & (tuples.end > self._now)).tolist():
                known = self._finder.member(slot)
                self._lifespans.remember(known)
                self._finder.follow(known, slot)

    def _settle(self, managed: RecordBatch, ticks: Ints) -> tuple[list[StreamTuple], list[StreamTuple]]:
        """Settle the lifespans of managed records; gives the new tuples, and the known ones that ended."""
        new: dict[StreamTuple, None] = {}
        ended: dict[StreamTuple, None] = {}
        for tick, step in self._steps(managed, ticks):
            changes = self._lifespans.step(tick, ((r.relation, r.row, r.delete, r.time) for r in step))
            self.counts.unmatched_deletions += changes.unmatched
            new.update(dict.fromkeys(changes.inserted))
            for known, end in changes.ended:
                known.end = end
                known.ended_at = step[0].time if self.plan.by_count else end
                if known not in new:
                    ended[known] = None
        return list(new), list(ended)

    def _steps(self, managed: RecordBatch, ticks: Ints) -> Iterator[tuple[int, list[Record]]]:
        """Instants of the managed records, as the tuple-at-a-time engine has them."""
        pairs_of = zip(ticks.tolist(), managed.records(), strict=True)
        for tick, together in groupby(pairs_of, key=lambda pair: pair[0]):
            step = [record for _, record in together]
            yield from ((tick, part) for part in arrivals(step)) if self.plan.by_count else [(tick, step)]

    def _end(self, ended: list[StreamTuple]) -> list[Event]:
        """Known tuples end; gives the retractions of reported results that contain them."""
        known = [t for t in ended if t in self._finder.slots]
        if not known:
            return []
        slots = np.array([self._finder.slots[t] for t in known])
        self.mesh.end(slots, np.array([t.end for t in known]))
        events = []
        for store in self._reported:
            reported = store.partials
            touched = np.flatnonzero(np.isin(reported.members, slots).any(axis=1))
            ends = self.mesh.tuples.end[reported.members[touched]].min(axis=1, initial=FOREVER)
            earlier = ends < reported.end[touched]
            reported.end[touched[earlier]] = ends[earlier]
            for operator, members in pairs(reported.taken(touched[earlier])):
                events.append(self._finder.retraction(operator, [self._finder.member(s) for s in members]))
        return events

    def _arrivals(
        self, batch: RecordBatch, ticks: Ints, plain: Flags, followed: list[StreamTuple]
    ) -> Arrivals:
        """The batch's insertions: records that stand for themselves, and tuples that are followed."""
        if not plain.all():
            batch, ticks = batch.taken(np.flatnonzero(plain)), ticks[plain]
        if not followed:
            ends = natural_ends(self.plan.window, ticks)
            return Arrivals(batch.relation, batch.rows, ticks, ends, batch.time.tolist())
        tuples = [
            StreamTuple(record.relation, record.row, tick, self.plan.window.end(tick), time=record.time)
            for tick, record in zip(ticks.tolist(), batch.records(), strict=True)
        ]
        among = set(followed)
        together = sorted([*tuples, *followed], key=lambda t: t.start)
        return _of_tuples(together, among.__contains__)

    def _insert(self, new: Arrivals, snapshot: bool = False) -> list[Event]:
        found, excluded = self._finder.insert(new)
        self.counts.excluded += excluded
        for results in found:
            self._reported[results.members.shape[1] - 1].append(results.columns())
        return list(self._finder.events(found, snapshot))

    def _renumber(self, slots: Ints) -> None:
        for store in self._reported:
            store.compact(self._now, slots)

    def _told(self, events: list[Event]) -> Iterator[Result]:
        for result in in_order(events):
            self.counts.results += result.op == "+"
            self.counts.retractions += result.op == "-"
            yield result


def natural_ends(window: Window, starts: Ints) -> Ints:
    """The ends that a window gives to tuples."""
    if isinstance(window, Unbounded):
        return np.full(len(starts), FOREVER, dtype=np.int64)
    return starts + window.end(0)


def _of_tuples(tuples: list[StreamTuple], follow: Callable[[StreamTuple], bool]) -> Arrivals:
    return Arrivals(
        np.array([t.relation for t in tuples], dtype=np.int64),
        [t.row for t in tuples],
        np.array([t.start for t in tuples], dtype=np.int64),
        np.array([t.end for t in tuples], dtype=np.int64),
        [t.time for t in tuples],
        {place: t for place, t in enumerate(tuples) if follow(t)},
    )
