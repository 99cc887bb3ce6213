"""Forms results from the rows of meshes, and puts results and retractions in the order of output.

Output is ordered by time; at one time retractions come first, then by id.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from operator import attrgetter, itemgetter
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
from msgspec.structs import replace

from skws.keywords.plan import Plan
from skws.queries.keywords.result_source import Networks, ResultSource
from skws.ranking.scoring import Scoring
from skws.results.names import Lanes, digest_of_join, lanes, same_shown
from skws.results.result import Result
from skws.results.result_builder import (
    Interpretations,
    NetworkTemplate,
    NetworkTemplates,
    ResultBuilder,
    ResultColumns,
    ResultLabels,
    Seconds,
)
from skws.store.directory import TupleDirectory
from skws.store.tuple_batch import natural_ends
from skws_mesh.columnar.columns import Flags, Ints, distinct, kinds_of
from skws_mesh.columnar.live import LiveTuples
from skws_mesh.columnar.store import NO_MEMBER, Partials
from skws_mesh.tree import Tree
from skws_purging.lifespans import ALWAYS
from skws_schema.budgets import check
from skws_schema.model import Schema
from skws_windows.window import FOREVER, MICROSECOND, Window, by_position

_OPERATOR: Final = (1 << 32) - 1
_EXACT: Final = 1 << 53
"""Integers up to this one are exact as floating-point numbers."""
MOST: Final = 32_768
"""Results formed at a time: about ten megabytes of Python objects."""

_PLAN: Final = attrgetter("plan")
_MESH: Final = attrgetter("mesh")

Keys: TypeAlias = npt.NDArray[np.integer[Any]]
RETRACTED, COMPLETED = 0, 1


class Event(NamedTuple):
    """A result at its position in the output.

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


def completed(tick: int, result: Result) -> Event:
    return Event(tick, COMPLETED, 0, result.id, result)


def retracted(tick: int, time: int, result: Result) -> Event:
    return Event(tick, RETRACTED, time, result.id, result)


def one_by_one(output: Iterable[Output]) -> Iterator[Event]:
    for piece in output:
        if isinstance(piece, Completed):
            yield from map(completed, piece.ticks, piece.results)
        else:
            yield piece


def in_order(output: Iterable[Output]) -> list[Result]:
    """The results of the output, sorted."""
    match list(output):
        case [Completed(results=results)]:  # the usual case; half of the work if there are many results
            return results
        case several:
            return [event.result for event in events_in_order(several)]


def events_in_order(output: Iterable[Output]) -> list[Event]:
    """The output as events, sorted."""
    return sorted(one_by_one(output), key=itemgetter(0, 1, 2, 3))


