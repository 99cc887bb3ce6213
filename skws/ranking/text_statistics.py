"""Statistics of live tuples at any instant: texts with keywords, lengths, tuples with equal join values."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple, Protocol, TypeAlias

import numpy as np

from skws.data.batch import Rows
from skws.keywords.analysis import chunks
from skws.keywords.chunk_table import ChunkMemory, hopeless
from skws.keywords.keyword_query import Phrase, Slot
from skws.keywords.match import Matcher, occurrences
from skws_mesh.columnar.columns import NOTHING, Ints
from skws_mesh.columnar.hash_index import concat_pairs
from skws_mesh.columnar.live import LiveTuples
from skws_mesh.columnar.store import Table
from skws_purging.lifespans import ALWAYS
from skws_schema.model import Row, Schema
from skws_windows.window import FOREVER


class OccurrenceCounts:
    """Computes ``match.occurrences`` for the slots of a query in the columns of a schema."""

    def __init__(self, slots: Sequence[Slot]) -> None:
        self._slots = slots
        self._columns: dict[tuple[int, int], list[_SlotCounts | None]] = {}
        self._shared: dict[Slot, _SlotCounts] = {}

    def of(self, relation: int, column: int, text: str) -> tuple[int, ...]:
        """The number of occurrences of each slot's words, phrases and prefixes in a value."""
        tables = self._columns.get((relation, column))
        if tables is None:
            tables = [self._table(slot, relation, column) for slot in self._slots]
            self._columns[relation, column] = tables
        return tuple(0 if table is None else table.count(text) for table in tables)

    def _table(self, slot: Slot, relation: int, column: int) -> _SlotCounts | None:
        """The counts of a slot in a column; None if the slot does not apply there."""
        alternatives = tuple(each for each in slot.alternatives if each.applies(relation, column))
        if not alternatives:
            return None
        column_slot = Slot(slot.text, alternatives)
        if column_slot not in self._shared:
            self._shared[column_slot] = _SlotCounts(column_slot, relation, column)
        return self._shared[column_slot]


class _SlotCounts(ChunkMemory[int]):
    """Maps chunks to counts; since a phrase may extend over several chunks, its texts are read whole."""

    def __init__(self, slot: Slot, relation: int, column: int) -> None:
        super().__init__()
        self._key = slot, relation, column
        self._has_phrase = any(isinstance(each, Phrase) for each in slot.alternatives)
        self._hopeless = hopeless(slot.alternatives)
        self._analyzer = slot.alternatives[0].analyzer

    def count(self, text: str) -> int:
        if self._has_phrase:
            return occurrences(*self._key, text)
        return sum(map(self.__getitem__, chunks(text, self._analyzer)))

    def look_up(self, chunk: str) -> int:
        return 0 if self._hopeless(chunk) else occurrences(*self._key, chunk)


class TickSums:
    """Numbers added at ticks, and their sums up to a tick; ``width`` numbers at a time.

    There is one entry per tick. Numbers added in order of ticks are appended; otherwise all are sorted again.
    """

    def __init__(self, width: int) -> None:
        self._base = np.zeros(width, dtype=np.int64)  # sums of forgotten ticks
        self._table = self._empty()  # ticks, and the sums up to each, inclusive

    def __len__(self) -> int:
        return self._table.size

    def add(self, ticks: Ints, values: Ints) -> None:
        """``values`` has a row for each tick."""
        if not len(ticks):
            return
        order = np.argsort(ticks, kind="stable")
        ticks, values = ticks[order], values[order]
        sum_ticks, sums = self._table.columns()
        if len(sum_ticks) and ticks[0] < sum_ticks[-1]:
            ticks = np.concatenate([sum_ticks, ticks])
            values = np.concatenate([np.diff(sums, axis=0, prepend=self._base[None]), values])
            order = np.argsort(ticks, kind="stable")
            ticks, values = ticks[order], values[order]
            self._table, sums = self._empty(), sums[:0]
        last = sums[-1] if len(sums) else self._base
        ends = np.append(np.flatnonzero(np.diff(ticks)), len(ticks) - 1)  # of the values added at one tick
        ticks, totals = ticks.take(ends), np.cumsum(values, axis=0)[ends] + last
        if len(sums) and ticks[0] == sum_ticks[-1]:
            sums[-1] = totals[0]
            ticks, totals = ticks[1:], totals[1:]
        self._table.append((ticks, totals))

    def at(self, ticks: Ints) -> Ints:
        """The sums up to each tick, inclusive, one row each. No tick may have been forgotten."""
        sum_ticks, known_sums = self._table.columns()
        if not len(sum_ticks):
            return np.tile(self._base, (len(ticks), 1))
        places = np.searchsorted(sum_ticks, ticks, side="right")
        sums: Ints = np.where(places[:, None] > 0, known_sums[places - 1], self._base)
        return sums

    def forget(self, tick: int) -> None:
        """Forget earlier ticks, which are no longer needed."""
        sum_ticks, sums = self._table.columns()
        forgotten_count = int(np.searchsorted(sum_ticks, tick, side="right"))
        if forgotten_count:
            self._base = sums[forgotten_count - 1].copy()
            self._table.keep(np.arange(len(sum_ticks)) >= forgotten_count)

    def _empty(self) -> Table:
        return Table((NOTHING, np.empty((0, len(self._base)), dtype=np.int64)))


