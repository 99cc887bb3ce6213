"""Results as the UI keeps them: so many, newest first, those that end struck through and then gone."""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import count
from typing import Final, Literal, TypeAlias

from skws.results.model import LiveResult, Result

CAPACITY: Final = 5_000
LINGER: Final = 6.0
"""Seconds for which an ended result stays to be seen."""

Ending: TypeAlias = Literal["retracted", "expired", "outranked"]
Key: TypeAlias = tuple[str, str]
"""Query and id of a result."""


@dataclass(slots=True)
class Shown:
    """A result as it is listed. ``number`` counts arrivals; ``ended_at`` is on the UI's clock, in seconds.

    ``lines``: of its drawing. ``gone``: it is listed no more. ``rank``: among
    the best, where these stand first.
    """

    number: int
    result: LiveResult
    arrived: float
    ending: Ending | None = None
    ended_at: float = 0.0
    gone: bool = False
    rank: int | None = None
    lines: int = field(init=False)
    _text: str = field(default="", repr=False)

    def __post_init__(self) -> None:
        self.lines = 1 + len(self.result.tuples)

    @property
    def key(self) -> Key:
        return self.result.query, self.result.id

    @property
    def text(self) -> str:
        """What the filter looks through, in lower case."""
        if not self._text:
            self._text = self.result.to_json().decode().casefold()
        return self._text


class ResultBuffer:
    """The latest results of all queries. ``dropped`` counts those that it had no room for.

    ``version`` changes with what is listed. What is gone stays in the queues
    until it comes to their front, or has become the most of them. Results of
    ``lasting`` queries are told when their windows end, and do not expire.
    """

    def __init__(self, capacity: int = CAPACITY, linger: float = LINGER) -> None:
        self.capacity = capacity
        self.linger = linger
        self.keep_ended = False
        self.lasting: frozenset[str] = frozenset()
        self.dropped = 0
        self.version = 0
        self._number = count(1)
        self._shown: dict[Key, Shown] = {}
        self._order: deque[Shown] = deque()
        self._ended: deque[Shown] = deque()
        self._ends: list[tuple[float, int, Shown]] = []

    def __len__(self) -> int:
        return len(self._shown)

    @property
    def queued(self) -> int:
        """Entries of all queues: what memory depends on."""
        return len(self._order) + len(self._ended) + len(self._ends)

    def take(self, results: Iterable[LiveResult], now: float) -> int:
        """Results and retractions in the order in which they were told; gives the number of new ones."""
        new = 0
        for result in results:
            known = self._shown.get((result.query, result.id))
            if result.op == "-":
                if known is not None:
                    self._end(known, _why(result), now)
                continue
            new += 1
            if known is not None:
                self._remove(known)
            self._add(Shown(next(self._number), result, now))
        self._trim()
        self.version += bool(new)
        return new

    def expire(self, event_time: float, now: float) -> None:
        """Strike through what has ended at ``event_time``, in seconds since the epoch."""
        while self._ends and self._ends[0][0] <= event_time:
            self._end(heapq.heappop(self._ends)[2], "expired", now)

    def sweep(self, now: float) -> None:
        """Take away what ended long enough ago."""
        while self._ended and not self.keep_ended:
            if not self._ended[0].gone and now - self._ended[0].ended_at < self.linger:
                return
            self._remove(self._ended.popleft())

    def forget(self, query: str) -> None:
        """Take away all results of a query."""
        for shown in [shown for shown in self._shown.values() if shown.result.query == query]:
            self._remove(shown)

    def listed(
        self, query: str | None = None, words: str = "", network: str | None = None, *, best: bool = False
    ) -> list[Shown]:
        """Newest first; only those of a query or network, and with all ``words`` somewhere in them.

        ``best``: the highest scores first instead, live ones with their ranks.
        """
        found = [shown for shown in reversed(self._order) if not shown.gone]
        if query is not None:
            found = [one for one in found if one.result.query == query]
        if network is not None:
            found = [one for one in found if getattr(one.result, "network", None) == network]
        for word in words.casefold().split():
            found = [one for one in found if word in one.text]
        return _best_first(found) if best else found

    def _add(self, shown: Shown) -> None:
        self._shown[shown.key] = shown
        self._order.append(shown)
        if shown.result.end is not None and shown.result.query not in self.lasting:
            heapq.heappush(self._ends, (shown.result.end, shown.number, shown))

    def _end(self, shown: Shown, ending: Ending, now: float) -> None:
        if shown.ending is None and not shown.gone:
            shown.ending, shown.ended_at = ending, now
            self._ended.append(shown)
            self.version += 1

    def _remove(self, shown: Shown) -> None:
        if not shown.gone:
            shown.gone = True
            del self._shown[shown.key]
            self.version += 1

    def _trim(self) -> None:
        while len(self._shown) > self.capacity:
            oldest = self._order.popleft()
            self.dropped += not oldest.gone
            self._remove(oldest)
        if self.queued > 8 * self.capacity:
            self._order = deque(shown for shown in self._order if not shown.gone)
            self._ended = deque(shown for shown in self._ended if not shown.gone)
            self._ends = [entry for entry in self._ends if not entry[2].gone]
            heapq.heapify(self._ends)


def _why(retraction: LiveResult) -> Ending:
    """What became of a result; of the best ones it is told."""
    place = retraction.place if isinstance(retraction, Result) else None
    match None if place is None else place.reason:
        case "expired":
            return "expired"
        case "outranked":
            return "outranked"
    return "retracted"


def _best_first(found: list[Shown]) -> list[Shown]:
    """By score, which orders results for ever; ranks of those that live are theirs among these."""
    scored = sorted(found, key=_order)
    living = count(1)
    for shown in scored:
        shown.rank = None if shown.ending else next(living)
    return scored


def _order(shown: Shown) -> tuple[int, float, str]:
    """As ``skws.ranking.best`` orders candidates; what has no score comes last."""
    score = shown.result.score if isinstance(shown.result, Result) else None
    tier, value = (-1, 0.0) if score is None else score.rank
    return -tier, -value, shown.result.id
