"""Forms results from the rows of meshes, and puts results and retractions in the order of output.

Output is ordered by time; at one time retractions come first, then by id.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from operator import itemgetter
from typing import Any, Final, NamedTuple, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt
from msgspec.structs import replace

from skws.queries.keywords.tuple_batch import natural_ends
from skws.ranking.judging import Scorer
from skws.results.assemble import Assembler, Reading, Readings, leading_lanes, put_together
from skws.results.directory import TupleDirectory
from skws.results.ids import Lanes, digest_of_join, lanes
from skws.results.model import Result
from skws.results.names import Named
from skws_mesh.columnar.columns import Flags, Ints, distinct, kinds_of
from skws_mesh.columnar.live import LiveTuples
from skws_mesh.columnar.store import NO_MEMBER, Partials
from skws_mesh.tree import Tree
from skws_purging.tuples import ALWAYS
from skws_schema.memory import check
from skws_schema.model import Schema
from skws_windows.window import FOREVER, MICROSECOND, Window, by_position

_OPERATOR: Final = (1 << 32) - 1
_EXACT: Final = 1 << 53
"""Integers up to there are exact as floating-point numbers."""
_READINGS: Final = 200_000  # of a network for a query; some hundred megabytes
MOST: Final = 32_768
"""Results formed at a time: about ten megabytes of Python objects."""

Keys: TypeAlias = npt.NDArray[np.integer[Any]]
RETRACTED, COMPLETED = 0, 1


class Event(NamedTuple):
    """A result at its place in the output.

    ``time`` orders deletions between two positions of a count window.
    """

    tick: int
    kind: int
    time: int
    id: str
    result: Result


class Completed(NamedTuple):
    """Completed results in the order of output, with their ticks."""

    ticks: list[int]
    results: list[Result]


Output: TypeAlias = Event | Completed


class FormedQuery(Protocol):
    """A query whose results are formed; operators are numbers of its networks."""

    @property
    def assembler(self) -> Assembler:
        """What forms single results."""

    def network(self, operator: int) -> Tree:
        """The candidate network of results."""

    def reading(self, operator: int) -> Reading:
        """How they read."""


def completed(tick: int, result: Result) -> Event:
    return Event(tick, COMPLETED, 0, result.id, result)


def retracted(tick: int, time: int, result: Result) -> Event:
    return Event(tick, RETRACTED, time, result.id, result)


def one_by_one(output: Iterable[Output]) -> Iterator[Event]:
    """The output as events."""
    for each in output:
        if isinstance(each, Completed):
            yield from map(completed, each.ticks, each.results)
        else:
            yield each


def in_order(output: Iterable[Output]) -> Iterator[Result]:
    """The results of the output, sorted."""
    match list(output):
        case [Completed(results=results)]:  # as is usual, and half of the work where results are many
            return iter(results)
        case several:
            return (e.result for e in sorted(one_by_one(several), key=itemgetter(0, 1, 2, 3)))


class ResultEmitter:
    """Forms the results of ``queries``, whose members are ``live`` tuples."""

    def __init__(
        self,
        queries: Callable[[int], FormedQuery],
        live: LiveTuples,
        known: TupleDirectory,
        scoring: Scorer,
        window: Window,
        schema: Schema,
    ) -> None:
        self._joins = lanes(digest_of_join(join.name) for join in schema.joins)
        self._queries = queries
        self._readings = Readings(self._reading)  # of networks: query and operator in one
        self._live = live
        self._known = known
        self._scoring = scoring
        self._window = window

    def forget_networks(self) -> None:
        """Forget how networks read, as those of removed queries; others are read again when needed."""
        self._readings = Readings(self._reading)

    def events(self, found: list[Partials], snapshot: bool = False) -> Iterator[Event]:
        """Results as they are completed, and retractions of those whose early end is known."""
        return one_by_one(self.output(found, snapshot))

    def output(self, found: list[Partials], snapshot: bool = False) -> Iterator[Output]:
        """As ``events``, many at a time."""
        for results in found:
            yield from self._completed([results], snapshot)
            for row in results.taken(self._ends_early(results)).rows():
                yield self.retraction(*row)

    def pieces(
        self, found: list[Partials], events: list[Event], snapshot: bool = False
    ) -> Iterator[list[Output]]:
        """As ``output``, with other events, in consecutive pieces of the output.

        Pieces are formed lazily; tuples must keep their slots until the last one.
        """
        if len(self._readings) > _READINGS:
            self.forget_networks()
        if sum(map(len, found)) + len(events) <= MOST:  # as is usual
            yield [*events, *self.output(found, snapshot)]
            return
        early = [results.taken(self._ends_early(results)) for results in found]
        ticks = [each.start for each in found] + [each.end for each in early]
        ticks.append(np.array([event.tick for event in events], dtype=np.int64))
        for *rows, others in in_ranges(ticks):
            check()
            some = [each.taken(at) for each, at in zip(found, rows, strict=False)]
            gone = [each.taken(at) for each, at in zip(early, rows[len(found) :], strict=True)]
            retracted = [self.retraction(*row) for each in gone for row in each.rows()]
            yield from self._piece(some, [*map(events.__getitem__, others.tolist()), *retracted], snapshot)

    def _piece(self, found: list[Partials], events: list[Event], snapshot: bool) -> Iterator[list[Output]]:
        """Few results; or many of one tick, after its retractions, in order of their ids."""
        if sum(map(len, found)) <= MOST:
            yield [*events, *self._completed(found, snapshot)]
            return
        yield list(events)
        for rows in in_ranges(list(map(self._leading_lanes, found))):
            check()
            some = [each.taken(at) for each, at in zip(found, rows, strict=True)]
            yield list(self._completed(some, snapshot))

    def _completed(self, found: list[Partials], snapshot: bool) -> Iterator[Output]:
        for unsorted in found:
            results = unsorted.taken(np.argsort(unsorted.start, kind="stable"))
            natural, time = self._natural(results.members)
            ends = np.full(len(results), FOREVER) if by_position(self._window) else natural
            made, ids = self._together(results, time, ends, snapshot=snapshot)
            if len(self._scoring):
                made = self._judged(results, natural, made, snapshot=snapshot)
            order = _by_tick_and_id(results.start, ids, made)
            if order is None:
                yield from map(completed, results.start.tolist(), made)
            else:
                yield Completed(results.start[order].tolist(), [made[place] for place in order.tolist()])

    def _ends_early(self, results: Partials) -> Flags:
        """Which of the results have one of their tuples deleted."""
        parts = [part.end < self._natural(part.members)[0] for part in results.parts(MOST)]
        return np.concatenate([np.empty(0, dtype=bool), *parts])

    def results(self, found: Partials, starts: Ints, ends: Ints) -> list[Result]:
        """Rows as results with given lifespans; ALWAYS, FOREVER where not known."""
        return self._together(found, starts, ends, snapshot=False)[0]

    def _together(
        self, found: Partials, starts: Ints, ends: Ints, *, snapshot: bool
    ) -> tuple[list[Result], Lanes]:
        """As ``results``, with numbers in the order of their ids."""
        spans = _seconds(starts, starts != ALWAYS), _seconds(ends, ends < FOREVER)
        return put_together(self._readings, *self._numbered(found), self._joins, *spans, snapshot=snapshot)

    def _leading_lanes(self, found: Partials) -> Lanes:
        """Numbers in the order of the ids that results will have."""
        parts = (
            leading_lanes(self._readings, *self._numbered(part), self._joins) for part in found.parts(MOST)
        )
        return np.concatenate([np.empty(0, dtype=np.uint64), *parts])

    def _numbered(self, found: Partials) -> tuple[Ints, Ints, list[Named]]:
        """The reading of each result by number, its members as numbers, and the tuples that have these."""
        numbered = np.zeros(len(self._live) + 1, dtype=np.int64)
        numbered[found.members] = 1  # NO_MEMBER, being -1, takes the last place
        slots = np.flatnonzero(numbered[:-1])
        numbered[slots] = np.arange(len(slots))
        networks = found.query << 32 | found.operator
        some, kinds = kinds_of(networks)
        which = self._readings.numbers(networks[some].tolist()).take(kinds)
        return which, numbered.take(found.members), self._known.names(slots)

    def _reading(self, network: int) -> Reading:
        return self._queries(network >> 32).reading(network & _OPERATOR)

    def _judged(
        self, results: Partials, natural: Ints, made: list[Result], *, snapshot: bool
    ) -> list[Result]:
        """Results with the scores that their queries ask for."""
        trees = [self.tree(row) for row in results.rows()]
        judged = self._scoring.of(results, trees, natural, snapshot=snapshot)
        return [
            result if score is None else score.given_to(result)
            for result, score in zip(made, judged, strict=True)
        ]

    def natural_end(self, members: Ints) -> Ints:
        """Ends that results would have without deletions."""
        return self._natural(members)[0]

    def tree(self, row: tuple[int, int, list[int]]) -> Tree:
        """The network that a result is of."""
        return self._queries(row[0]).network(row[1])

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
        standing = self._queries(query)
        members = [self._known.member(slot) for slot in slots if slot >= 0]
        times = [member.time for member in members if not member.static]
        named = [self._known.name(slot) for slot in slots if slot >= 0]
        tree = standing.network(operator)
        result = standing.assembler.result("-", tree, named, max(times, default=None), time)
        tick = time if tick is None else tick
        return retracted(tick, time, replace(result, tick=tick) if query in self._scoring else result)


def _by_tick_and_id(ticks: Ints, ids: Lanes, made: Sequence[Result]) -> Ints | None:
    """The order by tick, then by id; None if some ids are too similar to compare."""
    instant = np.cumsum(np.diff(ticks, prepend=ticks[:1]) != 0)
    bits = max(1, int(instant.max(initial=0)).bit_length())
    codes = instant.view(np.uint64) << np.uint64(64 - bits) | ids >> np.uint64(bits)
    order = np.argsort(codes, kind="stable")
    codes = codes[order]
    # Several queries have the same result; they stay in their order.
    alike = np.flatnonzero(codes[1:] == codes[:-1])
    pairs = zip(order[alike].tolist(), order[alike + 1].tolist(), strict=True)
    return order if all(made[one].id == made[other].id for one, other in pairs) else None


def _seconds(ticks: Ints, known: Flags) -> list[float | None]:
    """Microseconds as seconds, to the last bit as Python divides them; None where not known."""
    if known.all() and len(ticks) and ticks.min() >= -_EXACT and ticks.max() <= _EXACT:
        exact: list[float | None] = (ticks / MICROSECOND).tolist()
        return exact
    pairs = zip(ticks.tolist(), known.tolist(), strict=True)
    return [tick / MICROSECOND if it_is else None for tick, it_is in pairs]


def in_ranges(keys: Sequence[Keys], most: int = MOST) -> Iterator[list[Ints]]:
    """Cut keys into ascending ranges; for each range, where its keys are in each array.

    A range has at most ``most`` keys in all, or a single key that occurs more often.
    """
    bounds = _bounds(np.sort(np.concatenate(keys)), most)
    orders = [np.argsort(each, kind="stable") for each in keys]
    cuts = [
        np.searchsorted(each[order], bounds, side="right").tolist()
        for each, order in zip(keys, orders, strict=True)
    ]
    begins = (0,) * len(keys)
    for ends in zip(*cuts, strict=True):
        yield [order[begin:end] for order, begin, end in zip(orders, begins, ends, strict=True)]
        begins = ends


def _bounds(ordered: Keys, most: int) -> Keys:
    """The last key of each range."""
    every = ordered[most - 1 :: most]
    before = np.searchsorted(ordered, every, side="left") - 1
    return distinct(np.concatenate([every, ordered[before[before >= 0]], ordered[-1:]]))
