"""Results as the UI keeps them: so many, newest first, those that end struck through and then gone."""

from __future__ import annotations

import heapq
from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import count
from typing import Final, Literal, TypeAlias

from skws.results.model import Result

CAPACITY: Final = 5_000
LINGER: Final = 6.0
"""Seconds for which an ended result stays to be seen."""

Ending: TypeAlias = Literal["retracted", "expired"]


@dataclass(slots=True)
class Shown:
    """A result as it is listed. ``number`` counts arrivals; ``ended_at`` is on the UI's clock, in seconds."""

    number: int
    result: Result
    arrived: float
    ending: Ending | None = None
    ended_at: float = 0.0
    _text: str = field(default="", repr=False)

    @property
    def text(self) -> str:
        """What the filter looks through, in lower case."""
        if not self._text:
            self._text = self.result.to_json().decode().casefold()
        return self._text


class ResultBuffer:
    """The latest results of all queries. ``dropped`` counts those that it had no room for."""

    def __init__(self, capacity: int = CAPACITY, linger: float = LINGER) -> None:
        self.capacity = capacity
        self.linger = linger
        self.keep_ended = False
        self.dropped = 0
        self.version = 0
        self._number = count(1)
        self._shown: OrderedDict[tuple[str, str], Shown] = OrderedDict()
        self._ends: list[tuple[float, int, tuple[str, str]]] = []
        self._ended: OrderedDict[tuple[str, str], None] = OrderedDict()

    def __len__(self) -> int:
        return len(self._shown)

    def take(self, results: Iterable[Result], now: float) -> int:
        """Results and retractions in the order in which they were told; gives the number of new ones."""
        new = 0
        for result in results:
            key = (result.query, result.id)
            if result.op == "-":
                self._end(key, "retracted", now)
                continue
            new += 1
            self._ended.pop(key, None)
            self._shown.pop(key, None)
            self._shown[key] = Shown(next(self._number), result, now)
            if result.end is not None:
                heapq.heappush(self._ends, (result.end, self._shown[key].number, key))
        self._trim()
        self.version += bool(new)
        return new

    def expire(self, event_time: float, now: float) -> None:
        """Strike through what has ended at ``event_time``, in seconds since the epoch."""
        while self._ends and self._ends[0][0] <= event_time:
            _, number, key = heapq.heappop(self._ends)
            if key in self._shown and self._shown[key].number == number:
                self._end(key, "expired", now)

    def sweep(self, now: float) -> None:
        """Take away what ended long enough ago."""
        while self._ended and not self.keep_ended:
            key = next(iter(self._ended))
            if now - self._shown[key].ended_at < self.linger:
                return
            self._remove(key)

    def forget(self, query: str) -> None:
        """Take away all results of a query."""
        for key in [key for key in self._shown if key[0] == query]:
            self._remove(key)

    def clear(self) -> None:
        self._shown.clear()
        self._ended.clear()
        self._ends.clear()
        self.version += 1

    def listed(self, query: str | None = None, words: str = "", network: str | None = None) -> list[Shown]:
        """Newest first; only those of a query or network, and with all ``words`` somewhere in them."""
        found = list(reversed(self._shown.values()))
        if query is not None:
            found = [one for one in found if one.result.query == query]
        if network is not None:
            found = [one for one in found if one.result.network == network]
        for word in words.casefold().split():
            found = [one for one in found if word in one.text]
        return found

    def _end(self, key: tuple[str, str], ending: Ending, now: float) -> None:
        shown = self._shown.get(key)
        if shown is not None and shown.ending is None:
            shown.ending, shown.ended_at = ending, now
            self._ended[key] = None
            self.version += 1

    def _remove(self, key: tuple[str, str]) -> None:
        del self._shown[key]
        self._ended.pop(key, None)
        self.version += 1

    def _trim(self) -> None:
        while len(self._shown) > self.capacity:
            self._remove(next(iter(self._shown)))
            self.dropped += 1
        if len(self._ends) > 4 * self.capacity:
            self._ends = [entry for entry in self._ends if entry[2] in self._shown]
            heapq.heapify(self._ends)
