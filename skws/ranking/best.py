"""The k best of changing candidates; the others wait in heaps, so a change costs logarithmic time."""

from __future__ import annotations

from bisect import insort
from collections.abc import Iterator
from heapq import heapify, heappop, heappush, heapreplace
from typing import Final, NamedTuple, TypeAlias

from skws.results.model import Result

Order: TypeAlias = tuple[int, float, str]
_LEAST: Final = 1024


class Candidate(NamedTuple):
    """``order``: the smaller, the better; no two are equal. ``expires``: a tick."""

    order: Order
    expires: int
    result: Result
    group: str | None = None

    @property
    def id(self) -> str:
        return self.order[2]


def candidate(result: Result, group: str | None = None) -> Candidate:
    """A result with a score; of equal scores the smaller id is better."""
    assert result.score is not None and result.expires is not None  # noqa: S101, PT018 - whoever ranks sees to it
    tier, value = result.score.rank
    return Candidate((-tier, -value, result.id), result.expires, result, group)


class Best:
    """The ``size`` best candidates, in ``top``, best first; the others wait for their chance.

    ``append_only``: candidates only expire. Then one that ``size`` better ones
    outlive can never enter, and is forgotten: what is left is the k-skyband over
    score and expiry (Mouratidis, Bakiras and Papadias, SIGMOD 2006).
    """

    def __init__(self, size: int, *, append_only: bool = False) -> None:
        self.top: list[Candidate] = []
        self._size = size
        self._append_only = append_only
        self._alive: dict[str, Candidate] = {}
        self._waiting: list[Candidate] = []  # a heap; some are gone
        self._limit = _LEAST

    def __len__(self) -> int:
        """Candidates that can be among the best, now or later."""
        return len(self._alive)

    def __contains__(self, name: str) -> bool:
        return name in self._alive

    def __iter__(self) -> Iterator[Candidate]:
        return iter(self._alive.values())

    def offer(self, new: Candidate) -> None:
        """Add a candidate."""
        if new.id in self._alive:
            self.withdraw(new.id)
        self._alive[new.id] = new
        if len(self.top) < self._size:
            insort(self.top, new)
        elif new < self.top[-1]:
            heappush(self._waiting, self.top.pop())
            insort(self.top, new)
        else:
            heappush(self._waiting, new)
        if len(self._waiting) > self._limit:
            self._tidy()

    def withdraw(self, name: str) -> Candidate | None:
        """Remove a candidate; None if there is none of that id."""
        gone = self._alive.pop(name, None)
        if gone is not None and self.top and gone <= self.top[-1]:
            self.top.remove(gone)
            self._promote()
        return gone

    def _promote(self) -> None:
        while self._waiting and len(self.top) < self._size:
            next_one = heappop(self._waiting)
            if self._alive.get(next_one.id) is next_one:
                self.top.append(next_one)  # worse than all that are there

    def _tidy(self) -> None:
        """Remove candidates that are gone, or can never enter."""
        kept = [each for each in self._waiting if self._alive.get(each.id) is each]
        if self._append_only:
            outlived = self._never_entering(kept)
            for each in outlived:
                del self._alive[each.id]
            kept = [each for each in kept if each.id in self._alive]
        heapify(kept)
        self._waiting = kept
        self._limit = max(2 * len(kept), _LEAST)

    def _never_entering(self, waiting: list[Candidate]) -> list[Candidate]:
        latest = [each.expires for each in self.top]  # the last to expire of all better ones
        heapify(latest)
        never = []
        for each in sorted(waiting):
            if latest[0] >= each.expires:
                never.append(each)
            else:
                heapreplace(latest, each.expires)
        return never