class ResultEmitter:
    """Forms the results of ``queries``, whose members are ``live`` tuples."""

    def __init__(
        self,
        queries: Callable[[int], ResultSource],
        live: LiveTuples,
        directory: TupleDirectory,
        scoring: Scoring,
        window: Window,
        schema: Schema,
    ) -> None:
        self._joins = lanes(digest_of_join(join.name) for join in schema.joins)
        self._queries = queries
        self._templates = NetworkTemplates(schema)
        self._forget_queries()
        self._live = live
        self._directory = directory
        self._scoring = scoring
        self._window = window

    def forget_query(self, query: int) -> None:
        """Forget a removed query.

        When half of the queries are removed, all are forgotten, and read again if needed.
        """
        self._labels.forget(query)
        self._removed_count += 1
        if 2 * self._removed_count >= len(self._labels):
            self._forget_queries()

    def _forget_queries(self) -> None:
        self._removed_count = 0
        self._templates.clear()
        self._meshes: list[Networks] = []
        self._numbers: dict[int, int] = {}  # of meshes, by identity
        self._labels = ResultLabels()
        self._interpretations = Interpretations()  # of networks: a mesh's number and operator in one

    def events(self, partials: list[Partials], snapshot: bool = False) -> Iterator[Event]:
        """Results as they are completed, and retractions of those whose early end is known."""
        return one_by_one(self.output(partials, snapshot))

    def output(self, partials: list[Partials], snapshot: bool = False) -> Iterator[Output]:
        """As ``events``, with many results in each piece."""
        for rows in partials:
            yield from self._completed([rows], snapshot)
            yield from self.retractions(rows.take(self._ends_early(rows)))

    def pieces(
        self, partials: list[Partials], events: list[Event], snapshot: bool = False
    ) -> Iterator[list[Output]]:
        """As ``output``, with other events, in consecutive pieces of the output.

        Pieces are formed lazily; tuples must keep their slots until the last one.
        """
        if sum(map(len, partials)) + len(events) <= MOST:  # the usual case
            yield [*events, *self.output(partials, snapshot)]
            return
        early_ends = [each.take(self._ends_early(each)) for each in partials]
        ticks = [part.start for part in partials] + [part.end for part in early_ends]
        ticks.append(np.array([event.tick for event in events], dtype=np.int64))
        for *row_lists, event_rows in in_ranges(ticks):
            check()
            piece_rows = [part.take(positions) for part, positions in zip(partials, row_lists, strict=False)]
            early_rows = [
                part.take(positions)
                for part, positions in zip(early_ends, row_lists[len(partials) :], strict=True)
            ]
            retractions = [event for part in early_rows for event in self.retractions(part)]
            yield from self._piece(
                piece_rows, [*map(events.__getitem__, event_rows.tolist()), *retractions], snapshot
            )

    def _piece(self, partials: list[Partials], events: list[Event], snapshot: bool) -> Iterator[list[Output]]:
        """One piece of few results, or pieces of many results of one tick, after retractions, by id."""
        if sum(map(len, partials)) <= MOST:
            yield [*events, *self._completed(partials, snapshot)]
            return
        yield list(events)
        for rows in in_ranges(list(map(self._leading_lanes, partials))):
            check()
            piece_rows = [part.take(positions) for part, positions in zip(partials, rows, strict=True)]
            yield list(self._completed(piece_rows, snapshot))

    def _completed(self, partials: list[Partials], snapshot: bool) -> Iterator[Output]:
        for part in partials:
            builder = self._builder(part)
            order = by_tick_and_id(part.start, builder.ids)
            rows = np.arange(len(part)) if order is None else order
            window_ends, times = (each.take(rows) for each in self._window_ends(part.members))
            ends = np.full(len(part), FOREVER) if by_position(self._window) else window_ends
            results = builder.results("+", rows, *_lifespans(times, ends), snapshot=snapshot)
            if len(self._scoring):
                results = self._scored(part.take(rows), window_ends, results, snapshot=snapshot)
            ticks = part.start.take(rows).tolist()
            if order is None:
                yield from map(completed, ticks, results)
            else:
                yield Completed(ticks, results)

    def _ends_early(self, results: Partials) -> Flags:
        """Flags the results one of whose tuples is deleted."""
        tuples = self._live.tuples
        if results.members.size > len(self._live):  # then it is faster to check all tuples than all members
            natural = natural_ends(self._window, tuples.start)
            if (tuples.end >= np.where(tuples.start == ALWAYS, FOREVER, natural)).all():  # the usual case
                return np.zeros(len(results), dtype=bool)
        parts = [part.end < self._window_ends(part.members)[0] for part in results.parts(MOST)]
        return np.concatenate([np.empty(0, dtype=bool), *parts])

    def results(self, rows: Partials, starts: Ints, ends: Ints) -> list[Result]:
        """Rows as results with given lifespans; ALWAYS, FOREVER if unknown."""
        return self._builder(rows).results("+", np.arange(len(rows)), *_lifespans(starts, ends))

    def _leading_lanes(self, rows: Partials) -> Lanes:
        """Numbers in the order of the ids that results will have."""
        parts = (self._builder(part).ids[0] for part in rows.parts(MOST))
        return np.concatenate([np.empty(0, dtype=np.uint64), *parts])

    def _builder(self, rows: Partials) -> ResultBuilder:
        return ResultBuilder(self._rows(rows), self._interpretations, self._labels, self._joins)

    def _rows(self, partials: Partials) -> ResultColumns:
        slots, members = self._members(partials.members)
        queries = self._labels.places(partials.query, self._look_up_queries)
        networks = self._labels.meshes(queries) << 32 | partials.operator
        first_rows, kinds = kinds_of(networks)
        numbers = self._interpretations.numbers(networks[first_rows].tolist(), self._template).take(kinds)
        return ResultColumns(numbers, queries, members, self._directory.names(slots))

    def _members(self, members: Ints) -> tuple[Ints, Ints]:
        """The slots of members, each once, and the members as numbers of these; 0 for NO_MEMBER."""
        if members.size < len(self._live) >> 4:
            slots = distinct(members[members != NO_MEMBER])
            return slots, np.searchsorted(slots, members)
        numbered = np.zeros(len(self._live) + 1, dtype=np.int64)
        numbered[members] = 1  # NO_MEMBER, being -1, takes the last place
        slots = np.flatnonzero(numbered[:-1])
        numbered[slots] = np.arange(len(slots))
        numbered[-1] = 0
        return slots, numbered.take(members)

    def _look_up_queries(self, queries: list[int]) -> tuple[list[Plan], list[int]]:
        # By map, since a Python loop takes several times as long, and there may be very many queries.
        sources = list(map(self._queries, queries))
        meshes = list(map(_MESH, sources))
        for key, mesh in dict(zip(map(id, meshes), meshes, strict=True)).items():
            if self._numbers.setdefault(key, len(self._meshes)) == len(self._meshes):
                self._meshes.append(mesh)
        return list(map(_PLAN, sources)), list(map(self._numbers.__getitem__, map(id, meshes)))

    def _template(self, network: int) -> NetworkTemplate:
        return self._templates.of(self._meshes[network >> 32].network(network & _OPERATOR))

    def _scored(
        self, rows: Partials, window_ends: Ints, results: list[Result], *, snapshot: bool
    ) -> list[Result]:
        """Results with the scores that their queries require."""
        trees = [self.tree(row) for row in rows.rows()]
        scores = self._scoring.of(rows, trees, window_ends, snapshot=snapshot)
        return [
            result if score is None else score.given_to(result)
            for result, score in zip(results, scores, strict=True)
        ]

    def natural_end(self, members: Ints) -> Ints:
        """Ends that results would have without deletions."""
        return self._window_ends(members)[0]

    def tree(self, row: tuple[int, int, list[int]]) -> Tree:
        return self._queries(row[0]).mesh.network(row[1])

    def _window_ends(self, members: Ints) -> tuple[Ints, Ints]:
        """Ends that results would have without deletions, and the times at which they began."""
        columns = np.ascontiguousarray(members.T)  # NumPy reduces long rows many times as fast as short ones
        starts = self._live.tuples.start.take(columns)
        streaming = (columns != NO_MEMBER) & (starts != ALWAYS)
        first_starts = np.where(streaming, starts, FOREVER).min(axis=0)
        ends = np.where(first_starts == FOREVER, FOREVER, natural_ends(self._window, first_starts))
        return ends, np.where(streaming, self._directory.times.take(columns), ALWAYS).max(axis=0)

    def starts(self, members: Ints) -> Ints:
        """The ticks at which results began."""
        starts = self._live.tuples.start.take(members)
        latest: Ints = np.where(members == NO_MEMBER, ALWAYS, starts).max(axis=1, initial=ALWAYS)
        return latest

    def retractions(self, rows: Partials) -> list[Event]:
        """The retractions of results one of whose tuples was deleted."""
        if not len(rows):
            return []
        times = self._times_of_ends(rows) if by_position(self._window) else rows.end
        return self.retractions_at(rows, times, rows.end)

    def _times_of_ends(self, rows: Partials) -> Ints:
        """The times of the records that ended results, if ticks are not times."""
        slots, members = self._members(rows.members)
        end_times = self._directory.ended_at(slots)
        times = np.array([FOREVER if time is None else time for time in end_times], dtype=np.int64)
        ends = self._live.tuples.end.take(slots)
        is_first = (ends.take(members) == rows.end[:, None]) & (rows.members != NO_MEMBER)
        earliest: Ints = np.where(is_first, times.take(members), FOREVER).min(axis=1)
        return earliest

    def retractions_at(self, rows: Partials, times: Ints, ticks: Ints) -> list[Event]:
        """The retractions of results at event times; ``ticks`` are their positions in the output."""
        window_ends, starts = self._window_ends(rows.members)
        until = np.full(len(rows), FOREVER) if by_position(self._window) else window_ends
        retractions = self._builder(rows).results(
            "-",
            np.arange(len(rows)),
            *_lifespans(starts, times),
            until=_lifespans(starts, until)[1],
        )
        if len(self._scoring):
            retractions = [
                replace(result, tick=tick) if query in self._scoring else result
                for query, result, tick in zip(rows.query.tolist(), retractions, ticks.tolist(), strict=True)
            ]
        return list(map(retracted, ticks.tolist(), times.tolist(), retractions))


