"""The default in-process engine: batches of records through the columnar meshes of standing queries.

Gives what the tuple-at-a-time engine gives, record for record, for streams in
order of time. A batch ends where an instant ends. Lifespans are settled for
the whole batch before it is joined, so a result that is found and retracted
within one batch gives both records, each at its time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import count, groupby

import numpy as np

from mesh.columnar import Partials
from mesh.columnar.columns import Flags, Ints
from mesh.columnar.store import PartialStore
from mesh.columnar.table import WaitingCounts
from schema.errors import UsageError, nearest
from schema.model import Schema
from skws.batches import RecordBatch, Rows, batched, whole_instants
from skws.engine.engine import Counts, arrivals
from skws.engine.events import Event, in_order
from skws.engine.finder import Arrivals, Finder, natural_ends, rows_of
from skws.plan import Plan
from skws.records import Record
from skws.results.model import Result
from windows.lifespans import Lifespans, static_tuples
from windows.tuples import ALWAYS, StreamTuple
from windows.window import CountWindow, Window


class ColumnarEngine:
    """Answers standing queries over one stream.

    Queries share the window, what is read of the stream, the live tuples and
    their index. ``on_late`` hears of records that come after later ones.
    """

    def __init__(
        self, schema: Schema, window: Window, on_late: Callable[[Record], None] = lambda _: None
    ) -> None:
        self.schema = schema
        self.window = window
        self.counts = Counts()
        self._finder = Finder(schema, window, on_compact=self._renumber)
        self._lifespans = Lifespans(schema, window)
        # Relations whose tuples may end each other: by key, or since a deletion was seen.
        self._managed = {i for i, r in enumerate(schema.relations) if r.key and not r.table}
        self._reported: dict[int, PartialStore] = {}  # by the most tuples of a result
        self._names: dict[str, Plan] = {}
        self._numbers: dict[Plan, int] = {}
        self._next = count()
        self._on_late = on_late
        self._position = 0
        self._now = ALWAYS

    @classmethod
    def of(cls, plan: Plan, on_late: Callable[[Record], None] = lambda _: None) -> ColumnarEngine:
        """An engine with one query."""
        engine = cls(plan.schema, plan.window, on_late)
        engine.add(plan)
        return engine

    def add(self, plan: Plan, name: str | None = None) -> list[Result]:
        """Answer a query from now on, called ``name`` (else by its text); gives its results alive now.

        A query that is answered already, under another name, takes nothing
        more: its results are told once. Raises UsageError if the name is
        taken, or the plan is for another stream.
        """
        name = name or plan.query.text
        self._check(plan, name)
        self._names[name] = plan
        if plan in self._numbers:
            return [event.result for event in self._alive(self._numbers[plan])]
        number = self._numbers[plan] = next(self._next)
        self._reported.setdefault(plan.max_size, PartialStore(plan.max_size))
        found = self._finder.add(number, plan)
        alive = [results.taken(results.end > self._now) for results in found]
        return list(self._told(self._report(alive, snapshot=True)))

    def remove(self, name: str) -> None:
        """Answer a query no longer. Raises UsageError if there is none of that name."""
        if name not in self._names:
            raise UsageError(f"no standing query {name!r}{nearest(name, self._names)}")
        plan = self._names.pop(name)
        if plan in self._names.values():
            return
        number = self._numbers.pop(plan)
        store = self._reported[plan.max_size]
        store.keep(store.partials.query != number)
        self._finder.remove(number)

    def _alive(self, number: int) -> list[Event]:
        """The results of a query that are alive, in order."""
        found = []
        for store in self._reported.values():
            reported = store.partials
            found.append(reported.taken((reported.query == number) & (reported.end > self._now)))
        return sorted(self._finder.events(found, snapshot=True))

    def _check(self, plan: Plan, name: str) -> None:
        if name in self._names:
            raise UsageError(f"there is a standing query {name!r} already")
        if plan.schema != self.schema or plan.window != self.window:
            raise UsageError(f"query {name!r}: standing queries of one stream share its schema and window")
        if plan.lateness:
            raise ValueError("the columnar engine takes streams in order of time")

    def load_tables(self, records: Iterable[Record]) -> Iterator[Result]:
        """Take in the static tables, before the stream; give the results of static tuples alone."""
        static = static_tuples(self.schema, ((r.relation, r.row) for r in records))
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
        self._finder.purge(self._now)

    @property
    def live_tuples(self) -> int:
        """Tuples of the window; up to about as many dead ones are not yet purged."""
        return len(self._finder.live)

    def compact(self, tick: int) -> None:
        """Purge all that has ended at ``tick``."""
        self._finder.compact(tick)

    def waiting(self) -> WaitingCounts:
        """Operators that ever had partials, each with those that wait, once for every join they wait for."""
        return [count for mesh in self._finder.meshes for count in mesh.waiting()]

    @property
    def carried(self) -> int:
        """The keywords that live tuples carry, of the only query there is."""
        (number,) = self._numbers.values()
        return self._finder.queries[number].mesh.carried(number)

    @property
    def by_count(self) -> bool:
        """True if ticks are positions in the stream instead of microseconds."""
        return isinstance(self.window, CountWindow)

    @property
    def idle(self) -> bool:
        """True if nothing of the stream is remembered."""
        self._finder.compact(self._now)
        stored = self._finder.entries + sum(store.size for store in self._reported.values())
        return not (stored or len(self._lifespans) or self._finder.slots)

    def _batch(self, batch: RecordBatch) -> Iterator[Result]:
        if not self.by_count:
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
        if not self.by_count:
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
            tuples = self._finder.live.tuples
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
                known.ended_at = step[0].time if self.by_count else end
                if known not in new:
                    ended[known] = None
        return list(new), list(ended)

    def _steps(self, managed: RecordBatch, ticks: Ints) -> Iterator[tuple[int, list[Record]]]:
        """Instants of the managed records, as the tuple-at-a-time engine has them."""
        pairs_of = zip(ticks.tolist(), managed.records(), strict=True)
        for tick, together in groupby(pairs_of, key=lambda pair: pair[0]):
            step = [record for _, record in together]
            yield from ((tick, part) for part in arrivals(step)) if self.by_count else [(tick, step)]

    def _end(self, ended: list[StreamTuple]) -> list[Event]:
        """Known tuples end; gives the retractions of reported results that contain them."""
        known = [t for t in ended if t in self._finder.slots]
        if not known:
            return []
        slots = np.array([self._finder.slots[t] for t in known])
        self._finder.end(slots, np.array([t.end for t in known]))
        events = []
        for store in self._reported.values():
            earlier = store.end(slots, self._finder.live.tuples.end)
            for query, operator, members in rows_of(store.partials.taken(earlier)):
                events.append(self._finder.retraction(query, operator, members))
        return events

    def _arrivals(
        self, batch: RecordBatch, ticks: Ints, plain: Flags, followed: list[StreamTuple]
    ) -> Arrivals:
        """The batch's insertions: records that stand for themselves, and tuples that are followed."""
        if not plain.all():
            batch, ticks = batch.taken(np.flatnonzero(plain)), ticks[plain]
        new = Arrivals(batch.relation, batch.rows, ticks, natural_ends(self.window, ticks), batch.time)
        return new.merged(_of_tuples(followed, lambda _: True)) if followed else new

    def _insert(self, new: Arrivals, snapshot: bool = False) -> list[Event]:
        return self._report(self._finder.insert(new), snapshot)

    def _report(self, found: list[Partials], snapshot: bool = False) -> list[Event]:
        """Remember results while they are alive, for their retraction; give them as events."""
        for results in found:
            self._reported[results.members.shape[1]].append(results.columns())
        self.counts.excluded = self._finder.excluded
        return list(self._finder.events(found, snapshot))

    def _renumber(self, horizon: int, slots: Ints) -> None:
        for store in self._reported.values():
            store.compact(horizon, slots)

    def _told(self, events: list[Event]) -> Iterator[Result]:
        for result in in_order(events):
            self.counts.results += result.op == "+"
            self.counts.retractions += result.op == "-"
            yield result


def _of_tuples(tuples: list[StreamTuple], follow: Callable[[StreamTuple], bool]) -> Arrivals:
    relation = np.array([t.relation for t in tuples], dtype=np.int64)
    return Arrivals(
        relation,
        Rows.of(relation, [t.row for t in tuples]),
        np.array([t.start for t in tuples], dtype=np.int64),
        np.array([t.end for t in tuples], dtype=np.int64),
        np.array([t.time for t in tuples], dtype=np.int64),
        {place: t for place, t in enumerate(tuples) if follow(t)},
    )
