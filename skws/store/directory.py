"""Rows, names and times of live tuples by slot, and the tuples that are followed as objects."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt

from skws.data.batch import RecordBatch, Rows
from skws.data.blocks import Block, BlockFile, MappedBlock, RowBlock
from skws.data.packing import decode, encode
from skws.results.names import Named, TupleNames
from skws_mesh.columnar.columns import NOTHING, Flags, Ints, repeated, write
from skws_mesh.columnar.live import LiveTuples
from skws_mesh.columnar.store import Table
from skws_purging.lifespans import ALWAYS, StreamTuple
from skws_schema.model import Row, Schema

StableName: TypeAlias = int | tuple[int, Row]
"""The place of a record in the stream; relation and row of a static tuple."""

Narrow: TypeAlias = npt.NDArray[np.int32]

_NONE: Final = -1
_ROWS_PER_LIVE_ROW: Final = 3  # rows in blocks per live row, beyond which live rows are copied
_NO_ROWS: Final = RowBlock(0, ())


class FollowedTuples:
    """Maps followed tuples to their slots, and slots to followed tuples.

    A tuple has a number that outlives its slots, so that a purge only renumbers columns of integers: there
    may be hundreds of thousands of tuples, and dictionaries of them would take half a second to rebuild.
    """

    def __init__(self) -> None:
        self._numbers: dict[StreamTuple, int] = {}
        self._tuples: list[StreamTuple | None] = []  # by number
        self._free: list[int] = []
        self._slots: Ints = NOTHING  # by number; with space for more
        self._number_by_slot: Ints = NOTHING  # by slot: the number, or none

    def __len__(self) -> int:
        return len(self._numbers)

    def __contains__(self, member: StreamTuple) -> bool:
        return member in self._numbers

    def __getitem__(self, member: StreamTuple) -> int:
        """The slot of a tuple. Raises KeyError if it is not followed."""
        return self._slots.item(self._numbers[member])

    def at(self, slot: int) -> StreamTuple | None:
        number = self._number_by_slot.item(slot) if slot < len(self._number_by_slot) else _NONE
        return None if number == _NONE else self._tuples[number]

    def followed_slots(self, slots: Ints) -> list[int]:
        slots_in_range = slots[slots < len(self._number_by_slot)]
        members: list[int] = slots_in_range[self._number_by_slot.take(slots_in_range) != _NONE].tolist()
        return members

    def flagged_slots(self, flags: Flags) -> list[int]:
        """The flagged slots whose tuples are followed; ``flags``: by slot."""
        is_followed = self._number_by_slot[: len(flags)] != _NONE
        slots: list[int] = np.flatnonzero(is_followed & flags[: len(is_followed)]).tolist()
        return slots

    def items(self) -> Iterator[tuple[int, StreamTuple]]:
        """Each followed tuple with its slot."""
        return ((self[member], member) for member in self._numbers)

    def set(self, member: StreamTuple, slot: int) -> None:
        if self._free:
            number = self._free.pop()
            self._tuples[number] = member
        else:
            number = len(self._tuples)
            self._tuples.append(member)
        self._numbers[member] = number
        self._slots = write(self._slots, number, np.array([slot], dtype=np.int64))
        if slot >= len(self._number_by_slot):
            space = np.full(slot + 1 + slot // 4 - len(self._number_by_slot), _NONE, dtype=np.int64)
            self._number_by_slot = np.concatenate([self._number_by_slot, space])
        self._number_by_slot[slot] = number

    def remove(self, member: StreamTuple) -> int:
        """Stop following a tuple; returns its slot."""
        number = self._numbers.pop(member)
        slot = self._slots.item(number)
        self._tuples[number] = None
        self._free.append(number)
        self._number_by_slot[slot] = _NONE
        return slot

    def renumber(self, slots: Ints) -> None:
        """Give tuples their new slots; stop following those with negative ones."""
        old_slots = np.flatnonzero(self._number_by_slot != _NONE)
        numbers, new_slots = self._number_by_slot.take(old_slots), slots.take(old_slots)
        for number in numbers[new_slots < 0].tolist():
            dead_tuple = self._tuples[number]
            if dead_tuple is not None:
                self.remove(dead_tuple)
        numbers, new_slots = numbers[new_slots >= 0], new_slots[new_slots >= 0]
        self._slots[numbers] = new_slots
        self._number_by_slot = np.full(int(new_slots.max(initial=_NONE)) + 1, _NONE, dtype=np.int64)
        self._number_by_slot[new_slots] = numbers


@dataclass(frozen=True, slots=True)
class StoreSizes:
    """Numbers of rows at which a store of rows changes its method; the defaults are the fastest."""

    column_rows: int = 1024
    """Rows that are worth turning into columns."""
    fewest_rows: int = 10_000
    """Rows that are not worth copying."""
    portion: int = 1 << 16
    """Slots that are processed at once; their columns fit the processor's caches."""


