"""Records, and batches of them as columns: the output of formats and sources."""

from __future__ import annotations

from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain, islice, pairwise
from typing import Any, Final, NamedTuple, Protocol, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt

from skws.data.blocks import Block, ColumnBlock, MappedBlock, RowBlock, TruncationBlock
from skws_mesh.columnar.columns import distinct
from skws_schema.model import Row


class Record(NamedTuple):
    """One insertion or deletion.

    ``relation`` is the relation's position in the schema, ``time`` the event
    time in microseconds since the epoch (0 for static tables). A deletion's
    row may hold only the key attributes. A *truncation* is a deletion of all
    rows of its relation; its row is empty.
    """

    relation: int
    time: int
    row: Row
    delete: bool = False

    @classmethod
    def truncation(cls, relation: int, time: int) -> Record:
        """The deletion of all rows of a relation."""
        return cls(relation, time, (), True)

    @property
    def truncates(self) -> bool:
        """True if it deletes all rows of its relation."""
        return not self.row


OnLate: TypeAlias = Callable[[Record, int], None]
"""Called with a late record and the latest time before it, in microseconds."""


def unheard(_record: Record, _latest: int) -> None:
    """Ignore a late record."""


@dataclass(frozen=True, slots=True)
class BadRecord:
    """A malformed record: its place, its raw bytes, and the reason.

    ``line`` counts from 1 (0 if the format has no lines); ``offset`` is in
    bytes (in rows for Parquet, in messages for Kafka). ``where``: the place
    within ``source`` as messages show it, if it is neither a line nor a row.

    ``passed_over``: 0, or the number of values that were left out of good records for ``reason``: then
    nothing is malformed, and there is neither place nor raw bytes.
    """

    source: str
    line: int
    offset: int
    raw: bytes
    reason: str
    where: str = ""
    passed_over: int = 0


Item: TypeAlias = Record | BadRecord


BATCH = 32_768  # records; larger ones gain little
LARGE: Final = 1 << 16
"""The number of rows of a static table in a batch: each batch that is kept takes memory."""
MEMORY_RECORDS: Final = 500_000
"""The number of records that are sorted in memory at once."""

