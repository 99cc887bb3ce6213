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

from mesh.columnar import ColumnarMesh, Partials, TupleColumns
from mesh.columnar.columns import Flags, Ints
from mesh.columnar.store import PartialStore
from schema.graph import edges
from skws.engine.batches import RowColumns, RowStore, instants
from skws.engine.engine import EXCLUDED, Counts, arrivals
from skws.engine.events import Event, completed, in_order, retracted
from skws.plan import Plan
from skws.records import Record
from skws.results.assemble import Assembler
from skws.results.model import Result
from windows.lifespans import Lifespans, static_tuples
from windows.tuples import ALWAYS, StreamTuple
from windows.window import FOREVER, Unbounded


class ColumnarEngine:
    """Runs one plan over one stream. ``on_late`` hears of records that come after later ones."""

    def __init__(self, plan: Plan, on_late: Callable[[Record], None] = lambda _: None) -> None:
        if plan.lateness:
            raise ValueError("the columnar engine takes streams in order of time")
        self.plan = plan
        self.counts = Counts()
        self.mesh = ColumnarMesh(plan.generator(), on_compact=self._renumber)
        self._columns = RowColumns(plan.schema, self.mesh.key_sets, plan.matcher)
        self._rows = RowStore()
        self._lifespans = Lifespans(plan.schema, plan.window)
        # Relations whose tuples may end each other: by key, or since a deletion was seen.
        self._managed = {i for i, r in enumerate(plan.schema.relations) if r.key and not r.table}
        self._slots: dict[StreamTuple, int] = {}
        self._tuples: dict[int, StreamTuple] = {}
        self._shown: dict[int, StreamTuple] = {}  # tuples of results, which tend to be in several
        self._reported = [PartialStore(size) for size in range(1, plan.max_size + 1)]
        self._assembler = Assembler(plan)
        self._on_late = on_late
        self._position = 0
        self._now = ALWAYS

    def load_tables(self, records: Iterable[Record]) -> Iterator[Result]:
        """Take in the static tables, before the stream; give the results of static tuples alone."""
        static = static_tuples(self.plan.schema, ((r.relation, r.row) for r in records))
        self.counts.static += len(static)
        yield from self._told(self._completed(self._insert([], np.empty(0, np.int64), static), snapshot=True))

    def process(self, records: Iterable[Record]) -> Iterator[Result]:
        """Take in stream records in order of time. Neighbours with equal time are one instant."""
        for batch in instants(records, self.plan.by_count):
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
        stores = sum(store.size for store in self._reported)
        return not (
            len(self.mesh.tuples) or self.mesh.partials or len(self._lifespans) or self._slots or stores
        )

    def _batch(self, records: list[Record]) -> Iterator[Result]:
        ticks = self._ticks(records)
        if not self.plan.by_count:
            records, ticks = self._without_late(records, ticks)
        if not records:
            return
        self.expire(int(ticks[0]))
        deletions = sum(record.delete for record in records)
        self.counts.deletions += deletions
        self.counts.tuples += len(records) - deletions
        if deletions:
            self._manage({record.relation for record in records if record.delete})
        new, ended = self._settle(records, ticks)
        events = self._end(ended)
        plain = [place for place, record in enumerate(records) if record.relation not in self._managed]
        events += self._completed(self._insert([records[place] for place in plain], ticks[plain], new))
        self._now = max(self._now, int(ticks[-1]))
        yield from self._told(events)

    def _ticks(self, records: list[Record]) -> Ints:
        if not self.plan.by_count:
            return np.fromiter((r.time for r in records), dtype=np.int64, count=len(records))
        inserted = np.fromiter((not r.delete for r in records), dtype=np.int64, count=len(records))
        reached: Ints = self._position + np.cumsum(inserted)
        self._position = int(reached[-1])
        return reached - inserted

    def _without_late(self, records: list[Record], ticks: Ints) -> tuple[list[Record], Ints]:
        latest = np.maximum.accumulate(np.concatenate([[self._now], ticks[:-1]]))
        late: Flags = ticks < latest
        if not late.any():
            return records, ticks
        for place in np.flatnonzero(late).tolist():
            self.counts.late += 1
            self._on_late(records[place])
        kept = np.flatnonzero(~late)
        return [records[place] for place in kept.tolist()], ticks[kept]

    def _manage(self, deleting: set[int]) -> None:
        """From its first deletion on a relation's tuples are followed one by one, the live ones included."""
        for relation in deleting - self._managed:
            self._managed.add(relation)
            tuples = self.mesh.tuples
            for slot in np.flatnonzero((tuples.relation == relation) & (tuples.end > self._now)).tolist():
                known = self._member(slot)
                self._lifespans.remember(known)
                self._follow(known, slot)

    def _follow(self, known: StreamTuple, slot: int) -> None:
        self._slots[known] = slot
        self._tuples[slot] = known

    def _settle(self, records: list[Record], ticks: Ints) -> tuple[list[StreamTuple], list[StreamTuple]]:
        """Settle the lifespans of managed records; gives the new tuples, and the known ones that ended."""
        new: dict[StreamTuple, None] = {}
        ended: dict[StreamTuple, None] = {}
        for tick, step in self._steps(records, ticks):
            changes = self._lifespans.step(tick, ((r.relation, r.row, r.delete, r.time) for r in step))
            self.counts.unmatched_deletions += changes.unmatched
            new.update(dict.fromkeys(changes.inserted))
            for known, end in changes.ended:
                known.end = end
                known.ended_at = step[0].time if self.plan.by_count else end
                if known not in new:
                    ended[known] = None
        return list(new), list(ended)

    def _steps(self, records: list[Record], ticks: Ints) -> Iterator[tuple[int, list[Record]]]:
        """Instants of the managed records, as the tuple-at-a-time engine has them."""
        managed = [
            pair for pair in zip(ticks.tolist(), records, strict=True) if pair[1].relation in self._managed
        ]
        for tick, together in groupby(managed, key=lambda pair: pair[0]):
            step = [record for _, record in together]
            yield from ((tick, part) for part in arrivals(step)) if self.plan.by_count else [(tick, step)]

    def _end(self, ended: list[StreamTuple]) -> list[Event]:
        """Known tuples end; gives the retractions of reported results that contain them."""
        known = [t for t in ended if t in self._slots]
        if not known:
            return []
        slots = np.array([self._slots[t] for t in known])
        self.mesh.end(slots, np.array([t.end for t in known]))
        events = []
        for store in self._reported:
            reported = store.partials
            touched = np.flatnonzero(np.isin(reported.members, slots).any(axis=1))
            ends = self.mesh.tuples.end[reported.members[touched]].min(axis=1, initial=FOREVER)
            earlier = ends < reported.end[touched]
            reported.end[touched[earlier]] = ends[earlier]
            retractions = reported.taken(touched[earlier])
            for operator, members in zip(
                retractions.operator.tolist(), retractions.members.tolist(), strict=True
            ):
                events.append(self._retraction(operator, [self._member(slot) for slot in members]))
        return events

    def _insert(self, records: list[Record], ticks: Ints, followed: list[StreamTuple]) -> list[Partials]:
        """Add plain records, and tuples that are followed one by one, in order of their start."""
        starts = np.concatenate([ticks, np.array([t.start for t in followed], dtype=np.int64)])
        order = np.argsort(starts, kind="stable")
        relation = np.array(
            [*(r.relation for r in records), *(t.relation for t in followed)], dtype=np.int64
        )[order]
        rows = [*(r.row for r in records), *(t.row for t in followed)]
        times = [*(r.time for r in records), *(t.time for t in followed)]
        ends = np.concatenate([self._natural_end(ticks), np.array([t.end for t in followed], dtype=np.int64)])
        places = order.tolist()
        rows = [rows[place] for place in places]
        keywords, keys = self._columns.of(relation, rows)
        self.counts.excluded += int((keywords == EXCLUDED).sum())
        kept = np.flatnonzero(keywords != EXCLUDED)
        first = len(self.mesh.tuples)
        self._rows.append([rows[i] for i in kept.tolist()], [times[places[i]] for i in kept.tolist()])
        for slot, place in enumerate(order[kept].tolist(), first):
            if place >= len(records):
                new = followed[place - len(records)]
                new.keywords = int(keywords[kept[slot - first]])
                if not new.static or new.occurrence:
                    self._follow(new, slot)
        columns = TupleColumns(relation, keywords, starts[order], ends[order], keys)
        return self.mesh.insert(columns.taken(kept))

    def _completed(self, found: list[Partials], snapshot: bool = False) -> list[Event]:
        """Results as they come, and retractions of those that end early within the batch."""
        events = []
        for results in found:
            store = self._reported[results.members.shape[1] - 1]
            true = np.array([self._truly_joined(*pair) for pair in _pairs(results)], dtype=bool)
            store.append(results.taken(true).columns())
            for operator, slots in _pairs(results.taken(true)):
                members = [self._member(slot) for slot in slots]
                natural = min(self._natural(member) for member in members)
                shown = FOREVER if self.plan.by_count else natural
                result = self._assembler.result("+", self.mesh.network(operator), members, shown, snapshot)
                events.append(completed(max(m.start for m in members), result))
                if min(member.end for member in members) < natural:
                    events.append(self._retraction(operator, members))
        return events

    def _retraction(self, operator: int, members: list[StreamTuple]) -> Event:
        end = min(member.end for member in members)
        time = min(m.ended_at for m in members if m.end == end and m.ended_at is not None)
        result = self._assembler.result("-", self.mesh.network(operator), members, time)
        return retracted(end, time, result)

    def _truly_joined(self, operator: int, slots: list[int]) -> bool:
        """False for members that only the 64-bit keys of their join values held for equal."""
        tree = self.mesh.network(operator)
        walked = edges(self.plan.schema)
        for node in range(1, len(slots)):
            edge = walked[tree.edges[node]]
            source, target = self._rows.row(slots[tree.parents[node]]), self._rows.row(slots[node])
            if any(
                source[a] != target[b] for a, b in zip(edge.source_columns, edge.target_columns, strict=True)
            ):
                return False
        return True

    def _member(self, slot: int) -> StreamTuple:
        """The tuple in a slot."""
        known = self._tuples.get(slot) or self._shown.get(slot)
        if known is None:
            known = self._shown[slot] = self._from_columns(slot)
        return known

    def _from_columns(self, slot: int) -> StreamTuple:
        tuples, row = self.mesh.tuples, self._rows.row(slot)
        relation, start = int(tuples.relation[slot]), int(tuples.start[slot])
        return StreamTuple(
            relation,
            row,
            start,
            int(tuples.end[slot]),
            int(tuples.keywords[slot]),
            0 if start == ALWAYS else self._occurrence(slot, relation, start),
            time=self._rows.time(slot),
        )

    def _occurrence(self, slot: int, relation: int, start: int) -> int:
        """How many equal tuples of the same instant came before; slots are in order of start."""
        tuples, row = self.mesh.tuples, self._rows.row(slot)
        first = int(np.searchsorted(tuples.start[:slot], start))
        same = np.flatnonzero(tuples.relation[first:slot] == relation) + first
        return sum(self._rows.row(other) == row for other in same.tolist())

    def _natural(self, member: StreamTuple) -> int:
        return FOREVER if member.static else self.plan.window.end(member.start)

    def _natural_end(self, starts: Ints) -> Ints:
        if isinstance(self.plan.window, Unbounded):
            return np.full(len(starts), FOREVER, dtype=np.int64)
        return starts + self.plan.window.end(0)

    def _renumber(self, slots: Ints) -> None:
        """Follow the mesh when it gives its tuples new slots."""
        self._rows.compact(slots)
        self._shown.clear()
        self._tuples = {n: t for n, t in ((int(slots[s]), t) for s, t in self._tuples.items()) if n >= 0}
        self._slots = {t: n for n, t in self._tuples.items()}
        for store in self._reported:
            store.compact(self._now, slots)

    def _told(self, events: list[Event]) -> Iterator[Result]:
        for result in in_order(events):
            self.counts.results += result.op == "+"
            self.counts.retractions += result.op == "-"
            yield result


def _pairs(results: Partials) -> Iterator[tuple[int, list[int]]]:
    return zip(results.operator.tolist(), results.members.tolist(), strict=True)
