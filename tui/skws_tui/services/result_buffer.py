"""The latest results as rows of the list: live ones, and ended ones with the reason."""

from __future__ import annotations

import heapq
from collections import Counter, OrderedDict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import count
from math import inf
from typing import Final, Literal, NamedTuple, TypeAlias

from skws.results.result import Result

CAPACITY: Final = 5_000

Ending: TypeAlias = Literal["gone", "expired", "outranked"]
"""Why a result ended: a deletion retracted it, its window closed, or better results replaced it."""
Key: TypeAlias = tuple[str, str]
"""Query and id of a result."""


class ListOrder(StrEnum):
    """Orders of the list."""

    NEWEST = "newest"
    OLDEST = "oldest"
    SMALLEST = "smallest"
    BEST = "best"


@dataclass(slots=True, eq=False)
class ListedResult:
    """A row of the list. ``number`` counts arrivals.

    ``alike``: results of the same tuples, which differ only in parallel joins; the row shows the first.
    ``settled``: the user has moved since it ended. ``rank``: its rank if the list shows the best first.
    ``version`` changes with the results. ``due``: its earliest queued end.
    """

    number: int
    alike: list[Result]
    ending: Ending | None = None
    settled: bool = False
    rank: int | None = None
    version: int = 0
    due: float = inf
    _text: str = field(default="", repr=False)

    @property
    def result(self) -> Result:
        return self.alike[0]

    @property
    def query(self) -> str:
        """The name of its query."""
        return self.alike[0].name

    @property
    def text(self) -> str:
        """The text in which the filter searches, in lower case."""
        if not self._text:
            self._text = self.result.to_json().decode().casefold()
        return self._text

    def add(self, result: Result) -> None:
        self._change([*self.alike, result])

    def update(self, result: Result) -> None:
        """Show the present version of a result."""
        self._change([result if row_result.id == result.id else row_result for row_result in self.alike])

    def remove(self, result: Result) -> None:
        self._change([row_result for row_result in self.alike if row_result.id != result.id])

    def _change(self, results: list[Result]) -> None:
        self.alike = results
        self.version += 1
        self._text = ""


@dataclass(frozen=True, slots=True)
class ListSelection:
    """The rows that are listed, and their order.

    ``query``: the name of a query, None for all. ``words``: all of them must occur. ``network``: the text of
    a network. ``relation``: one in which keywords were found. ``live``: without ended results, except those
    that have ended since the user moved.
    """

    query: str | None = None
    words: str = ""
    network: str | None = None
    relation: str | None = None
    live: bool = False
    sort: ListOrder = ListOrder.NEWEST

    @property
    def filtered(self) -> bool:
        """True if it leaves out results of the query."""
        return bool(self.words.strip() or self.network or self.relation)


EVERYTHING: Final = ListSelection()


class BestResults(NamedTuple):
    """The best results of a query over the present rows.

    ``total``: their number; ``is_total``: False if there may be more. ``notes``: on rows that they hide.
    """

    results: Sequence[Result]
    total: int
    is_total: bool
    notes: Sequence[str] = ()

    @property
    def part(self) -> str:
        """The listed share, as in ``20 of 166,615``; empty if these are all."""
        listed_count = len(self.results)
        return "" if listed_count == self.total and self.is_total else f"{listed_count:,} of {self.of}"

    @property
    def of(self) -> str:
        return f"{self.total:,}" if self.is_total else "more"


