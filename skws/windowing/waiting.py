"""Results of keywords that wait until a window ends that holds all their tuples."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from mesh.columnar import Partials
from mesh.columnar.columns import Flags, Ints
from mesh.columnar.store import NO_MEMBER
from skws.engine.events import Event, completed
from skws.engine.finder import Finder
from skws.engine.reported import Reported
from skws.ranking.judging import Judged
from skws.windowing.contents import Contents
from skws.windowing.holding import Holding
from skws.windowing.members import Members
from skws.windowing.scoring import WindowScoring
from windows.expressions.spans import Closed
from windows.tuples import ALWAYS
from windows.window import FOREVER, MICROSECOND


class WaitingResults:
    """Results whose tuples are a finder's, with the keys that ``members`` knows."""

    def __init__(self, finder: Finder, members: Members, scoring: WindowScoring) -> None:
        self._finder = finder
        self._members = members
        self._scoring = scoring
        self._pending = Reported()

    def __len__(self) -> int:
        return len(self._pending)

    def add(self, results: Partials) -> None:
        """Remember results; no window holds those whose keys differ, and static ones wait for none."""
        same, _ = self._members.key_of(results.members)
        self._pending.add(results.taken(self._streaming(results).any(axis=1) & same))

    def remove(self, query: int) -> None:
        """Forget those of a query."""
        self._pending.remove(query)

    def end(self, slots: Ints) -> None:
        """Tuples have ended; results end with them."""
        for _ in self._pending.end(slots, self._finder.live.tuples.end):
            pass

    def compact(self, horizon: int, slots: Ints) -> None:
        """Forget what has ended, tuples having got new slots."""
        self._pending.compact(horizon, slots)

    def forget(self, closed: Closed) -> None:
        """Windows that have been told hold these."""
        for _ in self._released(closed):
            pass

    def told(self, closed: Closed, time: Ints, begin: int) -> Iterator[Event]:
        """Those that windows hold, at the end of the first that does; ``time`` from position ``begin`` on."""
        if len(closed.last):
            scored = len(self._scoring) > 0
            contents = Contents(self._finder.live.tuples, self._members.keys, closed) if scored else None
            for results, ends in self._released(closed):
                judged = [None] * len(results) if contents is None else self._judged(results, ends, contents)
                yield from self._events(results, ends, time[ends - begin], judged)

    def _released(self, closed: Closed) -> Iterator[tuple[Partials, Ints]]:
        holding = Holding(closed)
        return self._pending.released(lambda results: self._first_ends(holding, results))

    def _streaming(self, results: Partials) -> Flags:
        """Which members there are, and no static tuples."""
        starts = self._finder.live.tuples.start[results.members]
        flags: Flags = (results.members != NO_MEMBER) & (starts != ALWAYS)
        return flags

    def _first_ends(self, holding: Holding, results: Partials) -> Ints:
        """The end of the first window that holds each result while its tuples are there, or FOREVER."""
        starts, streaming = self._finder.live.tuples.start[results.members], self._streaming(results)
        first = np.where(streaming, starts, FOREVER).min(axis=1)
        last = np.where(streaming, starts, -1).max(axis=1)
        end = holding.ends(first, last, self._members.key_of(results.members)[1])
        return np.where(end < results.end, end, FOREVER)

    def _judged(self, results: Partials, ends: Ints, contents: Contents) -> list[Judged | None]:
        """Scores by the windows that results are told with."""
        trees = [self._finder.telling.tree(row) for row in results.rows()]
        return self._scoring.over(results, trees, contents.ended_at(ends), ends, contents)

    def _events(
        self, results: Partials, ends: Ints, time: Ints, judged: Sequence[Judged | None]
    ) -> Iterator[Event]:
        times = self._finder.known.times[results.members]
        began = np.where(self._streaming(results), times, ALWAYS).max(axis=1)
        made = self._finder.telling.results(results, began, time)
        columns = (made, ends.tolist(), time.tolist())
        for result, tick, end, score in zip(*columns, judged, strict=True):
            yield completed(tick, result if score is None else score.at(end / MICROSECOND).told(result))