def by_tick_and_id(ticks: Ints, ids: Lanes) -> Ints | None:
    """The order by tick, then by id; None if some ids are too similar to compare."""
    # One integer has the number of the tick, the leading bits of the id, and the row: several queries may
    # have the same result, and stay in order. NumPy sorts integers in a tenth of the time of an argsort.
    instant = np.searchsorted(distinct(ticks), ticks)
    tick_bits, row_bits = (
        max(1, int(largest).bit_length()) for largest in (instant.max(initial=0), len(ticks))
    )
    codes = (ids[0] >> np.uint64(tick_bits)) & ~np.uint64((1 << row_bits) - 1)
    codes |= instant.view(np.uint64) << np.uint64(64 - tick_bits)
    codes |= np.arange(len(ticks), dtype=np.uint64)
    codes.sort()
    order = (codes & np.uint64((1 << row_bits) - 1)).view(np.int64)
    codes >>= np.uint64(row_bits)
    equal_rows = np.flatnonzero(codes[1:] == codes[:-1])
    return order if same_shown(ids, order[equal_rows], order[equal_rows + 1]) else None


def _lifespans(starts: Ints, ends: Ints) -> tuple[Seconds, Seconds]:
    """Lifespans as results show them; ALWAYS, FOREVER if unknown."""
    return _seconds(starts, starts != ALWAYS), _seconds(ends, ends < FOREVER)


