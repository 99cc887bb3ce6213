"""Keyword queries over window expressions: a result's tuples all lie in one window.

The tracker of windows reads a batch first. It says when tuples leave the last
window that may hold them, so the mesh joins live tuples only, once, however
many windows overlap. Results wait until a window ends that holds all their
tuples; then they are told, if none of these was deleted meanwhile.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from itertools import count
from typing import Any

import numpy as np

from mesh.columnar import Partials
from mesh.columnar.columns import Flags, Ints
from mesh.columnar.store import NO_MEMBER
from mesh.columnar.table import WaitingCounts
from schema.errors import UsageError, nearest
from schema.evolve import nameable
from schema.model import Schema
from skws.batches import RecordBatch, batched
from skws.engine.arrivals import Arrivals, of_tuples
from skws.engine.engine import Counts
from skws.engine.events import Event, completed, in_order
from skws.engine.finder import Finder, rows_of
from skws.engine.reported import Reported
from skws.plan import Plan
from skws.records import Record
from skws.results.model import Result
from skws.windowing.closed import ClosedWindows
from skws.windowing.deletions import Deletions, Ended
from skws.windowing.holding import Holding
from skws.windowing.request import WindowsRequest
from skws.windowing.source import BatchSource
from skws.windowing.timeline import RECENT, Stretch
from windows.expressions.spans import ANY, Closed, Spans, Tracker, keyless
from windows.lifespans import static_tuples
from windows.tuples import ALWAYS, StreamTuple
from windows.window import FOREVER, ExpressionWindow


class WindowedEngine:
    """Answers standing queries over the windows of one expression.

    Windows begin with the first record that comes; records come in order of
    time. Raises UsageError for an expression that cannot be read.
    """

    def __init__(self, schema: Schema, window: ExpressionWindow) -> None:
        self.schema = schema
        self.window = window
        self.counts = Counts()
        request = WindowsRequest(nameable(schema), window.text)
        self.tracker = Tracker(request.compiled(), request.alphabet)
        self._deletions = Deletions(schema)
        self._pending = Reported()
        self._finder = Finder(schema, window, on_compact=self._renumber)
        self._keys = np.zeros((0, len(self.tracker.fields)), dtype=np.int64)  # by slot
        self._names: dict[str, int] = {}
        self._recent: deque[Stretch] = deque(maxlen=RECENT)
        self._closed = ClosedWindows(self.tracker)
        self._next = count()

    @classmethod
    def of(cls, plan: Plan) -> WindowedEngine:
        """An engine with one query, whose window is an expression."""
        assert isinstance(plan.window, ExpressionWindow)  # noqa: S101 - who calls has looked
        engine = cls(plan.schema, plan.window)
        engine.add(plan)
        return engine

    def add(self, plan: Plan, name: str | None = None) -> list[Result]:
        """Answer a query from now on; its results are told when windows end, so there are none yet."""
        name = name or plan.query.text
        if name in self._names:
            raise UsageError(f"there is a standing query {name!r} already")
        self._names[name] = number = next(self._next)
        for found in self._finder.add(number, plan):
            self._wait(found)
        return []

    def remove(self, name: str) -> None:
        """Answer a query no longer. Raises UsageError if there is none of that name."""
        if name not in self._names:
            raise UsageError(f"no standing query {name!r}{nearest(name, self._names)}")
        number = self._names.pop(name)
        self._pending.remove(number)
        self._finder.remove(number)

    @property
    def waiting_results(self) -> int:
        """Results that wait for their window to end."""
        return len(self._pending)

    def stretches(self) -> list[Stretch]:
        """The windows that ended last, in order of their ends, and those that are open, oldest first."""
        still = [Stretch(key, start, None) for key, start in self.tracker.open_since.items()]
        return [*self._recent, *sorted(still, key=lambda stretch: stretch.start)]

    def _ended_windows(self, closed: Closed, time: Ints, begin: int) -> Iterator[Stretch]:
        """The last windows of a batch that timelines still show."""
        shown = slice(-RECENT, None)
        ends = time[closed.last[shown] - begin].tolist()
        keys = self.tracker.values(closed.key[shown])
        for key, start, end in zip(keys, closed.began[shown].tolist(), ends, strict=True):
            yield Stretch(tuple(key), start, end)

    def waiting(self) -> WaitingCounts:
        """Operators that ever had partials, each with those that wait, once for every join they wait for."""
        return [count for mesh in self._finder.meshes for count in mesh.waiting()]

    @property
    def carried(self) -> int:
        """The keywords that live tuples carry, of the only query there is."""
        ((number, standing),) = self._finder.queries.items()
        return standing.mesh.carried(number)

    def compact(self, tick: int) -> None:
        """Purge all that has ended at ``tick``."""
        self._finder.compact(tick)

    @property
    def live_tuples(self) -> int:
        """Tuples that a window may hold; up to about as many others are not yet purged."""
        return len(self._finder.live)

    def load_tables(self, records: Iterable[Record]) -> Iterator[Result]:
        """Take in the static tables, which belong to every window; give the results of them alone."""
        yield from self._told(self.load(static_tuples(self.schema, ((r.relation, r.row) for r in records))))

    def load(self, static: list[StreamTuple]) -> list[Event]:
        """Take in static tuples; the results of them alone."""
        self.counts.static += len(static)
        self._keys = np.full((len(static), self._keys.shape[1]), ANY, dtype=np.int64)
        found = self._finder.insert(of_tuples(static, lambda t: t.occurrence > 0))
        self.counts.excluded = self._finder.excluded
        return list(self._finder.events(found, snapshot=True))

    def process(self, records: Iterable[Record]) -> Iterator[Result]:
        """Take in stream records in order of time."""
        yield from self.process_batches(batched(records))

    def process_batches(self, batches: Iterable[RecordBatch]) -> Iterator[Result]:
        """Take in stream records as columns, in order of time."""
        for batch in batches:
            if len(batch):
                yield from self._told(self.events(batch))

    def begin_at(self, position: int) -> None:
        """The stream before ``position`` is not told."""
        self.tracker.position = position

    def stand_at(self, windows: dict[str, Any]) -> None:
        """The stream goes on where no window is open; ``windows`` is the state of the tracker there."""
        self.tracker.restore(windows)

    def state(self) -> dict[str, Any]:
        """All that the engine holds but static tables, in plain values."""
        tuples, known = self._finder.live.tuples, self._finder.known
        slots = np.flatnonzero((tuples.end == FOREVER) & (tuples.start != ALWAYS)).tolist()
        members = [known.member(slot) for slot in slots]
        return {
            "tracker": self.tracker.state(),
            "tuples": [(m.start, m.time, m.relation, m.row, m.successor) for m in members],
            "closed": self._closed.state(),
            "followed": sorted(self._deletions.relations),
            "counts": asdict(self.counts),
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Hold what a ``state`` was of; the queries and tables are those of then, and nothing else came.

        The schema may have changed since, if windows are found as before:
        tuples of relations that are gone are left out.
        """
        self.tracker.restore(state["tracker"])
        gone = self.schema.evolution.removed_relations
        tuples = [each for each in state["tuples"] if each[2] not in gone]
        columns = tuple(map(list, zip(*tuples, strict=True))) or ([], [], [], [], [])
        positions, times, relations, rows, successors = columns
        records = [Record(r, t, tuple(w), False) for r, t, w in zip(relations, times, rows, strict=True)]
        batch = RecordBatch.of(records)
        start = np.array(positions, dtype=np.int64)
        self._keys = np.concatenate([self._keys, self.tracker.keys(BatchSource(batch))])
        ends = np.full(len(start), FOREVER, dtype=np.int64)
        new = Arrivals(batch.relation, batch.rows, start, ends, batch.time, start)
        new.followed = _successors(new, np.flatnonzero(np.array(successors, dtype=bool)))
        for results in self._finder.insert(new):
            self._wait(results)
        for relation in set(state["followed"]) - gone:
            self._follow(relation)
        told = self._closed.restore(state["closed"])
        for _ in self._pending.released(lambda results: self._first_ends(Holding(told), results)):
            pass  # told before
        self.counts = Counts(**state["counts"])
        self._finder.excluded = self.counts.excluded  # those put back were counted then

    def events(self, batch: RecordBatch) -> list[Event]:
        """The results that a batch of records in order of time leads to."""
        deletes = batch.deletes()
        begin = self.tracker.position
        ticks = begin + np.cumsum(~deletes) - ~deletes
        self.counts.deletions += int(deletes.sum())
        self.counts.tuples += len(batch) - int(deletes.sum())
        inserted = batch.taken(~deletes) if deletes.any() else batch
        spans = self.tracker.feed(BatchSource(inserted))
        position = np.arange(begin, self.tracker.position)
        held = self._held(spans, position, inserted.time)
        left = self._leaving(spans)
        for relation in set(np.unique(batch.relation[deletes]).tolist()) - self._deletions.relations:
            self._follow(relation)
        ended = self._ended(batch, ticks, spans, inserted.time)
        self.counts.unmatched_deletions += ended.unmatched
        self._end(left, ended)
        found = self._finder.insert(self._arrivals(inserted, begin, held, spans, ended))
        for results in found:
            self._wait(results)
        self.counts.excluded = self._finder.excluded
        events = list(self._completed(spans, inserted.time, begin))
        self._recent.extend(self._ended_windows(spans.closed, inserted.time, begin))
        self._closed.add(spans.closed)
        self._finder.purge(self.tracker.position)
        return events

    def _held(self, spans: Spans, position: Ints, time: Ints, *, seen: bool = False) -> Ints:
        """The last ticks at which windows may hold the tuples of a batch."""
        held = spans.leaving(position, time, spans.key, seen=seen)
        held[keyless(spans.key)] = -1
        return held

    def _leaving(self, spans: Spans, *, seen: bool = False) -> dict[int, int]:
        """The known tuples that leave in a batch: slots, with the last ticks of windows that hold them."""
        tuples, times = self._finder.live.tuples, self._finder.known.times
        alive = np.flatnonzero((tuples.end == FOREVER) & (tuples.start != ALWAYS))
        left = spans.leaving(tuples.start[alive], times[alive], self._keys[alive], seen=seen)
        gone = left < FOREVER
        return dict(zip(alive[gone].tolist(), left[gone].tolist(), strict=True))

    def _follow(self, relation: int) -> None:
        tuples, known = self._finder.live.tuples, self._finder.known
        alive = (tuples.relation == relation) & (tuples.end == FOREVER) & (tuples.start != ALWAYS)
        slots = np.flatnonzero(alive).tolist()
        self._deletions.follow(relation, ((int(tuples.start[slot]), known.row(slot)) for slot in slots))

    def _ended(self, batch: RecordBatch, ticks: Ints, spans: Spans, time: Ints) -> Ended:
        """What deletions and replacements of a batch end, by position."""
        followed = np.flatnonzero(np.isin(batch.relation, list(self._deletions.relations)))
        if not len(followed):
            return Ended()
        tuples = self._finder.live.tuples
        begin = self.tracker.position - len(time)
        held = self._held(spans, np.arange(begin, self.tracker.position), time, seen=True)
        left = self._leaving(spans, seen=True)

        def held_until(position: int) -> int:
            if position >= begin:
                return int(held[position - begin])
            slot = self._slot(position)
            return -1 if slot is None or tuples.end[slot] < FOREVER else left.get(slot, FOREVER)

        of = batch.taken(followed)
        columns = (ticks[followed].tolist(), of.relation.tolist(), of.rows, of.deletes().tolist())
        return self._deletions.step(zip(*columns, strict=True), held_until)

    def _end(self, left: dict[int, int], ended: Ended) -> None:
        """End known tuples that leave, or are deleted or replaced."""
        ends = {slot: tick + 1 for slot, tick in left.items()}
        for position, tick in ended.ends.items():
            slot = self._slot(position)
            if slot is not None:
                ends[slot] = min(ends.get(slot, FOREVER), tick)
        if ends:
            slots = np.array(list(ends), dtype=np.int64)
            self._finder.end(slots, np.array(list(ends.values()), dtype=np.int64))
            for _ in self._pending.end(slots, self._finder.live.tuples.end):
                pass

    def _slot(self, position: int) -> int | None:
        """Where the tuple at a position is kept."""
        starts = self._finder.live.tuples.start
        slot = int(np.searchsorted(starts, position))
        return slot if slot < len(starts) and starts[slot] == position else None

    def _arrivals(self, batch: RecordBatch, begin: int, held: Ints, spans: Spans, ended: Ended) -> Arrivals:
        """The new tuples that any window may hold."""
        ends = np.where(held == FOREVER, FOREVER, held + 1)
        for position, tick in ended.ends.items():
            if position >= begin:
                ends[position - begin] = min(ends.item(position - begin), tick)
        kept = np.flatnonzero(ends > np.arange(begin, begin + len(batch)))
        self._keys = np.concatenate([self._keys, spans.key[kept]])
        taken = batch.taken(kept)
        start = kept + begin
        new = Arrivals(taken.relation, taken.rows, start, ends[kept], taken.time, start)
        successors = np.array(sorted(ended.successors), dtype=np.int64)
        new.followed = _successors(new, np.flatnonzero(np.isin(new.start, successors)))
        return new

    def _wait(self, results: Partials) -> None:
        """Remember results until a window ends that holds them; none does if keys differ."""
        streaming = ~self._static(results)
        same, _ = self._key_of(results.members)
        self._pending.add(results.taken(streaming & same))

    def _static(self, results: Partials) -> Flags:
        started = self._finder.live.tuples.start[results.members]
        flags: Flags = ((results.members == NO_MEMBER) | (started == ALWAYS)).all(axis=1)
        return flags

    def _key_of(self, members: Ints) -> tuple[Flags, Ints]:
        """Whether the tuples of each result agree on the key, and its codes: ANY where none has the field."""
        codes = self._keys[members]
        codes[members == NO_MEMBER] = ANY
        greatest = codes.max(axis=1, initial=ANY)
        least = np.where(codes == ANY, FOREVER, codes).min(axis=1, initial=FOREVER)
        return ((least == FOREVER) | (least == greatest)).all(axis=1), greatest

    def _completed(self, spans: Spans, time: Ints, begin: int) -> Iterator[Event]:
        """The results that windows of a batch hold, at the end of the first that does."""
        if not len(spans.closed.last):
            return
        holding = Holding(spans.closed)
        for results, ends in self._pending.released(lambda results: self._first_ends(holding, results)):
            yield from self._events(results, ends, time[ends - begin])

    def _first_ends(self, holding: Holding, results: Partials) -> Ints:
        """The end of the first window that holds each result while its tuples are there, or FOREVER."""
        starts = self._finder.live.tuples.start[results.members]
        streaming = (results.members != NO_MEMBER) & (starts != ALWAYS)
        first = np.where(streaming, starts, FOREVER).min(axis=1)
        last = np.where(streaming, starts, -1).max(axis=1)
        end = holding.ends(first, last, self._key_of(results.members)[1])
        return np.where(end < results.end, end, FOREVER)

    def _events(self, results: Partials, ends: Ints, time: Ints) -> Iterator[Event]:
        names = self._finder.known.names(results.members[results.members != NO_MEMBER])
        starts = self._finder.live.tuples.start[results.members]
        streaming = (results.members != NO_MEMBER) & (starts != ALWAYS)
        began = np.where(streaming, self._finder.known.times[results.members], ALWAYS).max(axis=1)
        columns = (rows_of(results), ends.tolist(), began.tolist(), time.tolist())
        for (query, operator, slots), tick, start, end in zip(*columns, strict=True):
            mesh, assembler, _ = self._finder.queries[query]
            named = [names[slot] for slot in slots if slot >= 0]
            yield completed(tick, assembler.result("+", mesh.network(operator), named, start, end))

    def _renumber(self, horizon: int, slots: Ints) -> None:
        kept = np.flatnonzero(slots >= 0)
        keys = np.empty((len(kept), self._keys.shape[1]), dtype=np.int64)
        keys[slots[kept]] = self._keys[kept]
        self._keys = keys
        self._pending.compact(horizon, slots)
        if len(self._deletions):
            self._deletions.keep(set(self._finder.live.tuples.start.tolist()))

    def _told(self, events: list[Event]) -> Iterator[Result]:
        for result in in_order(events):
            self.counts.results += 1
            yield result


def _successors(new: Arrivals, places: Ints) -> dict[int, StreamTuple]:
    """Tuples that replaced another of their key, whose names say so."""
    return {
        place: StreamTuple(
            int(new.relation[place]),
            new.rows.row(place),
            int(new.start[place]),
            FOREVER,
            successor=True,
            time=int(new.times[place]),
        )
        for place in places.tolist()
    }