USUAL_SIZES: Final = StoreSizes()


class RowStore(Table):
    """The rows of live tuples by slot, in the blocks of their arrival; a block is dropped with its last row.

    If rows are ``long_lived``, those that come a few at a time, as Python values, are turned into columns.
    """

    def __init__(self, *, long_lived: bool, sizes: StoreSizes = USUAL_SIZES) -> None:
        number, flag = np.empty(0, dtype=np.int32), np.empty(0, dtype=bool)
        super().__init__((number, number, flag))  # type: ignore[arg-type]  # narrow, as there can be millions
        self._blocks: list[Block] = []
        self._long_lived = long_lived
        self._sizes = sizes
        # The first slot, and the first block, of rows that may yet become columns.
        self._latest = 0, 0

    def add(self, rows: Rows, twins: Flags) -> None:
        """Add rows for the next slots."""
        is_large = len(rows) >= self._sizes.column_rows
        if self._long_lived and (is_large or self.size - self._latest[0] >= self._sizes.column_rows):
            self._make_columns()
        self.append((rows.block + len(self._blocks), rows.place, twins))  # type: ignore[arg-type]  # as above
        self._blocks.extend(rows.blocks)
        if is_large:
            self._begin_latest()

    def _make_columns(self) -> None:
        """Turn the latest rows into columns; their blocks hold no other rows."""
        slot, block_number = self._latest
        rows = self.some_rows(np.arange(slot, self.size))
        if any(isinstance(block, RowBlock) for block in rows.blocks):
            relation = np.array([block.relation for block in rows.blocks], dtype=np.int64).take(rows.block)
            layout = encode(RecordBatch(relation, np.zeros_like(relation), rows))
            del self._blocks[block_number:]
            self._move_to(slice(slot, self.size), decode(layout)[0].rows)
        self._begin_latest()

    def _begin_latest(self) -> None:
        self._latest = self.size, len(self._blocks)

    def _move_to(self, slots: Ints | slice, rows: Rows) -> None:
        """Move the rows of some slots to other blocks."""
        block, place, _ = self._columns
        block[slots], place[slots] = rows.block + len(self._blocks), rows.place
        self._blocks.extend(rows.blocks)

    def begin_with(self, blocks: Sequence[Block], block: Narrow, place: Narrow, size: int) -> None:
        """Start with rows in blocks: for each slot, the number of its block and its place there.

        ``size``: the number of slots; the columns may have space for more.
        """
        columns = block, place, np.zeros(len(block), dtype=bool)
        self.open(columns, size)  # type: ignore[arg-type]  # as above
        self._blocks = list(blocks)
        self._begin_latest()

    def row(self, slot: int) -> Row:
        block, place, _ = self._columns
        return self._blocks[block.item(slot)].row(place.item(slot))

    def in_order(self, slots: Ints) -> Ints:
        """Slots in order of the blocks of their rows."""
        return slots.take(np.argsort(self._columns[0].take(slots), kind="stable"))

    def by_block(self, slots: Ints) -> Iterator[tuple[int, list[Row]]]:
        """The relation and the rows of slots, block by block; the slots are ``in_order``."""
        numbers, places = (column.take(slots).astype(np.int64) for column in self._columns[:2])
        bounds = [0, *(np.flatnonzero(np.diff(numbers)) + 1).tolist(), len(slots)]
        for first, end in pairwise(bounds if len(slots) else []):
            block = self._blocks[numbers[first]]
            yield block.relation, block.rows(places[first:end])

    @property
    def twins(self) -> Flags:
        """By slot: False if the tuple was the only one of its relation at its instant."""
        flags: Flags = self.columns()[2]  # type: ignore[assignment]  # as above
        return flags

    def has_twins(self, slot: int) -> bool:
        """False if the tuple was the only one of its relation at its instant."""
        return bool(self.twins[slot])

    def some_rows(self, slots: Ints) -> Rows:
        """The rows of some slots."""
        block, place = (column.take(slots).astype(np.int64) for column in self._columns[:2])
        return Rows(block, place, tuple(self._blocks)).take(slice(None))

    def rows(self) -> Rows:
        """All rows, by slot."""
        block, place, _ = self.columns()
        return Rows(block.astype(np.int64), place.astype(np.int64), tuple(self._blocks))

    def pack(self) -> None:
        """Copy live rows out of blocks in memory whose rows are mostly dead."""
        rows = self.rows().compact()
        self._columns[1][: self.size] = rows.place
        self._blocks = list(rows.blocks)
        self._begin_latest()

    def in_files(self, files: Collection[BlockFile]) -> Flags:
        """By slot: True if the row is in one of the files."""
        is_in_files = [isinstance(block, MappedBlock) and block.file in files for block in self._blocks]
        flags: Flags = np.array(is_in_files, dtype=bool).take(self._columns[0][: self.size])
        return flags

    def rows_in_files(self, is_chosen: Flags, sizes: Mapping[BlockFile, int]) -> dict[BlockFile, Flags]:
        """For each file, flags of the rows of chosen slots; ``sizes``: the number of rows of each file."""
        ends = np.cumsum([0, *sizes.values()])
        rows_before = dict(zip(sizes, ends.tolist(), strict=False))
        # By block: the number of its first row among those of all files.
        first_rows = np.full(len(self._blocks), _NONE)
        for number, block in enumerate(self._blocks):
            if isinstance(block, MappedBlock) and block.file in rows_before:
                first_rows[number] = rows_before[block.file] + block.first
        flags = np.zeros(ends[-1], dtype=bool)
        block_numbers, places, _ = self.columns()
        for first in range(0, self.size, self._sizes.portion):
            portion = slice(first, first + self._sizes.portion)
            rows = first_rows.take(block_numbers[portion])
            positions = np.flatnonzero(is_chosen[portion] & (rows != _NONE))
            flags[rows.take(positions) + places[portion].take(positions)] = True
        return {file: flags[rows_before[file] : rows_before[file] + size] for file, size in sizes.items()}

    def move(self, slots: Ints, rows: Rows) -> None:
        """Move the rows of some slots to other blocks, such as those of a file."""
        self._move_to(slots, rows)
        for number in np.flatnonzero(~self._used()).tolist():
            self._blocks[number] = _NO_ROWS  # the next ``compact`` gives new numbers
        self._begin_latest()

    def compact(self, slots: Ints) -> None:
        """Drop the rows whose slots were dropped."""
        survives: Flags = slots >= 0
        self.keep(survives)
        self._drop_unused()
        in_memory = sum(len(block) for block in self._blocks if not isinstance(block, MappedBlock))
        if in_memory > _ROWS_PER_LIVE_ROW * self.size + self._sizes.fewest_rows:
            self.pack()
        self._begin_latest()

    def _drop_unused(self) -> None:
        """Drop blocks without live rows."""
        is_used = self._used()
        block, *_ = self.columns()
        block[:] = (np.cumsum(is_used) - 1).take(block)
        self._blocks = [self._blocks[number] for number in np.flatnonzero(is_used).tolist()]

    def _used(self) -> Flags:
        """By block: True if it has the row of a slot."""
        is_used = np.zeros(len(self._blocks), dtype=bool)
        block, *_ = self.columns()
        for first in range(0, self.size, self._sizes.portion):
            is_used[block[first : first + self._sizes.portion]] = True
        return is_used


