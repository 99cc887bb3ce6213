"""What live tuples say about keywords at any instant, in texts and lengths; how many share joined values."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple, Protocol, TypeAlias

import numpy as np

from skws.data.batch import Rows
from skws.keywords.analysis import chunks
from skws.keywords.chunk_table import ChunkMemory, hopeless
from skws.keywords.match import Matcher, occurrences
from skws.keywords.query import Phrase, Slot
from skws_mesh.columnar.columns import NOTHING, Ints
from skws_mesh.columnar.hash_index import together
from skws_mesh.columnar.live import LiveTuples
from skws_mesh.columnar.store import Table
from skws_purging.lifespans import ALWAYS
from skws_schema.model import Row, Schema
from skws_windows.window import FOREVER


class OccurrenceCounts:
    """The counts of ``highlight.occurrences`` for the slots of a query in the columns of a schema."""

    def __init__(self, slots: Sequence[Slot]) -> None:
        self._slots = slots
        self._columns: dict[tuple[int, int], list[_SlotCounts | None]] = {}
        self._shared: dict[Slot, _SlotCounts] = {}

    def of(self, relation: int, column: int, text: str) -> tuple[int, ...]:
        """How often each slot's words, phrases and prefixes begin in a value."""
        tables = self._columns.get((relation, column))
        if tables is None:
            tables = [self._table(slot, relation, column) for slot in self._slots]
            self._columns[relation, column] = tables
        return tuple(0 if table is None else table.count(text) for table in tables)

    def _table(self, slot: Slot, relation: int, column: int) -> _SlotCounts | None:
        """The counts of a slot in a column; None if it cannot look there."""
        here = tuple(each for each in slot.alternatives if each.applies(relation, column))
        if not here:
            return None
        there = Slot(slot.text, here)
        if there not in self._shared:
            self._shared[there] = _SlotCounts(there, relation, column)
        return self._shared[there]


class _SlotCounts(ChunkMemory[int]):
    """From chunks to counts; a phrase may reach over several of them, so its texts are read whole."""

    def __init__(self, slot: Slot, relation: int, column: int) -> None:
        super().__init__()
        self._at = slot, relation, column
        self._whole = any(isinstance(each, Phrase) for each in slot.alternatives)
        self._hopeless = hopeless(slot.alternatives)
        self._analyzer = slot.alternatives[0].analyzer

    def count(self, text: str) -> int:
        if self._whole:
            return occurrences(*self._at, text)
        return sum(map(self.__getitem__, chunks(text, self._analyzer)))

    def look_up(self, chunk: str) -> int:
        return 0 if self._hopeless(chunk) else occurrences(*self._at, chunk)


class TickSums:
    """Numbers added at ticks, and their sums up to a tick; ``width`` numbers at a time.

    There is one entry a tick. What is added in order of ticks is appended; else all is sorted anew.
    """

    def __init__(self, width: int) -> None:
        self._base = np.zeros(width, dtype=np.int64)  # sums of forgotten ticks
        self._table = self._empty()  # ticks, and the sums up to and with each

    def __len__(self) -> int:
        return self._table.size

    def add(self, ticks: Ints, values: Ints) -> None:
        """``values`` has a row for each tick."""
        if not len(ticks):
            return
        order = np.argsort(ticks, kind="stable")
        ticks, values = ticks[order], values[order]
        known, sums = self._table.columns()
        if len(known) and ticks[0] < known[-1]:
            ticks = np.concatenate([known, ticks])
            values = np.concatenate([np.diff(sums, axis=0, prepend=self._base[None]), values])
            order = np.argsort(ticks, kind="stable")
            ticks, values = ticks[order], values[order]
            self._table, sums = self._empty(), sums[:0]
        last = sums[-1] if len(sums) else self._base
        ends = np.append(np.flatnonzero(np.diff(ticks)), len(ticks) - 1)  # of what is added at one tick
        ticks, totals = ticks.take(ends), np.cumsum(values, axis=0)[ends] + last
        if len(sums) and ticks[0] == known[-1]:
            sums[-1] = totals[0]
            ticks, totals = ticks[1:], totals[1:]
        self._table.append((ticks, totals))

    def at(self, ticks: Ints) -> Ints:
        """The sums up to and with each tick, a row each. None of them may be forgotten."""
        known, known_sums = self._table.columns()
        if not len(known):
            return np.tile(self._base, (len(ticks), 1))
        places = np.searchsorted(known, ticks, side="right")
        sums: Ints = np.where(places[:, None] > 0, known_sums[places - 1], self._base)
        return sums

    def forget(self, tick: int) -> None:
        """Nobody will ask for earlier ticks."""
        known, sums = self._table.columns()
        done = int(np.searchsorted(known, tick, side="right"))
        if done:
            self._base = sums[done - 1].copy()
            self._table.keep(np.arange(len(known)) >= done)

    def _empty(self) -> Table:
        return Table((NOTHING, np.empty((0, len(self._base)), dtype=np.int64)))