class LiveSums:
    """Sums over the tuples that are alive at an instant, from their lifespans."""

    def __init__(self, width: int) -> None:
        self._starts = TickSums(width)
        self._ends = TickSums(width)

    def add(self, start: Ints, end: Ints, values: Ints) -> None:
        """Add tuples, each with its values, which count in the sums while it is alive."""
        self._starts.add(start, values)
        self._add_ends(end, values)

    def end(self, former: Ints, end: Ints, values: Ints) -> None:
        """Set earlier ends of tuples."""
        self._add_ends(former, -values)
        self._add_ends(end, values)

    def at(self, ticks: Ints) -> Ints:
        """A row of sums for each tick."""
        sums: Ints = self._starts.at(ticks) - self._ends.at(ticks)
        return sums

    def forget(self, tick: int) -> None:
        self._starts.forget(tick)
        self._ends.forget(tick)

    def _add_ends(self, ticks: Ints, values: Ints) -> None:
        is_finite = ticks < FOREVER
        self._ends.add(ticks[is_finite], values[is_finite])


Place: TypeAlias = tuple[int, int]
"""A relation and one of its columns, by position; NAME stands for its name and those of its attributes."""
NAME: Final = -1
HEADING: Final = "heading"
"""The name of a keyword's place in the explanation of a score if it is a name in the schema."""
_MOST_TEXTS: Final = 1 << 14
"""The most texts remembered per query; 100,000 would take 40 MB, and not make updates faster."""
_MOST_CHARACTERS: Final = 1 << 24
"""The most characters of these texts, which may outlive their tuples."""


class Carriers(NamedTuple):
    """The live tuples with keywords of a query in a place.

    ``frequencies``: a row for each slot with the number of occurrences of each keyword; upper bounds unless
    ``exact``. ``lengths``: the lengths of the texts.
    """

    slots: Ints
    frequencies: Ints
    lengths: Ints
    exact: bool

    def at(self, slot: int) -> tuple[list[int], int]:
        """The number of occurrences of each keyword in the text of a tuple, and the length of the text."""
        row = int(np.searchsorted(self.slots, slot))
        if row == len(self.slots) or self.slots[row] != slot:
            return [0] * self.frequencies.shape[1], 0
        return self.frequencies[row].tolist(), int(self.lengths[row])


class LiveTexts(NamedTuple):
    """The live texts of one place: their number, and their characters in total."""

    number: int
    characters: int


class TableTexts(Protocol):
    """A table that is counted as a whole.

    ``texts[c]``: the number of texts of a column, and their characters.
    """

    @property
    def texts(self) -> Mapping[int, tuple[int, int]]: ...

    def __len__(self) -> int: ...


