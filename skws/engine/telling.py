"""What meshes find, told as events: results as they are completed, and their retractions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

import numpy as np

from mesh.columnar import LiveTuples, Partials
from mesh.columnar.columns import Ints
from mesh.columnar.store import NO_MEMBER
from mesh.tree import Tree
from skws.engine.arrivals import natural_ends
from skws.engine.events import COMPLETED, Event, retracted
from skws.engine.known import KnownTuples
from skws.engine.meshes import Standing
from skws.ranking.judging import Judged, Scorer
from skws.results.assemble import Assembler, Reading, Shown
from windows.tuples import ALWAYS
from windows.window import FOREVER, Window, by_position


class Telling:
    """Tells the results of standing ``queries``, whose members are ``live`` tuples."""

    def __init__(
        self,
        queries: Mapping[int, Standing],
        live: LiveTuples,
        known: KnownTuples,
        scoring: Scorer,
        window: Window,
    ) -> None:
        self._queries = queries
        self._live = live
        self._known = known
        self._scoring = scoring
        self._window = window

    def events(self, found: list[Partials], snapshot: bool = False) -> Iterator[Event]:
        """Results as they are completed, and retractions of those whose early end is known."""
        by_count = by_position(self._window)
        readings: dict[tuple[int, int], tuple[Reading, Assembler]] = {}
        shown = Shown()
        for unsorted in found:
            results = unsorted.taken(np.argsort(unsorted.start, kind="stable"))  # what is sorted sorts fast
            natural, time = self._natural(results.members)
            names = self._known.names(results.members[results.members != NO_MEMBER])
            judged = self._judged(results, natural, snapshot)
            columns = (results.rows(), *(c.tolist() for c in (results.start, results.end, natural, time)))
            for (query, operator, slots), start, end, due, at, score in zip(*columns, judged, strict=True):
                known = readings.get((query, operator))
                if known is None:
                    mesh, assembler, *_ = self._queries[query]
                    known = assembler.reading(mesh.network(operator)), assembler
                    readings[query, operator] = known
                reading, assembler = known
                named = [names[slot] for slot in reading.members(slots)]
                began = None if at == ALWAYS else at
                until = FOREVER if by_count else due
                result = assembler.told("+", reading, named, shown, began, until, snapshot)
                scored = result if score is None else score.told(result)
                yield Event(start, COMPLETED, 0, result.id, scored)
                if end < due:
                    yield self.retraction(query, operator, slots)

    def _judged(self, results: Partials, natural: Ints, snapshot: bool) -> list[Judged | None]:
        if not len(self._scoring):
            return [None] * len(results)
        trees = [self.tree(row) for row in results.rows()]
        return self._scoring.of(results, trees, natural, snapshot=snapshot)

    def natural_end(self, members: Ints) -> Ints:
        """Ends that results would have without deletions."""
        return self._natural(members)[0]

    def tree(self, row: tuple[int, int, list[int]]) -> Tree:
        """The network that a result is of."""
        return self._queries[row[0]].mesh.network(row[1])

    def _natural(self, members: Ints) -> tuple[Ints, Ints]:
        """Ends that results would have without deletions, and the times at which they began."""
        starts = self._live.tuples.start[members]
        streaming = (members != NO_MEMBER) & (starts != ALWAYS)
        first = np.where(streaming, starts, FOREVER).min(axis=1)
        ends = np.where(first == FOREVER, FOREVER, natural_ends(self._window, first))
        return ends, np.where(streaming, self._known.times[members], ALWAYS).max(axis=1)

    def retraction(self, query: int, operator: int, slots: list[int]) -> Event:
        """The retraction of a result one of whose tuples was deleted."""
        members = [self._known.member(slot) for slot in slots if slot >= 0]
        end = min(member.end for member in members)
        time = min(m.ended_at for m in members if m.end == end and m.ended_at is not None)
        return self.taken_back(query, operator, slots, time, end)

    def taken_back(
        self, query: int, operator: int, slots: list[int], time: int, tick: int | None = None
    ) -> Event:
        """The retraction of a result at an event time; ``tick`` is its place in the output, else the time."""
        mesh, assembler, *_ = self._queries[query]
        members = [self._known.member(slot) for slot in slots if slot >= 0]
        times = [member.time for member in members if not member.static]
        named = [self._known.name(slot) for slot in slots if slot >= 0]
        result = assembler.result("-", mesh.network(operator), named, max(times, default=None), time)
        tick = time if tick is None else tick
        return retracted(tick, time, replace(result, tick=tick) if query in self._scoring else result)