class LiveSums:
    """Sums over the tuples that are alive at an instant, from their lifespans."""

    def __init__(self, width: int) -> None:
        self._come = TickSums(width)
        self._gone = TickSums(width)

    def add(self, start: Ints, end: Ints, values: Ints) -> None:
        """Tuples, and what each adds to the sums while it lives."""
        self._come.add(start, values)
        self._go(end, values)

    def end(self, former: Ints, end: Ints, values: Ints) -> None:
        """Tuples end earlier than they were said to."""
        self._go(former, -values)
        self._go(end, values)

    def at(self, ticks: Ints) -> Ints:
        """A row of sums for each tick."""
        sums: Ints = self._come.at(ticks) - self._gone.at(ticks)
        return sums

    def forget(self, tick: int) -> None:
        self._come.forget(tick)
        self._gone.forget(tick)

    def _go(self, ticks: Ints, values: Ints) -> None:
        ever = ticks < FOREVER
        self._gone.add(ticks[ever], values[ever])


Place: TypeAlias = tuple[int, int]
"""A relation and one of its columns, by position; NAME stands for its own name and those of attributes."""
NAME: Final = -1
HEADING: Final = "heading"
"""The place of a keyword that is a name in the schema, in the explanation of a score."""
_REMEMBERED: Final = 1 << 14
"""Texts of each query: of 100,000 a query holds 40 MB, and updates take as long."""


class Carriers(NamedTuple):
    """The live tuples with keywords of a query in a place.

    ``often``: for each slot a row with how often each keyword stands there; upper bounds unless ``exact``.
    ``lengths``: of texts.
    """

    slots: Ints
    often: Ints
    lengths: Ints
    exact: bool

    def at(self, slot: int) -> tuple[list[int], int]:
        """How often each keyword stands in the text of a tuple, and its length."""
        place = int(np.searchsorted(self.slots, slot))
        if place == len(self.slots) or self.slots[place] != slot:
            return [0] * self.often.shape[1], 0
        return self.often[place].tolist(), int(self.lengths[place])


class LiveTexts(NamedTuple):
    """The texts of one place that are alive: how many, and how many characters in all."""

    number: int
    characters: int


class TableTexts(Protocol):
    """A table that is counted as a whole. ``texts[c]``: the texts of a column, and their characters."""

    @property
    def texts(self) -> Mapping[int, tuple[int, int]]: ...

    def __len__(self) -> int: ...


