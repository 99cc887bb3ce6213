"""The latest results: newest first, ended ones struck through for a while, then removed."""

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
"""Seconds that an ended result stays in the list."""

Ending: TypeAlias = Literal["retracted", "expired", "outranked"]
Key: TypeAlias = tuple[str, str]
"""Query and id of a result."""


@dataclass(slots=True)
class ListedResult:
    """A result in the list. ``number`` counts arrivals; ``ended_at`` is on the UI's clock, in seconds.

    ``lines``: the height of its drawing. ``gone``: it is no longer listed. ``rank``: among
    the best, if the list shows them first.
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
        """The text that the filter searches, in lower case."""
        if not self._text:
            self._text = self.result.to_json().decode().casefold()
        return self._text


class ResultBuffer:
    """The latest results of all queries. ``dropped`` counts those beyond ``capacity``.

    ``version`` changes with the list. A removed result stays in the queues until it reaches their front, or
    until most entries are removed ones. Results of ``lasting`` queries arrive when their windows end, and
    do not expire.
    """

    def __init__(self, capacity: int = CAPACITY, linger: float = LINGER) -> None:
        self.capacity = capacity
        self.linger = linger
        self.keep_ended = False
        self.lasting: frozenset[str] = frozenset()
        self.dropped = 0
        self.version = 0
        self._number = count(1)
        self._shown: dict[Key, ListedResult] = {}
        self._order: deque[ListedResult] = deque()
        self._ended: deque[ListedResult] = deque()
        self._ends: list[tuple[float, int, ListedResult]] = []

    def __len__(self) -> int:
        return len(self._shown)

    @property
    def queued(self) -> int:
        """Entries of all queues, which memory grows with."""
        return len(self._order) + len(self._ended) + len(self._ends)

    def take(self, results: Iterable[LiveResult], now: float) -> int:
        """Take in results and retractions in their order; returns the number of new results."""
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
            self._add(ListedResult(next(self._number), result, now))
        self._trim()
        self.version += bool(new)
        return new

    def expire(self, event_time: float, now: float) -> None:
        """End the results whose end is at most ``event_time``, in seconds since the epoch."""
        while self._ends and self._ends[0][0] <= event_time:
            self._end(heapq.heappop(self._ends)[2], "expired", now)

    def sweep(self, now: float) -> None:
        """Remove results that ended long enough ago."""
        while self._ended and not self.keep_ended:
            if not self._ended[0].gone and now - self._ended[0].ended_at < self.linger:
                return
            self._remove(self._ended.popleft())

    def forget(self, query: str) -> None:
        """Remove all results of a query."""
        for shown in [shown for shown in self._shown.values() if shown.result.query == query]:
            self._remove(shown)

    def listed(
        self, query: str | None = None, words: str = "", network: str | None = None, *, best: bool = False
    ) -> list[ListedResult]:
        """Newest first; only those of a query or network, and those that contain all ``words``.

        ``best``: highest scores first instead, live ones with their ranks.
        """
        found = [shown for shown in reversed(self._order) if not shown.gone]
        if query is not None:
            found = [one for one in found if one.result.query == query]
        if network is not None:
            found = [one for one in found if getattr(one.result, "network", None) == network]
        for word in words.casefold().split():
            found = [one for one in found if word in one.text]
        return _best_first(found) if best else found

    def _add(self, shown: ListedResult) -> None:
        self._shown[shown.key] = shown
        self._order.append(shown)
        if shown.result.end is not None and shown.result.query not in self.lasting:
            heapq.heappush(self._ends, (shown.result.end, shown.number, shown))

    def _end(self, shown: ListedResult, ending: Ending, now: float) -> None:
        if shown.ending is None and not shown.gone:
            shown.ending, shown.ended_at = ending, now
            self._ended.append(shown)
            self.version += 1

    def _remove(self, shown: ListedResult) -> None:
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
    """Why a result ended; among the best ones the retraction says so."""
    place = retraction.place if isinstance(retraction, Result) else None
    match None if place is None else place.reason:
        case "expired":
            return "expired"
        case "outranked":
            return "outranked"
    return "retracted"


def _best_first(found: list[ListedResult]) -> list[ListedResult]:
    """By score, in an order that never changes; ranks are among the live ones."""
    scored = sorted(found, key=_order)
    living = count(1)
    for shown in scored:
        shown.rank = None if shown.ending else next(living)
    return scored


def _order(shown: ListedResult) -> tuple[int, float, str]:
    """As ``skws.ranking.best`` orders candidates; results without a score come last."""
    score = shown.result.score if isinstance(shown.result, Result) else None
    tier, value = (-1, 0.0) if score is None else score.rank
    return -tier, -value, shown.result.id