class TupleDirectory:
    """Rows, names and times of the live tuples, by slot.

    ``slots``: the slots of tuples that are followed, as their deletion is known
    or their name depends on more than their row.
    """

    def __init__(
        self, schema: Schema, live: LiveTuples, per_position: int | None, *, long_lived: bool
    ) -> None:
        self.slots = FollowedTuples()
        self._live = live
        self._rows = RowStore(long_lived=long_lived)
        self._times = None if per_position is None else Table((NOTHING,))
        self._names = TupleNames(schema, per_position)
        self._occurrences: dict[int, int] = {}  # of tuples with others of their relation and instant
        self._names_by_slot: dict[int, Named] = {}  # tuples of results: most are in several results
        self._end_times: dict[int, int] = {}  # by slot, if ticks are not times
        self._latest_start = ALWAYS
        self._in_order = True  # slots are in order of start

    @property
    def times(self) -> Ints:
        """Event times by slot, in microseconds; undefined but early for static tuples."""
        return self._live.tuples.start if self._times is None else self._times.columns()[0]

    @property
    def rows(self) -> Rows:
        """All rows, by slot."""
        return self._rows.rows()

    def begin_with(self, blocks: Sequence[Block], block: Narrow, place: Narrow, size: int) -> None:
        """As ``RowStore.begin_with``, for static tuples."""
        self._rows.begin_with(blocks, block, place, size)
        if self._times is not None:
            self._times.open((np.zeros(len(block), dtype=np.int64),), size)

    def make_space(self, count: int) -> None:
        """Reserve space for ``count`` tuples."""
        self._rows.make_space(count)
        if self._times is not None:
            self._times.make_space(count)

    def add(self, relation: Ints, start: Ints, rows: Rows, times: Ints, keyed: Flags) -> None:
        """Add the tuples of the next slots. ``keyed``: True for tuples that are named by a key."""
        self._rows.add(rows, self._twins(relation, start) & ~keyed)
        if self._times is not None:
            self._times.append((times,))

    def row(self, slot: int) -> Row:
        return self._rows.row(slot)

    def set_end_times(self, slots: Ints, times: Ints) -> None:
        """Store the times of the records that ended tuples; these are not followed."""
        self._end_times.update(zip(slots.tolist(), times.tolist(), strict=True))

    def ended_at(self, slots: Ints) -> list[int | None]:
        """The times of the records that ended tuples, if ticks are not times; None for other tuples."""
        end_times, objects_by_slot = self._end_times, self.slots
        objects = ((slot, objects_by_slot.at(slot)) for slot in slots.tolist())
        return [end_times.get(slot) if member is None else member.ended_at for slot, member in objects]

    def follow(self, member: StreamTuple, slot: int) -> None:
        """Follow the tuple of a slot as this object."""
        self.slots.set(member, slot)
        self._names_by_slot.pop(slot, None)

    def release(self, tuples: list[StreamTuple]) -> Ints:
        """Stop following tuples; returns their slots."""
        return np.array([self.slots.remove(each) for each in tuples], dtype=np.int64)

    def compact(self, slots: Ints) -> None:
        """Give live tuples their new slots."""
        self._rows.compact(slots)
        if self._times is not None:
            self._times.keep(slots >= 0)
        named_slots = np.fromiter(self._names_by_slot, dtype=np.int64, count=len(self._names_by_slot))
        moved_names = zip(slots.take(named_slots).tolist(), self._names_by_slot.values(), strict=True)
        self._names_by_slot = {slot: each for slot, each in moved_names if slot >= 0}
        moved_ends = ((slots.item(slot), time) for slot, time in self._end_times.items())
        self._end_times = {slot: time for slot, time in moved_ends if slot >= 0}
        self._occurrences.clear()
        self.slots.renumber(slots)

    def pack(self) -> None:
        """As ``RowStore.pack``."""
        self._rows.pack()

    def in_files(self, files: Collection[BlockFile]) -> Flags:
        """As ``RowStore.in_files``."""
        return self._rows.in_files(files)

    def rows_in_files(self, is_chosen: Flags, sizes: Mapping[BlockFile, int]) -> dict[BlockFile, Flags]:
        """As ``RowStore.rows_in_files``."""
        return self._rows.rows_in_files(is_chosen, sizes)

    def some_rows(self, slots: Ints) -> Rows:
        """The rows of some slots."""
        return self._rows.some_rows(slots)

    def move(self, slots: Ints, rows: Rows) -> None:
        """As ``RowStore.move``."""
        self._rows.move(slots, rows)

    def name(self, slot: int) -> Named:
        """The tuple in a slot as results show it."""
        return self._names_by_slot.get(slot) or self.names(np.array([slot], dtype=np.int64))[0]

    def names(self, slots: Ints) -> list[Named]:
        """The tuples in some slots as results show them."""
        names_by_slot, slot_list = self._names_by_slot, slots.tolist()
        for slot in self.slots.followed_slots(slots):
            if slot not in names_by_slot:
                names_by_slot[slot] = self._names.of(self.member(slot))
        unnamed_slots = slots
        if names_by_slot:
            unnamed_slots = np.array(
                [slot for slot in slot_list if slot not in names_by_slot], dtype=np.int64
            )
        unnamed_slots = self._rows.in_order(unnamed_slots)
        starts = self._live.tuples.start[unnamed_slots].tolist()
        names: list[Named] = []
        for relation, rows in self._rows.by_block(unnamed_slots):
            names += self._names.relations[relation].firsts(rows, starts[len(names) : len(names) + len(rows)])
        names_by_slot.update(zip(unnamed_slots.tolist(), names, strict=True))
        for slot in unnamed_slots[self._rows.twins[unnamed_slots]].tolist():
            names_by_slot[slot] = self._names.of(self.member(slot))
        return list(map(names_by_slot.__getitem__, slot_list))

    def member(self, slot: int) -> StreamTuple:
        tuple_object = self.slots.at(slot)
        if tuple_object is not None:
            return tuple_object
        relation, start, end = self._live.tuple_in(slot)
        occurrence = self._occurrence(slot, relation, start) if self._rows.has_twins(slot) else 0
        time = 0 if start == ALWAYS else self.times.item(slot)
        place = self._live.tuples.place.item(slot)
        return StreamTuple(
            relation, self._rows.row(slot), start, end, occurrence=occurrence, time=time, place=place
        )

    def stable_name(self, slot: int) -> StableName:
        """A name that is unique in this store, and in one that is made from its ``arrivals``."""
        relation, start, _ = self._live.tuple_in(slot)
        return (relation, self.row(slot)) if start == ALWAYS else self._live.tuples.place.item(slot)

    def as_objects(self, slots: Ints) -> list[StreamTuple]:
        """Follow the tuples of some slots, which were not followed; returns them."""
        sorted_slots = self._rows.in_order(slots)
        tuples = self._live.tuples
        columns = (
            sorted_slots,
            *(column.take(sorted_slots) for column in (tuples.start, tuples.end, tuples.place)),
        )
        times = np.where(columns[1] == ALWAYS, 0, self.times.take(sorted_slots))
        columns_by_row = zip(*(column.tolist() for column in columns), times.tolist(), strict=True)
        objects: dict[int, StreamTuple] = {}
        for relation, rows in self._rows.by_block(sorted_slots):
            for row, (slot, start, end, place, time) in zip(rows, columns_by_row):  # noqa: B905 - of one block
                occurrence = self._occurrence(slot, relation, start) if self._rows.has_twins(slot) else 0
                objects[slot] = StreamTuple(
                    relation, row, start, end, occurrence=occurrence, time=time, place=place
                )
        for slot, member in objects.items():
            self.follow(member, slot)
        return [objects[slot] for slot in slots.tolist()]

    def _occurrence(self, slot: int, relation: int, start: int) -> int:
        """The number of equal tuples of the same instant that came before; computed once for an instant."""
        if slot not in self._occurrences:
            tuples = self._live.tuples
            first = int(np.searchsorted(tuples.start, start)) if self._in_order else 0
            is_twin = (tuples.relation[first:] == relation) & (tuples.start[first:] == start)
            counts: Counter[Row] = Counter()
            for twin in (np.flatnonzero(is_twin) + first).tolist():
                row = self._rows.row(twin)
                self._occurrences[twin] = counts[row]
                counts[row] += 1
        return self._occurrences[slot]

    def _twins(self, relation: Ints, start: Ints) -> Flags:
        """True for new tuples that may not be the first of their relation at their instant."""
        twins = _twin_flags(relation, start)
        is_earlier = start <= self._latest_start
        # In the middle of an instant, late, or a static tuple that is inserted on demand.
        if is_earlier.any():
            twins |= is_earlier & (start != ALWAYS)
            self._in_order &= bool((start >= self._latest_start).all())
        if len(start):
            self._latest_start = max(self._latest_start, int(start.max()))
        return twins


def _twin_flags(relation: Ints, start: Ints) -> Flags:
    """True for tuples that share relation and instant with another one."""
    is_streaming = start != ALWAYS  # static tuples have their name already
    if not is_streaming.all():
        twins = np.zeros(len(start), dtype=bool)
        twins[is_streaming] = _twin_flags(relation[is_streaming], start[is_streaming])
        return twins
    if (start[1:] < start[:-1]).any():
        instant = np.unique(start, return_inverse=True)[1]
    else:
        instant = np.cumsum(np.diff(start, prepend=start[:1]) != 0)
    return repeated(instant * (int(relation.max(initial=0)) + 1) + relation)