class ResultBuffer:
    """The latest results of all queries. ``dropped`` counts the rows beyond ``capacity``.

    ``version`` changes with the rows. ``folding``: results that differ only in parallel joins share a row.
    Results of ``windowed_queries`` arrive when their windows end, and do not expire. The end of a dropped row
    is kept until its time comes, or until most ends are no longer needed.
    """

    def __init__(self, capacity: int = CAPACITY) -> None:
        self.capacity = capacity
        self.folding = False
        self.windowed_queries: frozenset[str] = frozenset()
        self.version = 0
        self._number = count(1)
        self.clear()

    def clear(self) -> None:
        """Drop everything, since the job has moved to another instant."""
        self.dropped = 0
        self.version += 1
        self._rows: dict[Key, ListedResult] = {}
        self._folded: dict[object, ListedResult] = {}
        self._order: OrderedDict[int, ListedResult] = OrderedDict()  # by number
        self._ended_rows: OrderedDict[int, ListedResult] = OrderedDict()  # in the order in which they ended
        self._ends: list[tuple[float, int]] = []  # (end, number)
        self._counts: Counter[str] = Counter()
        self._settled_counts: Counter[str] = Counter()

    def __len__(self) -> int:
        return len(self._order)

    @property
    def end_count(self) -> int:
        """The number of ends in memory."""
        return len(self._ends)

    def counts(self, *, live: bool) -> Mapping[str, int]:
        """The number of rows by the name of their query, without a filter."""
        return self._counts - self._settled_counts if live else self._counts

    def take(self, results: Iterable[Result]) -> int:
        """Process results and retractions in order; returns the number of new rows."""
        new = 0
        for result in results:
            row = self._rows.get((result.name, result.id))
            if result.op == "-":
                if row is not None and len(row.alike) > 1:
                    self._take_out(row, result)
                elif row is not None:
                    self._end(row, _ending_of(result))
                continue
            if row is not None and result.op == "~":
                self._update(row, result)
                continue
            if row is not None:
                self._take_out(row, result)
            new += self._add(result)
        self._trim()
        self.version += bool(new)
        return new

    def replace_results(self, query: str, results: Sequence[Result]) -> None:
        """Replace the results of a query; its former results leave at once."""
        new_ids = {result.id for result in results}
        for name, result_id in [key for key in self._rows if key[0] == query and key[1] not in new_ids]:
            row = self._rows[name, result_id]
            self._take_out(row, next(row_result for row_result in row.alike if row_result.id == result_id))
        for result in results:
            listed_row = self._rows.get((query, result.id))
            if listed_row is not None and listed_row.ending is None and result not in listed_row.alike:
                self._update(listed_row, result)
        self.take(result for result in results if (query, result.id) not in self._rows)

    def expire(self, event_time: float) -> None:
        """End the results whose end is at most ``event_time``, in seconds since the epoch."""
        while self._ends and self._ends[0][0] <= event_time:
            row = self._order.get(heapq.heappop(self._ends)[1])
            if row is None or row.ending is not None:
                continue
            row.due = inf
            end = row.result.end
            if end is not None and end <= event_time:
                self._end(row, "expired")
            else:
                self._expect_end(row)  # an update has moved it

    def settle(self) -> None:
        """The user has moved: ended results may now leave a list of live ones."""
        for row in self._ended_rows.values():
            self.version += not row.settled
            self._settled_counts[row.query] += not row.settled
            row.settled = True

    def drop_query(self, query: str) -> None:
        """Drop all rows of a query."""
        for row in [row for row in self._order.values() if row.query == query]:
            self._drop(row)

    def rows(self, selection: ListSelection = EVERYTHING) -> list[ListedResult]:
        """The rows of a selection. Best first, live rows get their ranks."""
        rows = list(reversed(self._order.values()))
        if selection.query is not None:
            rows = [row for row in rows if row.query == selection.query]
        if selection.live:
            rows = [row for row in rows if not row.settled]
        if selection.network is not None:
            rows = [row for row in rows if row.result.network == selection.network]
        if selection.relation is not None:
            rows = [row for row in rows if selection.relation in relations_of(row.result)]
        for word in selection.words.casefold().split():
            rows = [row for row in rows if word in row.text]
        match selection.sort:
            case ListOrder.OLDEST:
                rows.reverse()
            case ListOrder.SMALLEST:
                rows.sort(key=lambda row: len(row.result.tuples))
            case ListOrder.BEST:
                rows = _best_first(rows)
        return rows

    def _add(self, result: Result) -> bool:
        """Add a result; False if it joins an existing row."""
        fold = _fold(result) if self.folding and result.network else None
        row = self._folded.get(fold) if fold is not None else None
        self._counts[result.name] += row is None
        if row is not None:
            row.add(result)
            self._rows[result.name, result.id] = row
            self.version += 1
            return False
        row = ListedResult(next(self._number), [result])
        self._rows[result.name, result.id] = row
        if fold is not None:
            self._folded[fold] = row
        self._order[row.number] = row
        self._expect_end(row)
        return True

    def _take_out(self, row: ListedResult, result: Result) -> None:
        """Remove a result from its row, which disappears with its last result."""
        if len(row.alike) == 1:
            self._drop(row)
            return
        row.remove(result)
        del self._rows[result.name, result.id]
        self.version += 1

    def _update(self, row: ListedResult, result: Result) -> None:
        """Update a result in its row, which lives again if a late record has moved its end."""
        self._unfold(row)
        if row.ending is not None:
            del self._ended_rows[row.number]
            self._settled_counts[row.query] -= row.settled
            row.ending, row.settled = None, False
        row.update(result)
        self._expect_end(row)
        self.version += 1

    def _expect_end(self, row: ListedResult) -> None:
        """Queue the end of a row, unless an earlier end of it is queued: ``expire`` then looks again."""
        end = row.result.end
        if end is not None and end < row.due and row.query not in self.windowed_queries:
            row.due = end
            heapq.heappush(self._ends, (end, row.number))

    def _end(self, row: ListedResult, ending: Ending) -> None:
        if row.ending is None:
            row.ending = ending
            self._ended_rows[row.number] = row
            self._unfold(row)
            self.version += 1

    def _unfold(self, row: ListedResult) -> None:
        """Let no further result join the row."""
        if self.folding and row.result.network:
            fold = _fold(row.result)
            if self._folded.get(fold) is row:
                del self._folded[fold]

    def _drop(self, row: ListedResult) -> None:
        del self._order[row.number]
        self._ended_rows.pop(row.number, None)
        self._counts[row.query] -= 1
        self._settled_counts[row.query] -= row.settled
        for result in row.alike:
            del self._rows[result.name, result.id]
        if row.ending is None:
            self._unfold(row)
        self.version += 1

    def _trim(self) -> None:
        """Remove rows beyond the capacity: first ended rows, in the order in which they ended."""
        while len(self) > self.capacity:
            self._drop(next(iter((self._ended_rows or self._order).values())))
            self.dropped += 1
        if len(self._ends) > 4 * self.capacity:
            self._ends = [(row.due, number) for number, row in self._order.items() if row.due < inf]
            heapq.heapify(self._ends)