def _seconds(ticks: Ints, is_known: Flags) -> Seconds:
    """Microseconds as seconds, equal to Python's division to the last bit; None if unknown."""
    if is_known.all() and len(ticks) and ticks.min() >= -_EXACT and ticks.max() <= _EXACT:
        seconds: list[float | None] = (ticks / MICROSECOND).tolist()
        return seconds
    pairs = zip(ticks.tolist(), is_known.tolist(), strict=True)
    return [tick / MICROSECOND if flag else None for tick, flag in pairs]


def in_ranges(keys: Sequence[Keys], most: int = MOST) -> Iterator[list[Ints]]:
    """Cut keys into ascending ranges; yields for each range the positions of its keys in each array.

    A range has at most ``most`` keys in all, or a single key that occurs more often.
    """
    bounds = _bounds(np.sort(np.concatenate(keys)), most)
    ranges = [np.searchsorted(bounds, each) for each in keys]
    # By 16 bits NumPy sorts in linear time.
    kind = np.uint16 if len(bounds) <= 1 << 16 else np.int64
    orders = [np.argsort(each.astype(kind), kind="stable") for each in ranges]
    cuts = [np.cumsum(np.bincount(each, minlength=len(bounds))).tolist() for each in ranges]
    begins = (0,) * len(keys)
    for ends in zip(*cuts, strict=True):
        yield [order[begin:end] for order, begin, end in zip(orders, begins, ends, strict=True)]
        begins = ends


def _bounds(sorted_keys: Keys, most: int) -> Keys:
    """The last key of each range."""
    last_keys = sorted_keys[most - 1 :: most]
    positions = np.searchsorted(sorted_keys, last_keys, side="left") - 1
    return distinct(np.concatenate([last_keys, sorted_keys[positions[positions >= 0]], sorted_keys[-1:]]))