Ints = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Rows:
    """Rows of any relations in one order; each row is an index into a block."""

    block: Ints
    place: Ints
    blocks: tuple[Block, ...]

    def __len__(self) -> int:
        return len(self.block)

    @classmethod
    def of(cls, relation: Ints, rows: Sequence[Row]) -> Rows:
        """Rows of given relations; empty ones are those of truncations."""
        if all(rows):  # the usual case
            return cls.grouped(relation, rows, RowBlock)
        truncates = ~np.fromiter(map(bool, rows), dtype=bool, count=len(rows))
        other_rows = cls.grouped(relation[~truncates], [row for row in rows if row], RowBlock)
        return other_rows.among_truncations(relation, truncates)

    @classmethod
    def grouped(cls, relation: Ints, raw: Sequence[T], block_of: Callable[[int, list[T]], Block]) -> Rows:
        """Rows of given relations, in any form; ``block_of`` makes the block of a relation's rows."""
        numbers = distinct(relation).tolist()
        if len(numbers) == 1:
            return cls(np.zeros_like(relation), np.arange(len(raw)), (block_of(numbers[0], list(raw)),))
        block, place = np.empty_like(relation), np.empty_like(relation)
        blocks: list[Block] = []
        for number in numbers:
            indices = np.flatnonzero(relation == number)
            block[indices], place[indices] = len(blocks), np.arange(len(indices))
            blocks.append(block_of(number, [raw[i] for i in indices.tolist()]))
        return cls(block, place, tuple(blocks))

    @classmethod
    def in_order(cls, relation: Ints, blocks: Sequence[Block]) -> Rows:
        """Rows of given relations; each block has all rows of its relation, in order."""
        block, place = np.empty_like(relation), np.empty_like(relation)
        for number, relation_block in enumerate(blocks):
            indices = np.flatnonzero(relation == relation_block.relation)
            block[indices], place[indices] = number, np.arange(len(indices))
        return cls(block, place, tuple(blocks))

    def among_truncations(self, relation: Ints, truncates: Flags) -> Rows:
        """These rows in order, with the rows of truncations; ``relation``, ``truncates``: of all rows."""
        block, place = np.empty_like(relation), np.zeros_like(relation)
        block[~truncates], place[~truncates] = self.block, self.place
        blocks = list(self.blocks)
        for number in distinct(relation[truncates]).tolist():
            block[truncates & (relation == number)] = len(blocks)
            blocks.append(TruncationBlock(number))
        return Rows(block, place, tuple(blocks))

    def truncations(self) -> Flags:
        """Flags of the rows that belong to truncations."""
        is_truncation = np.fromiter((type(block) is TruncationBlock for block in self.blocks), dtype=bool)
        flags: Flags = is_truncation[self.block] if is_truncation.any() else np.zeros(len(self), dtype=bool)
        return flags

    @classmethod
    def concat(cls, parts: Sequence[Rows]) -> Rows:
        """The rows of several parts, one part after the other.

        Blocks of columns of one relation are concatenated, since each block costs time.
        """
        block_offsets = np.cumsum([0, *(len(part.blocks) for part in parts)])
        block = np.concatenate(
            [part.block + first for part, first in zip(parts, block_offsets, strict=False)]
        )
        positions = np.concatenate([part.place for part in parts])
        blocks, number, first = _merge_blocks([block for part in parts for block in part.blocks])
        return cls(number.take(block), positions + first.take(block), blocks)

    def take(self, indices: Ints | Flags | slice) -> Rows:
        """The rows at some indices; blocks without any of them are dropped."""
        block = self.block[indices]
        is_used = np.zeros(len(self.blocks), dtype=bool)
        is_used[block] = True
        used_blocks = tuple(self.blocks[number] for number in np.flatnonzero(is_used).tolist())
        return Rows((np.cumsum(is_used) - 1)[block], self.place[indices], used_blocks)

    def by_block(self) -> Iterator[tuple[Block, Ints, Ints]]:
        """Each block with the numbers of its rows, and their indices in the block."""
        if not self.blocks:
            return
        for block, row_numbers in zip(self.blocks, by_number(self.block, len(self.blocks)), strict=True):
            yield block, row_numbers, self.place.take(row_numbers)

    def by_relation(self) -> Iterator[tuple[int, list[Block], Ints, Ints]]:
        """Each relation with its blocks, the numbers of its rows, and their indices in all these blocks."""
        if not self.blocks:
            return
        relations = sorted({block.relation for block in self.blocks})
        if len(relations) == len(self.blocks):  # as usual; takes half the time
            parts = sorted(self.by_block(), key=lambda part: part[0].relation)
            yield from (
                (block.relation, [block], row_numbers, indices) for block, row_numbers, indices in parts
            )
            return
        relation_indices = np.searchsorted(relations, [block.relation for block in self.blocks])
        row_offsets = np.zeros(len(self.blocks), dtype=np.int64)
        groups: list[list[Block]] = [[] for _ in relations]
        row_counts = [0] * len(relations)
        for block_number, (block, number) in enumerate(
            zip(self.blocks, relation_indices.tolist(), strict=True)
        ):
            row_offsets[block_number] = row_counts[number]
            row_counts[number] += len(block)
            groups[number].append(block)
        indices = row_offsets.take(self.block) + self.place
        for number, blocks, row_numbers in zip(
            relations, groups, by_number(relation_indices.take(self.block), len(relations)), strict=True
        ):
            yield number, blocks, row_numbers, indices.take(row_numbers)

    def in_new_blocks(self) -> Rows:
        """The same rows, in new blocks that have only these rows, in this order."""
        place, blocks = np.empty_like(self.place), list[Block]()
        for block, row_numbers, indices in self.by_block():
            place[row_numbers] = np.arange(len(row_numbers))
            blocks.append(block.take(indices))
        return Rows(self.block, place, tuple(blocks))

    def compact(self) -> Rows:
        """The same rows; of blocks in memory that are less than half used, only the used rows are copied."""
        counts = np.bincount(self.block, minlength=len(self.blocks)).tolist()
        sparse = [
            number
            for number, block in enumerate(self.blocks)
            if 2 * counts[number] < len(block) and not isinstance(block, MappedBlock)
        ]
        if not sparse:
            return self
        place, blocks = self.place.copy(), list(self.blocks)
        for number in sparse:
            row_numbers = np.flatnonzero(self.block == number)
            blocks[number] = blocks[number].take(place[row_numbers])
            place[row_numbers] = np.arange(len(row_numbers))
        return Rows(self.block, place, tuple(blocks))

    def row(self, number: int) -> Row:
        block: int = self.block.item(number)
        return self.blocks[block].row(self.place.item(number))

    def __iter__(self) -> Iterator[Row]:
        rows: list[Row] = [()] * len(self)
        for block, row_numbers, indices in self.by_block():
            for number, row in zip(row_numbers.tolist(), block.rows(indices), strict=True):
                rows[number] = row
        return iter(rows)