class TextStatistics:
    """The numbers and lengths of the live texts of all searched attributes."""

    def __init__(self, schema: Schema) -> None:
        self._schema = schema
        self._counted_relations: set[int] = set()  # relations that are already counted
        self._sums: dict[Place, LiveSums] = {
            (relation, column): LiveSums(2)
            for relation, relation_schema in enumerate(schema.relations)
            for column in (*relation_schema.search_columns, NAME)
        }

    def add_tables(self, tables: Mapping[int, TableTexts]) -> None:
        """Add tables by relation; their rows are not counted again when they arrive."""
        always, forever = np.array([ALWAYS]), np.array([FOREVER])
        for relation, table in tables.items():
            self._counted_relations.add(relation)
            for column, totals in (*table.texts.items(), (NAME, (len(table), 0))):
                self._sums[relation, column].add(always, forever, np.array([totals], dtype=np.int64))

    def add(self, rows: Rows, start: Ints, end: Ints) -> None:
        """Add tuples with their lifespans."""
        for place, positions, values in self._lengths(rows):
            self._sums[place].add(start[positions], end[positions], values)

    def end(self, rows: Rows, former: Ints, end: Ints) -> None:
        """Set earlier ends of tuples."""
        for place, positions, values in self._lengths(rows):
            self._sums[place].end(former[positions], end[positions], values)

    def forget(self, tick: int) -> None:
        """Forget earlier ticks, which are no longer needed."""
        for sums in self._sums.values():
            sums.forget(tick)

    def at(self, place: Place, tick: int) -> LiveTexts:
        return LiveTexts(*self._sums[place].at(np.array([tick]))[0].tolist())

    def _lengths(self, rows: Rows) -> Iterator[tuple[Place, Ints, Ints]]:
        """For each place: the numbers of the rows that are not NULL there, and (1, length) of their texts.

        Relations that are already counted are left out; lengths are in characters.
        """
        for block, positions, places in rows.by_block():
            if block.relation in self._counted_relations:
                continue
            for column in self._schema.relations[block.relation].search_columns:
                is_present = block.present_at(column, places)
                lengths = block.texts_at(column, places).lengths()[is_present]
                yield (block.relation, column), positions[is_present], _each_with(lengths)
            yield (block.relation, NAME), positions, _each_with(np.zeros(len(positions), dtype=np.int64))


def _each_with(lengths: Ints) -> Ints:
    """A row (1, length) for each length: the numbers that are added for a text."""
    return np.stack([np.ones(len(lengths), dtype=np.int64), lengths], axis=1)