class TextStatistics:
    """The texts of all searched attributes."""

    def __init__(self, schema: Schema) -> None:
        self._schema = schema
        self._whole: set[int] = set()  # relations that are counted already
        self._sums: dict[Place, LiveSums] = {
            (relation, column): LiveSums(2)
            for relation, described in enumerate(schema.relations)
            for column in (*described.search_columns, NAME)
        }

    def add_tables(self, tables: Mapping[int, TableTexts]) -> None:
        """Tables by relation; their rows do not count once more when they come."""
        always, forever = np.array([ALWAYS]), np.array([FOREVER])
        for relation, table in tables.items():
            self._whole.add(relation)
            for column, totals in (*table.texts.items(), (NAME, (len(table), 0))):
                self._sums[relation, column].add(always, forever, np.array([totals], dtype=np.int64))

    def add(self, rows: Rows, start: Ints, end: Ints) -> None:
        """Tuples, with their lifespans."""
        for place, mine, values in self._lengths(rows):
            self._sums[place].add(start[mine], end[mine], values)

    def end(self, rows: Rows, former: Ints, end: Ints) -> None:
        """Tuples end earlier."""
        for place, mine, values in self._lengths(rows):
            self._sums[place].end(former[mine], end[mine], values)

    def forget(self, tick: int) -> None:
        """Nobody will ask for earlier ticks."""
        for sums in self._sums.values():
            sums.forget(tick)

    def at(self, place: Place, tick: int) -> LiveTexts:
        return LiveTexts(*self._sums[place].at(np.array([tick]))[0].tolist())

    def _lengths(self, rows: Rows) -> Iterator[tuple[Place, Ints, Ints]]:
        """As ``text_lengths``, with (1, length) of each, and without what is counted already."""
        for place, mine, lengths in text_lengths(self._schema, rows):
            if place[0] not in self._whole:
                yield place, mine, np.stack([np.ones(len(lengths), dtype=np.int64), lengths], axis=1)


def text_lengths(schema: Schema, rows: Rows) -> Iterator[tuple[Place, Ints, Ints]]:
    """For each place: the numbers of the rows that are not NULL there, and their lengths in characters."""
    for block, mine, at in rows.by_block():
        for column in schema.relations[block.relation].search_columns:
            there = block.present(column).take(at)
            yield (block.relation, column), mine[there], block.texts_at(column, at).lengths()[there]
        yield (block.relation, NAME), mine, np.zeros(len(mine), dtype=np.int64)


class Keywords:
    """In how many live texts the keywords of one query stand."""

    def __init__(self, matcher: Matcher) -> None:
        self._query = matcher.query
        self._occurrences = OccurrenceCounts(matcher.query.slots)
        self._matcher = matcher
        self._relations = matcher.schema.relations
        self._sums: dict[Place, LiveSums] = {}
        self._remembered: dict[tuple[int, int, str], tuple[int, ...]] = {}

    def add(self, found: Iterator[tuple[int, Row]], start: Ints, end: Ints) -> None:
        self._each(found, lambda sums, mine, values: sums.add(start[mine], end[mine], values))

    def add_flags(self, place: Place, start: Ints, end: Ints, flags: Ints) -> None:
        """Tuples with keywords in a place; ``flags``: a row for each, with 1 for a keyword that is there."""
        self._sums.setdefault(place, LiveSums(len(self._query.slots))).add(start, end, flags)

    def end(self, found: Iterator[tuple[int, Row]], former: Ints, end: Ints) -> None:
        """Tuples, with keywords or without, end earlier."""
        chosen = ((r, row if self._matcher.bitmap(r, row) > 0 else None) for r, row in found)
        self._each(chosen, lambda sums, mine, values: sums.end(former[mine], end[mine], values))

    def forget(self, tick: int) -> None:
        for sums in self._sums.values():
            sums.forget(tick)

    def containing(self, place: Place, slot: int, tick: int) -> int:
        """How many texts of a place that are alive at a tick contain a keyword."""
        sums = self._sums.get(place)
        return 0 if sums is None else int(sums.at(np.array([tick]))[0, slot])

    def occurrences(self, relation: int, column: int, text: str) -> tuple[int, ...]:
        """How often each keyword stands in a text."""
        key = relation, column, text
        found = self._remembered.get(key)
        if found is None:
            if len(self._remembered) >= _REMEMBERED:
                self._remembered.clear()
            found = self._occurrences.of(relation, column, text)
            self._remembered[key] = found
        return found

    def _each(
        self, found: Iterator[tuple[int, Row | None]], change: Callable[[LiveSums, Ints, Ints], None]
    ) -> None:
        slots = len(self._query.slots)
        by_place: dict[Place, tuple[list[int], list[list[int]]]] = {}
        for number, (relation, row) in enumerate(found):
            for column in self._relations[relation].search_columns if row is not None else ():
                value = row[column] if row is not None else None
                counts = () if value is None else self.occurrences(relation, column, str(value))
                if any(counts):
                    numbers, values = by_place.setdefault((relation, column), ([], []))
                    numbers.append(number)
                    values.append([int(count > 0) for count in counts])
        for place, (numbers, values) in by_place.items():
            sums = self._sums.setdefault(place, LiveSums(slots))
            change(sums, np.array(numbers, dtype=np.int64), np.array(values, dtype=np.int64))