@dataclass(frozen=True, slots=True)
class RecordBatch:
    """Records in order of arrival; ``delete`` is None if all of them insert. Times are in microseconds."""

    relation: Ints
    time: Ints
    rows: Rows
    delete: Flags | None = None

    def __len__(self) -> int:
        return len(self.relation)

    @classmethod
    def of(cls, records: Sequence[Record]) -> RecordBatch:
        relations, times, rows, deletes = zip(*records, strict=True) if records else ((), (), (), ())
        relation = np.array(relations, dtype=np.int64)
        delete = np.array(deletes, dtype=bool) if any(deletes) else None
        return cls(relation, np.array(times, dtype=np.int64), Rows.of(relation, rows), delete)

    def without(self, relations: Collection[int]) -> RecordBatch:
        """The records of all other relations."""
        if not relations:
            return self
        flags = ~np.isin(self.relation, list(relations))
        return self if flags.all() else self.take(flags)

    def take(self, indices: Ints | Flags | slice) -> RecordBatch:
        delete = None if self.delete is None else self.delete[indices]
        return RecordBatch(self.relation[indices], self.time[indices], self.rows.take(indices), delete)

    def divided(self, parts: Sequence[Ints]) -> list[RecordBatch]:
        """The records of each of several parts, given by their indices.

        Columns are copied once for all parts, so that the rows of a part are neighbours: copying them for
        each part separately takes several times as long if there are many small parts.
        """
        if len(parts) == 1:
            return [self.take(parts[0])]
        ordered = self.take(np.concatenate(parts))
        rows = ordered.rows.in_new_blocks()
        ends = np.cumsum([0, *map(len, parts)]).tolist()
        contiguous = RecordBatch(ordered.relation, ordered.time, rows, ordered.delete)
        return [contiguous.take(slice(first, end)) for first, end in pairwise(ends)]

    def without_decreasing_times(self, latest: int) -> RecordBatch:
        """The records; a time before ``latest``, or before an earlier one, becomes the latest so far."""
        time = np.maximum.accumulate(np.maximum(self.time, latest))
        return self if (time == self.time).all() else replace(self, time=time)

    def cut(self, index: int) -> tuple[RecordBatch, RecordBatch]:
        """The records before an index, and the others."""
        return self.take(slice(index)), self.take(slice(index, None))

    @classmethod
    def of_block(cls, block: Block, times: Ints) -> RecordBatch:
        """Insertions of all rows of a block, in their order."""
        indices = np.arange(len(block), dtype=np.int64)
        rows = Rows(np.zeros_like(indices), indices, (block,))
        return cls(np.full_like(indices, block.relation), times, rows)

    @property
    def latest(self) -> int | None:
        """The latest time; None without records."""
        return int(self.time.max()) if len(self) else None

    @property
    def insertions(self) -> int:
        """The number of records that insert."""
        return len(self) - (0 if self.delete is None else int(np.count_nonzero(self.delete)))

    @property
    def whole(self) -> RecordBatch:
        """The batch itself; a ``LongBatch`` reads all of its parts."""
        return self

    def parts(self, size: int) -> Iterator[RecordBatch]:
        """The records in batches of about ``size``, of whole blocks if possible, as blocks are read whole."""
        for part in whole_groups(self.rows.block, len(self.rows.blocks), size):
            yield self.take(part)

    def compact(self) -> RecordBatch:
        """The same records, with their rows compacted (``Rows.compact``)."""
        return RecordBatch(self.relation, self.time, self.rows.compact(), self.delete)

    def deletes(self) -> Flags:
        """Flags of the records that are deletions."""
        return np.zeros(len(self), dtype=bool) if self.delete is None else self.delete

    def truncations(self) -> Flags:
        """Flags of the records that delete all rows of their relation."""
        return np.zeros(len(self), dtype=bool) if self.delete is None else self.rows.truncations()

    def records(self) -> Iterator[Record]:
        return map(Record, self.relation.tolist(), self.time.tolist(), self.rows, self.deletes().tolist())


class LongBatch(Protocol):
    """Records in order that may not fit into memory; they are read in parts."""

    def __len__(self) -> int: ...

    @property
    def latest(self) -> int | None:
        """The latest time; None without records."""

    @property
    def insertions(self) -> int:
        """The number of records that insert."""

    @property
    def whole(self) -> RecordBatch:
        """All records in one batch."""

    def parts(self, size: int) -> Iterator[RecordBatch]:
        """The records in batches of about ``size``."""