class Keywords:
    """The numbers of live texts that contain the keywords of one query."""

    def __init__(self, matcher: Matcher) -> None:
        self._query = matcher.query
        self._occurrences = OccurrenceCounts(matcher.query.slots)
        self._matcher = matcher
        self._relations = matcher.schema.relations
        self._sums: dict[Place, LiveSums] = {}
        self._remembered: dict[tuple[int, int, str], tuple[int, ...]] = {}
        self._characters = 0  # of the remembered texts

    def add(self, rows: Iterator[tuple[int, Row]], start: Ints, end: Ints) -> None:
        self._change_sums(rows, lambda sums, numbers, values: sums.add(start[numbers], end[numbers], values))

    def add_flags(self, place: Place, start: Ints, end: Ints, flags: Ints) -> None:
        """Add tuples with keywords in a place; ``flags``: a row for each, with 1 for its keywords."""
        self._sums.setdefault(place, LiveSums(len(self._query.slots))).add(start, end, flags)

    def end(self, rows: Iterator[tuple[int, Row]], former: Ints, end: Ints) -> None:
        """Set earlier ends of tuples, with or without keywords."""
        carrier_rows = ((r, row if self._matcher.bitmap(r, row) > 0 else None) for r, row in rows)
        self._change_sums(
            carrier_rows, lambda sums, numbers, values: sums.end(former[numbers], end[numbers], values)
        )

    def forget(self, tick: int) -> None:
        for sums in self._sums.values():
            sums.forget(tick)

    def containing(self, place: Place, slot: int, tick: int) -> int:
        """The number of texts of a place that are alive at a tick and contain a keyword."""
        sums = self._sums.get(place)
        return 0 if sums is None else int(sums.at(np.array([tick]))[0, slot])

    def occurrences(self, relation: int, column: int, text: str) -> tuple[int, ...]:
        """The number of occurrences of each keyword in a text."""
        key = relation, column, text
        numbers = self._remembered.get(key)
        if numbers is None:
            if len(self._remembered) >= _MOST_TEXTS or self._characters + len(text) > _MOST_CHARACTERS:
                self._remembered.clear()
                self._characters = 0
            numbers = self._occurrences.of(relation, column, text)
            self._remembered[key] = numbers
            self._characters += len(text)
        return numbers

    def _change_sums(
        self, rows: Iterator[tuple[int, Row | None]], change: Callable[[LiveSums, Ints, Ints], None]
    ) -> None:
        slots = len(self._query.slots)
        by_place: dict[Place, tuple[list[int], list[list[int]]]] = {}
        for number, (relation, row) in enumerate(rows):
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
    """For each edge from a live tuple, the number of its partners that are alive at an instant.

    Partners are looked up in the index that joins use, once for each distinct value.
    """
    counts = np.zeros(len(edge), dtype=np.int64)
    has_value, hashes = live.probe_hashes(edge, member)
    walks = np.flatnonzero(has_value)
    if live.reserve is not None:
        values = live.tuples.keys[member[walks], live.key_sets.source[edge[walks]]]
        is_reserved, reserved_counts = live.reserve.counted(edge[walks], values)
        counts[walks[is_reserved]] = reserved_counts[is_reserved]
        walks, hashes = walks[~is_reserved], hashes[~is_reserved]
    _, first, hash_numbers = np.unique(hashes, return_index=True, return_inverse=True)
    instants = instant[walks]
    if len(instants) and (instants == instants[0]).all():  # always in a search
        counts[walks] = _alive(live, edge[walks[first]], member[walks[first]], instants[0])[hash_numbers]
        return counts
    starts, ends = _lifespans(live, edge[walks[first]], member[walks[first]])
    order = np.argsort(hash_numbers, kind="stable")
    borders = np.searchsorted(hash_numbers[order], np.arange(len(first) + 1))
    for value, (begin, end) in enumerate(zip(starts, ends, strict=True)):
        value_walks = walks[order[borders[value] : borders[value + 1]]]
        instants = instant[value_walks]
        counts[value_walks] = np.searchsorted(begin, instants, side="right") - np.searchsorted(
            end, instants, side="right"
        )
    return counts


def _alive(live: LiveTuples, edge: Ints, member: Ints, instant: int) -> Ints:
    """For each edge, the number of tuples alive at an instant to which it leads from its member."""
    position, slot = partners(live, edge, member)
    is_alive = (live.tuples.start.take(slot) <= instant) & (live.tuples.end.take(slot) > instant)
    return np.bincount(position.compress(is_alive), minlength=len(edge))


def _lifespans(live: LiveTuples, edge: Ints, member: Ints) -> tuple[list[Ints], list[Ints]]:
    """The sorted starts, and the sorted ends, of the tuples to which each edge leads from its member."""
    if not len(edge):
        return [], []
    position, slot = partners(live, edge, member)
    tuples = live.tuples
    # A tuple that ends before it starts was never alive.
    was_alive = tuples.end[slot] > tuples.start[slot]
    position, slot = position[was_alive], slot[was_alive]
    return _by_group(position, tuples.start[slot], len(edge)), _by_group(
        position, tuples.end[slot], len(edge)
    )


def partners(live: LiveTuples, edge: Ints, member: Ints) -> tuple[Ints, Ints]:
    """The tuples to which edges lead from members: for each, the index of the edge and a slot.

    They may have ended. Members with NULL have no partners.
    """
    _, values = live.join_values(edge, member)
    return concat_pairs(list(live.partners(edge, values)))


def _by_group(group: Ints, values: Ints, groups: int) -> list[Ints]:
    """The sorted values of each group, by group number."""
    if not len(group):
        return [NOTHING] * groups
    order = np.lexsort((values, group))
    borders = np.searchsorted(group[order], np.arange(1, groups))
    return np.split(values[order], borders)
