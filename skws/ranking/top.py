"""The k best results of a query at every instant: those that enter, and those that leave, with reasons."""

from __future__ import annotations

from bisect import insort
from collections.abc import Callable, Iterable, Iterator, Mapping, Set
from hashlib import blake2b
from heapq import heapify, heappop, heappush, heapreplace
from itertools import count, groupby
from typing import Final, NamedTuple, TypeAlias

import orjson
from msgspec.structs import replace

from skws.results.result import Result, Score, TopChange, instant_of
from skws.spec.query_spec import TopChoice
from skws_purging.lifespans import ALWAYS
from skws_schema.errors import SkwsError
from skws_schema.model import Schema
from skws_windows.window import FOREVER, MICROSECOND

Order: TypeAlias = tuple[int, float, str]
_SPARE_ENTRIES: Final = 1024


class Candidate(NamedTuple):
    """A result that may be among the best. ``order``: smaller is better; no two live ones are equal.

    ``expires``: a tick. ``turn`` distinguishes a result from its version before an update, which may still
    be in a heap.
    """

    order: Order
    expires: int
    turn: int
    result: Result
    group: str | None = None

    @property
    def id(self) -> str:
        return self.order[2]


def candidate(result: Result, group: str | None = None) -> Candidate:
    """A result with a score; among equal scores the smaller id is better."""
    assert result.score is not None and result.expires is not None  # noqa: S101, PT018 - by the caller
    tier, value = result.score.rank
    return Candidate((-tier, -value, result.id), result.expires, next(_turns), result, group)


_turns: Final = count()


class TopCandidates:
    """The ``size`` best candidates, in ``top``, best first; the others wait.

    ``append_only``: True if candidates only expire. Then a candidate that ``size`` better ones outlive can
    never enter, and is forgotten: the rest is the k-skyband over score and expiry (Mouratidis, Bakiras and
    Papadias, SIGMOD 2006). It is computed when more than ``least`` candidates wait.
    """

    def __init__(self, size: int, *, append_only: bool = False, least: int = _SPARE_ENTRIES) -> None:
        self.top: list[Candidate] = []
        self._size = size
        self._append_only = append_only
        self._by_id: dict[str, Candidate] = {}
        self._waiting: list[Candidate] = []  # a heap, with some removed candidates
        self._least = self._limit = least

    def __len__(self) -> int:
        """The number of candidates that can be among the best, now or later."""
        return len(self._by_id)

    def __contains__(self, name: str) -> bool:
        return name in self._by_id

    def __iter__(self) -> Iterator[Candidate]:
        return iter(self._by_id.values())

    def offer(self, entry: Candidate) -> None:
        if entry.id in self._by_id:
            self.withdraw(entry.id)
        self._by_id[entry.id] = entry
        if len(self.top) < self._size:
            insort(self.top, entry)
        elif entry < self.top[-1]:
            heappush(self._waiting, self.top.pop())
            insort(self.top, entry)
        else:
            heappush(self._waiting, entry)
        if len(self._waiting) > self._limit:
            self._tidy()

    def withdraw(self, name: str) -> Candidate | None:
        """Remove and return a candidate; None if there is none with that id."""
        removed = self._by_id.pop(name, None)
        if removed is not None and self.top and removed <= self.top[-1]:
            self.top.remove(removed)
            self._promote()
        return removed

    def _promote(self) -> None:
        while self._waiting and len(self.top) < self._size:
            next_candidate = heappop(self._waiting)
            if self._by_id.get(next_candidate.id) is next_candidate:
                self.top.append(next_candidate)  # worse than all present ones

    def _tidy(self) -> None:
        """Drop removed candidates, and those that can never enter."""
        live_candidates = [each for each in self._waiting if self._by_id.get(each.id) is each]
        if self._append_only:
            never_entering = self._never_entering(live_candidates)
            for each in never_entering:
                del self._by_id[each.id]
            live_candidates = [each for each in live_candidates if each.id in self._by_id]
        heapify(live_candidates)
        self._waiting = live_candidates
        self._limit = max(2 * len(live_candidates), self._least)

    def _never_entering(self, waiting: list[Candidate]) -> list[Candidate]:
        latest = [each.expires for each in self.top]  # the latest expiries of all better candidates
        heapify(latest)
        never_entering = []
        for each in sorted(waiting):
            if latest[0] >= each.expires:
                never_entering.append(each)
            else:
                heapreplace(latest, each.expires)
        return never_entering