def whole_groups(group: npt.NDArray[np.integer], groups: int, size: int) -> Iterator[slice]:
    """Slices of about ``size``, which divide no group if possible; ``group``: the group of each index."""
    last_indices, indices = np.zeros(groups, dtype=np.int32), np.arange(len(group), dtype=np.int32)
    last_indices[group] = indices
    group_ends = np.flatnonzero(np.maximum.accumulate(last_indices.take(group)) == indices) + 1
    first = 0
    while first < len(group):
        position = int(np.searchsorted(group_ends, first + size))
        end = int(group_ends[position]) if position < len(group_ends) else len(group)
        end = end if end <= first + 2 * size else first + size
        yield slice(first, end)
        first = end


@dataclass(frozen=True, slots=True)
class Chunk:
    """A piece of some input: its records and its bad records, each in order of arrival.

    ``partitions``: the partition of each record, numbered from 1, if the input has several that advance
    independently.
    """

    records: RecordBatch
    bad: Sequence[BadRecord] = ()
    partitions: Ints | None = None

    @classmethod
    def of(cls, items: Iterable[Item]) -> Chunk:
        """The records and bad records among ``items``."""
        records: list[Record] = []
        bad: list[BadRecord] = []
        for item in items:
            if type(item) is BadRecord:
                bad.append(item)
            else:
                records.append(item)  # type: ignore[arg-type]  # isinstance() is slower here
        return cls(RecordBatch.of(records), bad)

    @classmethod
    def concat(cls, chunks: Iterable[Chunk]) -> Chunk:
        """Several pieces as one piece."""
        nonempty = [chunk for chunk in chunks if len(chunk)]
        if len(nonempty) == 1:
            return nonempty[0]
        parts = [chunk.records for chunk in nonempty if len(chunk.records)]
        arrays = [chunk.partitions for chunk in nonempty if len(chunk.records)]
        known_arrays = [array for array in arrays if array is not None]
        return cls(
            concat_batches(parts) if parts else NO_RECORDS,
            [bad for chunk in nonempty for bad in chunk.bad],
            np.concatenate(known_arrays) if arrays and len(known_arrays) == len(arrays) else None,
        )

    def __len__(self) -> int:
        return len(self.records) + len(self.bad)

    def __iter__(self) -> Iterator[Item]:
        """The bad records, then the good ones."""
        yield from self.bad
        yield from self.records.records()

    def without(self, relations: Collection[int]) -> Chunk:
        if not relations:
            return self
        flags = ~np.isin(self.records.relation, list(relations))
        return self if flags.all() else self.only(flags)

    def only(self, flags: Flags) -> Chunk:
        """The flagged records, and all bad ones."""
        numbers = None if self.partitions is None else self.partitions[flags]
        return Chunk(self.records.take(flags), self.bad, numbers)


def _merge_blocks(blocks: Sequence[Block]) -> tuple[tuple[Block, ...], Ints, Ints]:
    """Concatenate the blocks of columns of each relation, and its blocks of truncations.

    Returns the new blocks; for each old block, its new number and the index of its first row there.
    """
    number, first = np.empty(len(blocks), dtype=np.int64), np.zeros(len(blocks), dtype=np.int64)
    merged_blocks: list[Block] = []
    columns: dict[int, list[int]] = {}
    truncation_numbers: dict[int, int] = {}
    for index, block in enumerate(blocks):
        if isinstance(block, ColumnBlock) and not isinstance(block, MappedBlock):
            columns.setdefault(block.relation, []).append(index)
        elif isinstance(block, TruncationBlock) and block.relation in truncation_numbers:
            number[index] = truncation_numbers[block.relation]
        else:
            number[index] = len(merged_blocks)
            if isinstance(block, TruncationBlock):
                truncation_numbers[block.relation] = len(merged_blocks)
            merged_blocks.append(block)
    for indices in columns.values():
        parts = [block for block in map(blocks.__getitem__, indices) if isinstance(block, ColumnBlock)]
        number[indices] = len(merged_blocks)
        first[indices] = np.cumsum([0, *map(len, parts[:-1])])
        merged_blocks.append(ColumnBlock.concat(parts))
    return tuple(merged_blocks), number, first


