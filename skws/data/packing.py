"""Records as bytes, by relation and column: in logs, in pieces of replays, between processes.

A column of numbers, booleans or texts is an array, narrow if its numbers are small, with flags if
it has NULLs; other columns are JSON. Buffers begin at multiples of 8 bytes, so that a file of records is
read without copying them: its columns are views of it.

Long blobs that are sent between processes are compressed: Spark copies them about ten times, and Arrow's zstd
takes less time than two of these copies save. Short blobs never load Arrow.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from functools import cache
from itertools import chain, groupby, pairwise
from struct import Struct
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt
import orjson

from skws.data.batch import NO_RECORDS, Ints, RecordBatch, Rows, concat_batches
from skws.data.blocks import Block, ColumnBlock, Nullable, Values, packed_integers
from skws.data.texts import Texts
from skws_schema.model import Value

if TYPE_CHECKING:
    import pyarrow as pa


_LONG: Final = 64 << 10  # bytes
_MARK: Final = b"\0"  # no uncompressed blob begins with it
_SEVERAL: Final = b"\2"  # begins several packed batches; no other blob begins with it
_LENGTH: Final = Struct("<Q")
_LEVEL: Final = 1  # shrinks rows of words to a third; higher levels take longer to save another tenth


def compress(text: bytes) -> bytes:
    """A long blob, compressed, or a short one unchanged. The blob must not begin with a zero byte."""
    if len(text) < _LONG:
        return text
    return b"".join((_MARK, _LENGTH.pack(len(text)), _codec().compress(text, asbytes=True)))


def decompress(blob: bytes) -> bytes:
    """Inverse of ``compress``."""
    if not blob.startswith(_MARK):
        return blob
    (length,) = _LENGTH.unpack_from(blob, len(_MARK))
    text: bytes = _codec().decompress(memoryview(blob)[len(_MARK) + _LENGTH.size :], length, asbytes=True)
    return text


@cache
def _codec() -> pa.Codec:
    import pyarrow as pa  # noqa: PLC0415 - takes long to load, and short blobs need none of it

    return pa.Codec("zstd", compression_level=_LEVEL)


_LENGTHS: Final = Struct("<II")
_FORM: Final = 1  # the first byte of records: compressed ones begin with 0
_TRUNCATES: Final = 2  # among the marks of records: 1 is another deletion, 0 an insertion
WORD: Final = 8
"""The alignment of buffers, in bytes."""
_TEXTS, _JSON = "texts", "json"  # forms of columns besides types of NumPy
_NARROW: Final = tuple(
    (kind, np.iinfo(kind).min, np.iinfo(kind).max) for kind in (np.int8, np.int16, np.int32)
)
_MOST_NARROW: Final = np.iinfo(np.int32).max
_OF_TYPE: Final = {float: np.float64, bool: np.bool_}


def pack(batch: RecordBatch, indices: Ints | None = None) -> bytes:
    """Records by column, their rows by relation and column, compressed; empty if there are none.

    ``indices``: if the batch is a part of another, the indices of its records in that.
    """
    return compress(encode(batch, indices)) if len(batch) else b""


def concat_packed(blobs: Sequence[bytes]) -> bytes:
    """Several packed batches as one, without decoding them."""
    nonempty = [blob for blob in blobs if blob]
    if len(nonempty) < 2:
        return b"".join(nonempty)
    lengths = np.array([len(nonempty), *map(len, nonempty)], dtype="<u4")
    return b"".join((_SEVERAL, lengths.tobytes(), *nonempty))


def unpack(blob: bytes) -> RecordBatch:
    """Inverse of ``pack``, as columns."""
    batches = [batch for batch, _ in _decoded(blob)]
    return concat_batches(batches) if batches else NO_RECORDS


def _decoded(blob: bytes) -> list[tuple[RecordBatch, Ints]]:
    """The packed batches in ``blob``, each with its indices."""
    if not blob.startswith(_SEVERAL):
        return [decode(decompress(blob))] if blob else []
    first = len(_SEVERAL)
    (count,) = np.frombuffer(blob, "<u4", 1, first)
    ends = np.cumsum(np.frombuffer(blob, "<u4", count + 1, first)[1:], dtype=np.int64)
    start = first + 4 * (int(count) + 1)
    bounds = pairwise([start, *(start + ends).tolist()])
    return [decode(decompress(blob[begin:end])) for begin, end in bounds]


def rejoin(parts: Sequence[bytes]) -> RecordBatch:
    """A batch from parts that were packed with their indices; a record of several parts occurs once in it."""
    decoded = [entry for part in parts for entry in _decoded(part)]
    if not decoded:
        return NO_RECORDS
    _, indices = np.unique(np.concatenate([batch_indices for _, batch_indices in decoded]), return_index=True)
    return concat_batches([batch for batch, _ in decoded]).take(indices)


def encode(batch: RecordBatch, indices: Ints | None = None) -> bytes:
    """Like ``pack``, without compression."""
    deletes = batch.delete if batch.delete is not None and batch.delete.any() else None
    truncates, rows = batch.truncations(), batch.rows
    if truncates.any():
        rows = rows.take(~truncates)
    has_one_time = len(batch) > 0 and bool((batch.time == batch.time[0]).all())
    layout = _Layout()
    relation = layout.array(_narrow(batch.relation))
    layout.array(batch.time[:1] if has_one_time else batch.time)
    if deletes is not None:
        layout.array(deletes.astype(np.int8) + truncates)
    if indices is not None:
        layout.array(indices)
    blocks = []
    for number, relation_blocks, _, row_indices in rows.by_relation():
        if not len(row_indices):  # files have blocks without rows
            continue
        columns, searched = _columns([block for block in relation_blocks if len(block)], row_indices)
        blocks.append([number, len(row_indices), list(map(layout.column, columns)), sorted(searched)])
    head = {
        "records": len(batch),
        "relation": relation,
        "at_once": has_one_time,
        "deletes": deletes is not None,
        "places": indices is not None,
        "blocks": blocks,
    }
    return layout.with_head(orjson.dumps(head))


def decode(data: bytes | memoryview) -> tuple[RecordBatch, Ints]:
    """Inverse of ``encode``: the records and their indices, by default consecutive ones.

    Columns are views of ``data``, which begins at a multiple of ``WORD``.
    """
    head, relation, time, buffers = _read_header(data)
    records, relation = len(time), relation.astype(np.int64)
    marks = buffers.array("|i1", records) if head["deletes"] else None
    indices = buffers.array("<i8", records) if head["places"] else np.arange(records)
    blocks = [
        ColumnBlock(number, [buffers.column(length, *form) for form in columns], frozenset(searched))
        for number, length, columns, searched in head["blocks"]
    ]
    if marks is None:
        return RecordBatch(relation, time, Rows.in_order(relation, blocks)), indices
    truncates = marks == _TRUNCATES
    rows = Rows.in_order(relation[~truncates], blocks)
    if truncates.any():
        rows = rows.among_truncations(relation, truncates)
    return RecordBatch(relation, time, rows, marks.astype(bool)), indices


def times_in(data: bytes | memoryview) -> Ints:
    """The times of the records in ``data``, as from ``decode``; nothing else is read."""
    return _read_header(data)[2]


def _read_header(data: bytes | memoryview) -> tuple[dict[str, Any], npt.NDArray[Any], Ints, _Buffers]:
    """The header of packed records, their relations and times, and the remaining buffers."""
    _, size = _LENGTHS.unpack_from(data)
    head = orjson.loads(memoryview(data)[_LENGTHS.size : _LENGTHS.size + size])
    buffers = _Buffers(data, _LENGTHS.size + size)
    records = head["records"]
    relation = buffers.array(head["relation"], records)
    time = np.repeat(buffers.array("<i8", 1), records) if head["at_once"] else buffers.array("<i8", records)
    return head, relation, time, buffers


class _Layout:
    """Consecutive buffers, each aligned to ``WORD`` bytes."""

    def __init__(self) -> None:
        self._parts: list[bytes | memoryview] = []

    def array(self, values: npt.NDArray[Any]) -> str:
        """Add an array; returns its type."""
        self._parts.append(np.ascontiguousarray(values).data.cast("B") if len(values) else b"")
        return values.dtype.str

    def column(self, column: Values) -> list[Any]:
        """Add a column; returns its form, its size if the form needs it, and True if it has NULLs."""
        column = _as_typed(column)
        nulls = isinstance(column, Nullable)
        if isinstance(column, Nullable):
            self.array(column.present)
            column = column.values
        if isinstance(column, Texts):
            first, end = int(column.offsets[0]), int(column.offsets[-1])
            is_wide = end - first > _MOST_NARROW
            kind = self.array((column.offsets - first).astype(np.int64 if is_wide else np.int32))
            self._parts.append(memoryview(column.data)[first:end])
            return [_TEXTS, [kind, end - first], nulls]
        if isinstance(column, np.ndarray):
            return [self.array(_narrow(column)), 0, nulls]
        self._parts.append(orjson.dumps(column))
        return [_JSON, len(self._parts[-1]), nulls]

    def with_head(self, head: bytes) -> bytes:
        parts = [_LENGTHS.pack(_FORM, len(head)) + head, *self._parts]
        return b"".join(chain.from_iterable((part, bytes(-len(part) % WORD)) for part in parts))


class _Buffers:
    """Reads the buffers of a ``_Layout``; ``end``: the offset after the last one."""

    def __init__(self, data: bytes | memoryview, end: int) -> None:
        self._data = data
        self._end = end

    def array(self, kind: str, length: int) -> npt.NDArray[Any]:
        element_type = np.dtype(kind)
        return np.frombuffer(self._data, element_type, length, self._next(length * element_type.itemsize))

    def column(self, length: int, form: str, size: Any, nulls: bool) -> Values:
        present = self.array("|b1", length) if nulls else None
        if form == _JSON:
            values: Sequence[Value] = orjson.loads(self._bytes(size))
            return values
        nonnulls: npt.NDArray[Any] | Texts
        if form == _TEXTS:
            kind, data = size
            offsets = self.array(kind, length + 1)
            nonnulls = Texts(self._bytes(data), offsets)
        else:
            nonnulls = self.array(form, length)
        return nonnulls if present is None else Nullable(present, nonnulls)

    def _bytes(self, length: int) -> memoryview:
        first = self._next(length)
        return memoryview(self._data)[first : first + length]

    def _next(self, length: int) -> int:
        """The offset of the next buffer, which has ``length`` bytes."""
        first = self._end + -self._end % WORD
        self._end = first + length
        return first


def _columns(blocks: Sequence[Block], indices: Ints) -> tuple[Sequence[Values], Collection[int]]:
    """The columns of some rows of all blocks together, and the numbers of searched columns."""
    is_consecutive = _is_consecutive(indices)
    is_whole = is_consecutive and len(indices) == sum(map(len, blocks))
    if any(isinstance(block, ColumnBlock) for block in blocks):
        block = ColumnBlock.concat(_as_columns(blocks))
        if not is_whole:
            first = int(indices[0])
            block = block.between(first, first + len(indices)) if is_consecutive else block.take(indices)
        return block.columns, block.searched
    if is_whole:
        return list(_list_columns(blocks)), ()
    row_numbers = indices.tolist()
    return [[column[index] for index in row_numbers] for column in _list_columns(blocks)], ()


def _is_consecutive(indices: Ints) -> bool:
    """True for indices without a gap, of which there is at least one; ``np.diff`` takes ten times as long."""
    return int(indices[-1] - indices[0]) == len(indices) - 1 and bool((indices[1:] > indices[:-1]).all())


def _as_columns(blocks: Sequence[Block]) -> list[ColumnBlock]:
    """The blocks as columns; some of them are columns already."""
    column_blocks = [block for block in blocks if isinstance(block, ColumnBlock)]
    if len(column_blocks) == len(blocks):
        return column_blocks
    column_blocks = []
    searched = next(block.searched for block in blocks if isinstance(block, ColumnBlock))
    for is_columns, group in groupby(blocks, key=lambda block: isinstance(block, ColumnBlock)):
        group_blocks = list(group)
        if is_columns:
            column_blocks += [block for block in group_blocks if isinstance(block, ColumnBlock)]
        else:
            columns = list(map(_as_typed, _list_columns(group_blocks)))
            column_blocks.append(ColumnBlock(group_blocks[0].relation, columns, searched))
    return column_blocks


def _list_columns(blocks: Sequence[Block]) -> Iterator[list[Value]]:
    for column in range(len(blocks[0].row(0))):
        yield list(chain.from_iterable(block.values(column) for block in blocks))


def _as_typed(column: Values) -> Values:
    """A column as an array or as texts if its values allow it, else its values."""
    if not isinstance(column, Sequence):
        return column
    kinds = set(map(type, column))
    has_nulls = type(None) in kinds
    if has_nulls:
        kinds.discard(type(None))
    if len(kinds) != 1:
        return _all_null(len(column)) if has_nulls and not kinds else column
    (kind,) = kinds
    nonnulls: Sequence[Value] = column
    if has_nulls and kind in _FILL:
        nonnulls = [_FILL[kind] if value is None else value for value in column]
    packed: npt.NDArray[Any] | Texts | None = None
    if kind is int:
        packed = packed_integers(nonnulls)
    elif kind is str:
        packed = Texts.of_strings(nonnulls)
    elif kind in _OF_TYPE:
        packed = np.array(nonnulls, dtype=_OF_TYPE[kind])
    if packed is None or not has_nulls:
        return column if packed is None else packed
    return Nullable(np.array([value is not None for value in column], dtype=bool), packed)


def _all_null(length: int) -> Nullable:
    return Nullable(np.zeros(length, dtype=bool), np.zeros(length, dtype=np.int8))


_FILL: Final[dict[type, Value]] = {int: 0, str: "", float: 0.0, bool: False}


def _narrow(values: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """The integers in the smallest type that can hold all of them."""
    if values.dtype.kind != "i" or not len(values):
        return values
    lowest_value, highest_value = values.min(), values.max()
    for kind, lowest, highest in _NARROW:
        if lowest <= lowest_value and highest_value <= highest:
            return values.astype(kind)
    return values