def fans(live: LiveTuples, edge: Ints, member: Ints, instant: Ints) -> Ints:
    """For each edge walked from a live tuple: how many tuples it leads to that are alive at an instant.

    Tuples are found by the index that joins use, once for each distinct value.
    """
    counts = np.zeros(len(edge), dtype=np.int64)
    known, hashes = live.wanted(edge, member)
    asked = np.flatnonzero(known)
    if live.reserve is not None:
        values = live.tuples.keys[member[asked], live.key_sets.source[edge[asked]]]
        kept_there, there = live.reserve.counted(edge[asked], values)
        counts[asked[kept_there]] = there[kept_there]
        asked, hashes = asked[~kept_there], hashes[~kept_there]
    _, first, which = np.unique(hashes, return_index=True, return_inverse=True)
    at = instant[asked]
    if len(at) and (at == at[0]).all():  # as in a search
        counts[asked] = _alive(live, edge[asked[first]], member[asked[first]], at[0])[which]
        return counts
    starts, ends = _lifespans(live, edge[asked[first]], member[asked[first]])
    order = np.argsort(which, kind="stable")
    borders = np.searchsorted(which[order], np.arange(len(first) + 1))
    for value, (begin, end) in enumerate(zip(starts, ends, strict=True)):
        mine = asked[order[borders[value] : borders[value + 1]]]
        at = instant[mine]
        counts[mine] = np.searchsorted(begin, at, side="right") - np.searchsorted(end, at, side="right")
    return counts


def _alive(live: LiveTuples, edge: Ints, member: Ints, instant: int) -> Ints:
    """How many tuples that are alive at an instant each edge leads to from its member."""
    position, slot = reached(live, edge, member)
    alive = (live.tuples.start.take(slot) <= instant) & (live.tuples.end.take(slot) > instant)
    return np.bincount(position.compress(alive), minlength=len(edge))


def _lifespans(live: LiveTuples, edge: Ints, member: Ints) -> tuple[list[Ints], list[Ints]]:
    """The starts, and the ends, of the tuples that each edge leads to from its member, sorted."""
    if not len(edge):
        return [], []
    position, slot = reached(live, edge, member)
    tuples = live.tuples
    # A tuple that ends before it starts was never alive.
    lived = tuples.end[slot] > tuples.start[slot]
    position, slot = position[lived], slot[lived]
    return _by_group(position, tuples.start[slot], len(edge)), _by_group(
        position, tuples.end[slot], len(edge)
    )


def reached(live: LiveTuples, edge: Ints, member: Ints) -> tuple[Ints, Ints]:
    """The tuples that edges lead to from members with a value there: for each, the edge's number and a slot.

    They may have ended.
    """
    _, values = live.leaving(edge, member)
    return together(list(live.partners(edge, values)))


def _by_group(group: Ints, values: Ints, groups: int) -> list[Ints]:
    if not len(group):
        return [NOTHING] * groups
    order = np.lexsort((values, group))
    borders = np.searchsorted(group[order], np.arange(1, groups))
    return np.split(values[order], borders)