def by_number(numbers: Ints, count: int) -> list[Ints]:
    """The indices of each number below ``count``, in order."""
    # NumPy sorts 16-bit integers by radix, as fast as it compares each of them once.
    order = np.argsort(numbers.astype(np.uint16) if count < 1 << 16 else numbers, kind="stable")
    ends = np.cumsum(np.bincount(numbers, minlength=count)).tolist()
    return [order[first:end] for first, end in pairwise([0, *ends])]  # ``np.split`` takes longer


def batched(records: Iterable[Record]) -> Iterator[RecordBatch]:
    """Records in batches of BATCH."""
    remaining = iter(records)
    while chunk := list(islice(remaining, BATCH)):
        yield RecordBatch.of(chunk)


def chunked(items: Iterable[Item]) -> Iterator[Chunk]:
    """Records and bad records in chunks of BATCH."""
    remaining = iter(items)
    while batch_items := list(islice(remaining, BATCH)):
        yield Chunk.of(batch_items)


def records_of(batches: Iterable[RecordBatch]) -> Iterator[Record]:
    return chain.from_iterable(batch.records() for batch in batches)


def regroup(batches: Iterable[RecordBatch], least: int) -> Iterator[RecordBatch]:
    """The same records in batches of at least ``least`` each, except the last."""
    pending: list[RecordBatch] = []
    size = 0
    for batch in batches:
        pending.append(batch)
        size += len(batch)
        if size >= least:
            yield concat_batches(pending)
            pending, size = [], 0
    if pending:
        yield concat_batches(pending)


def large_batches(batches: Iterable[RecordBatch]) -> list[RecordBatch]:
    """The same records in batches of at least ``LARGE`` each, except the last; none is empty."""
    return list(regroup(filter(len, batches), LARGE))


def align_to_timestamps(batches: Iterable[RecordBatch]) -> Iterator[RecordBatch]:
    """The same records in batches of about BATCH that end with an instant: at a change of time."""
    pending: list[RecordBatch] = []
    size, has_change = 0, False
    for batch in batches:
        if not len(batch):
            continue
        pending.append(batch)
        size += len(batch)
        has_change = has_change or bool((batch.time != pending[0].time[0]).any())
        if size < BATCH or not has_change:  # an instant may have very many batches
            continue
        joined = concat_batches(pending)
        end = int(np.flatnonzero(np.diff(joined.time))[-1]) + 1
        complete, remaining = joined.cut(end)
        pending, size, has_change = [remaining.compact()], len(remaining), False
        yield complete
    if pending:
        yield concat_batches(pending)


TimedPart: TypeAlias = tuple[int, Any, RecordBatch]
"""A lower bound of the times, the position in the order of arrival, and records in order of time."""


def merge_by_time(parts: Iterable[TimedPart]) -> Iterator[RecordBatch]:
    """Records in order of time, then of arrival; parts come in order of their bounds.

    A part is held until a part with a bound after its last record comes, and about BATCH further records.
    """
    pending: list[TimedPart] = []
    new = 0
    for part in parts:
        if new >= BATCH:  # each pass over the pending parts costs time
            pending = yield from _take_before(pending, part[0])
            new = 0
        pending.append(part)
        new += len(part[2])
    yield from _take_before(pending, None)


def _take_before(pending: list[TimedPart], end: int | None) -> Generator[RecordBatch, None, list[TimedPart]]:
    """The records before a time; returns the parts with the rest of them."""
    ready: list[TimedPart] = []
    pending_parts: list[TimedPart] = []
    for first, place, batch in pending:
        if end is None or not len(batch) or batch.time[-1] < end:
            ready.append((first, place, batch))
            continue
        head, tail = batch.cut(int(np.searchsorted(batch.time, end)))
        ready += [(first, place, head.compact())] if len(head) else []
        pending_parts.append((first, place, tail.compact()))
    if len(ready) == 1:
        yield ready[0][2]
    elif ready:
        ready.sort(key=lambda part: part[1])
        batch = concat_batches([batch for _, _, batch in ready])
        yield batch.take(np.argsort(batch.time, kind="stable"))
    return pending_parts


def concat_batches(batches: Sequence[RecordBatch]) -> RecordBatch:
    """The records of several batches, one after the other."""
    if len(batches) == 1:
        return batches[0]
    return RecordBatch(
        np.concatenate([b.relation for b in batches]),
        np.concatenate([b.time for b in batches]),
        Rows.concat([b.rows for b in batches]),
        np.concatenate([b.deletes() for b in batches])
        if any(b.delete is not None for b in batches)
        else None,
    )


NO_RECORDS: Final = RecordBatch.of(())
NOTHING: Final = Chunk(NO_RECORDS)