def event_time(tick: int) -> float:
    """A tick in microseconds as seconds since the epoch."""
    return tick / MICROSECOND


def unknown(_: int) -> None:
    """None, since the time of a position in the stream is unknown."""


EXPIRED: Final = "expired"
OUTRANKED: Final = "outranked"
DELETED: Final = "deleted"


class Top:
    """Turns the results of one query, in order, into changes of its best ones.

    ``when``: converts a tick to seconds since the epoch; None if unknown. Raises SkwsError for a deletion if
    the user has stated that there are none.
    """

    def __init__(self, choice: TopChoice, schema: Schema, when: Callable[[int], float | None]) -> None:
        self._choice = choice
        self._when = when
        self._best = TopCandidates(choice.size, append_only=choice.append_only and not choice.group)
        self._groups: dict[str, TopCandidates] = {}
        self._group_of = group_namer(schema) if choice.group else None
        self._group_by_id: dict[str, str] = {}  # the group of each member
        self._ends: list[tuple[int, str]] = []  # a heap, with some removed results
        self._expires: dict[str, int] = {}  # of results that expire
        self._now = ALWAYS

    def __len__(self) -> int:
        """The number of stored results, which may be among the best, now or later."""
        return sum(map(len, self._groups.values())) if self._choice.group else len(self._best)

    def take(self, results: Iterable[Result]) -> Iterator[Result]:
        """Process results, updates and retractions, in order of their ticks; returns the changes."""
        for tick, tick_results in groupby(results, key=self._tick):
            yield from self._expire_until(tick)
            yield from self._step(list(tick_results))

    def advance(self, tick: int) -> Iterator[Result]:
        """Advance to a tick (inclusive); returns the changes."""
        yield from self._expire_until(tick)

    def take_over(self, former: Top) -> Iterator[Result]:
        """The changes from the best results of another ``Top``, for the same choice at the same time."""
        top_before = list(former._best.top)
        candidates = self._group_by_id if self._choice.group else self._best
        removed = {each.id: DELETED for each in top_before if each.id not in candidates}
        yield from self._changes(top_before, removed, self._when(self._now))

    def alive(self) -> list[Result]:
        """The current best results, best first."""
        return [each.result for each in self._best.top]

    def live(self) -> Iterator[Result]:
        """All stored results; the order is unspecified."""
        bests = self._groups.values() if self._choice.group else [self._best]
        return (each.result for best in bests for each in best)

    def rescore(self, reports: Mapping[str, tuple[Score, float | None]]) -> None:
        """Rank results, by id, by the scores and starts with which they were reported."""
        for each in [each for each in self.live() if each.id in reports]:
            score, begin = reports[each.id]
            self._remove(each.id)
            self._add(replace(each, score=score, start=begin))

    def _tick(self, result: Result) -> int:
        assert result.tick is not None  # noqa: S101 - results of ranked queries have one
        return max(result.tick, self._now)

    def _expire_until(self, tick: int) -> Iterator[Result]:
        while self._ends and self._ends[0][0] <= tick:
            end = self._ends[0][0]
            top_before = list(self._best.top)
            reasons = {}
            while self._ends and self._ends[0][0] == end:
                _, name = heappop(self._ends)
                if self._expires.get(name) == end:  # otherwise an update has extended it
                    reasons[name] = EXPIRED
                    self._remove(name)
            yield from self._changes(top_before, reasons, self._when(end))
        self._now = max(self._now, tick)

    def _step(self, results: list[Result]) -> Iterator[Result]:
        """Process the results of one instant."""
        top_before = list(self._best.top)
        removal_reasons = {}
        updated_ids = set()
        replaced_ids = set()  # reported as removed and found again
        for result in results:
            if result.op == "-":
                self._check_deletion(result)
                removal_reasons[result.id] = DELETED
                self._remove(result.id)
                replaced_ids.discard(result.id)
            else:
                if result.op == "~":
                    updated_ids.add(result.id)
                    self._remove(result.id)
                elif result.id in removal_reasons:
                    replaced_ids.add(result.id)
                self._add(result)
        yield from self._changes(
            top_before, removal_reasons, self._at(results[-1]), updated_ids, replaced_ids
        )

    def _check_deletion(self, result: Result) -> None:
        if self._choice.append_only:
            raise SkwsError(
                f"result {result.id} was deleted, but --append-only excludes deletions; run without it"
            )

    def _at(self, result: Result) -> float | None:
        """The time of a change at the current tick; the result's own time if that is unknown."""
        if self._now <= ALWAYS:
            return None
        at = self._when(self._now)
        return instant_of(result) if at is None else at

    def _add(self, result: Result) -> None:
        group = self._group_of(result) if self._group_of else None
        entry = candidate(result, group)
        if entry.expires < FOREVER:
            heappush(self._ends, (entry.expires, entry.id))
            self._expires[entry.id] = entry.expires
        if group is None:
            self._best.offer(entry)
        else:
            self._group_by_id[entry.id] = group
            self._with_best_of(group, lambda members: members.offer(entry))
        # After the offer: ends of results that are not stored are dropped.
        if len(self._ends) > 2 * len(self) + _SPARE_ENTRIES:
            self._tidy()

    def _remove(self, name: str) -> None:
        self._expires.pop(name, None)
        if not self._choice.group:
            self._best.withdraw(name)
            return
        group = self._group_by_id.pop(name, None)
        if group is not None:
            self._with_best_of(group, lambda members: members.withdraw(name))

    def _with_best_of(self, group: str, change: Callable[[TopCandidates], object]) -> None:
        """Change the members of a group, which its best member represents."""
        members = self._groups.setdefault(group, TopCandidates(1))
        top_before = members.top[:]
        change(members)
        if members.top != top_before:
            for each in top_before:
                self._best.withdraw(each.id)
            for each in members.top:
                self._best.offer(each)
        if not len(members):
            del self._groups[group]

    def _tidy(self) -> None:
        live = self._group_by_id if self._choice.group else self._best
        self._ends = [
            each for each in self._ends if each[1] in live and self._expires.get(each[1]) == each[0]
        ]
        self._expires = {name: end for end, name in self._ends}
        heapify(self._ends)

    def _changes(
        self,
        before: list[Candidate],
        removed: dict[str, str],
        at: float | None,
        updated: Set[str] = frozenset(),
        replaced: Set[str] = frozenset(),
    ) -> Iterator[Result]:
        """The results that left, then those that entered, each by rank, then ``updated`` ones that remain.

        A ``replaced`` result that remains leaves and enters.
        """
        after = self._best.top
        if before == after:
            return
        ids_before, ids_after = {each.id for each in before}, {each.id for each in after}
        for rank, each in enumerate(before, 1):
            if each.id not in ids_after or each.id in replaced:
                yield self._report(each, TopChange("leave", rank, at, removed.get(each.id, OUTRANKED)))
        for rank, each in enumerate(after, 1):
            if each.id not in ids_before or each.id in replaced:
                yield self._report(each, TopChange("enter", rank, at))
        for rank, each in enumerate(after, 1):
            if each.id in updated and each.id in ids_before and each.id not in replaced:
                yield self._report(each, TopChange("update", rank, at))

    def _report(self, entry: Candidate, change: TopChange) -> Result:
        result = entry.result
        if entry.group is not None:
            members = self._groups.get(entry.group, ())
            folded = len(members) - (entry.id in members)
            change = replace(change, group=entry.group, folded=folded)
        score = result.score and result.score.when(change.at)
        if change.event == "update":
            return replace(result, score=score, place=change)
        report = replace(result, score=score, place=change, at=None, changed=())
        if change.event == "enter":
            return replace(report, op="+")
        return replace(report, op="-", end=result.end if change.at is None else change.at)


def group_namer(schema: Schema) -> Callable[[Result], str]:
    """Names the group of a result's near-duplicates: the same network, the same texts with keywords.

    They differ in the tuples between, or in attributes that are not searched.
    """
    searched = {relation.name: relation.search for relation in schema.relations}

    def name(result: Result) -> str:
        texts = sorted(
            (each.relation, list(each.keywords), [str(each.row[a]) for a in searched[each.relation]])
            for each in result.tuples
            if each.keywords
        )
        return blake2b(orjson.dumps([result.network, texts]), digest_size=6).hexdigest()

    return name