def relations_of(result: Result) -> Collection[str]:
    """The relations in which a result's keywords were found; for other results all of their relations."""
    relations = {result_tuple.relation for result_tuple in result.tuples if result_tuple.keywords}
    return relations or {result_tuple.relation for result_tuple in result.tuples}


def _fold(result: Result) -> object:
    """A value that is equal for results of the same tuples, joined in the same pairs."""
    names = [(result_tuple.relation, result_tuple.id) for result_tuple in result.tuples]
    pairs = {frozenset((names[left], names[right])) for left, right, _ in result.joins}
    return result.name, frozenset(names), frozenset(pairs)


def _ending_of(retraction: Result) -> Ending:
    """The reason why a result ended; a retraction among the best results has it."""
    change = retraction.place
    match None if change is None else change.reason:
        case "expired":
            return "expired"
        case "outranked":
            return "outranked"
    return "gone"


def _best_first(rows: list[ListedResult]) -> list[ListedResult]:
    """By score, in an order that never changes, ended rows last; ranks are among the live ones."""
    ranked_rows = sorted(rows, key=_order)
    living = count(1)
    for row in ranked_rows:
        row.rank = None if row.ending else next(living)
    return ranked_rows


def _order(row: ListedResult) -> tuple[bool, int, float, str]:
    """The order of candidates in ``skws.ranking.top``; results without a score come last."""
    score = row.result.score
    tier, value = (-1, 0.0) if score is None else score.rank
    return row.ending is not None, -tier, -value, row.result.id
