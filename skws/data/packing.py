"""Records as bytes, by relation and column: in the logs of shards, in pieces of replays, between processes.

Integers and searched texts are copied as they are, other columns are JSON. On the heavy load both ways take
0.32 us a record, and 28 bytes; pickled batches took 0.42 us and 98 bytes.

Long blobs are compressed, as Spark copies them some ten times: Arrow's zstd takes less time than what is
saved in any two of the copies. Who has only short ones never waits until Arrow is loaded.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import cache
from itertools import chain
from struct import Struct
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt
import orjson

from skws.data.batch import NO_RECORDS, Ints, RecordBatch, Rows, together
from skws.data.blocks import Block, ColumnBlock, Values, packed_integers
from skws.data.texts import Texts

if TYPE_CHECKING:
    import pyarrow as pa


_LONG: Final = 64 << 10  # bytes
_MARK: Final = b"\0"  # nothing that is compressed begins with it
_LENGTH: Final = Struct("<Q")
_LEVEL: Final = 1  # on rows of words: a third of the bytes; the next ones take longer for a tenth less


def compressed(text: bytes) -> bytes:
    """What does not begin with 0."""
    if len(text) < _LONG:
        return text
    return b"".join((_MARK, _LENGTH.pack(len(text)), _codec().compress(text, asbytes=True)))


def expanded(blob: bytes) -> bytes:
    """Inverse of ``compressed``."""
    if not blob.startswith(_MARK):
        return blob
    (length,) = _LENGTH.unpack_from(blob, len(_MARK))
    text: bytes = _codec().decompress(memoryview(blob)[len(_MARK) + _LENGTH.size :], length, asbytes=True)
    return text


@cache
def _codec() -> pa.Codec:
    import pyarrow as pa  # noqa: PLC0415 - a server goes without it as long as it can

    return pa.Codec("zstd", compression_level=_LEVEL)


_LENGTHS: Final = Struct("<II")
_FORM: Final = 1  # at the beginning of records: what is compressed begins with 0
_TRUNCATES: Final = 2  # among the marks of records: 1 is another deletion, 0 an insertion
_WORD: Final = 8  # bytes, at multiples of which buffers begin


def packed(batch: RecordBatch, places: Ints | None = None) -> bytes:
    """Records by column, their rows by relation and column; empty if there are none.

    ``places``: of a part of a batch, where its records are in the whole.
    """
    if not len(batch):
        return b""
    deletes = batch.delete if batch.delete is not None and batch.delete.any() else None
    truncates, rows = batch.truncations(), batch.rows
    if truncates.any():
        rows = rows.taken(~truncates)
    parts = [batch.relation.astype(np.int32).tobytes(), batch.time.tobytes()]
    if deletes is not None:
        parts.append((deletes.astype(np.int8) + truncates).tobytes())
    if places is not None:
        parts.append(places.tobytes())
    blocks = []
    for number, held, _, at in rows.by_relation():
        columns, searched = _columns(held, at)
        told = [_column(column, parts, text=place in searched) for place, column in enumerate(columns)]
        blocks.append([number, len(at), told, sorted(searched)])
    head = orjson.dumps(
        {
            "records": len(batch),
            "deletes": deletes is not None,
            "places": places is not None,
            "blocks": blocks,
        }
    )
    parts.insert(0, _LENGTHS.pack(_FORM, len(head)) + head)
    padded = chain.from_iterable((part, bytes(-len(part) % _WORD)) for part in parts)
    return compressed(b"".join(padded))


def _columns(blocks: Sequence[Block], places: Ints) -> tuple[Sequence[Values], Collection[int]]:
    """The columns of the rows at some places in all the blocks, and which are searched."""
    whole = len(places) == sum(map(len, blocks)) and bool((np.diff(places) == 1).all())
    if all(isinstance(block, ColumnBlock) for block in blocks):
        block = ColumnBlock.together([block for block in blocks if isinstance(block, ColumnBlock)])
        block = block if whole else block.taken(places)
        return block.columns, block.searched
    found: list[Values] = []
    taken = None if whole else places.tolist()
    for column in range(len(blocks[0].row(0))):
        values = list(chain.from_iterable(block.values(column) for block in blocks))
        values = values if taken is None else [values[place] for place in taken]
        integers = packed_integers(values) if type(values[0]) is int else None
        found.append(values if integers is None else integers)
    return found, ()


def _column(column: Values, parts: list[bytes], *, text: bool) -> int | list[int]:
    """Add a column to the parts: integers, texts, or other values as JSON; gives the sizes of what varies."""
    if isinstance(column, np.ndarray):
        parts.append(column.tobytes())
        return []
    texts = column if isinstance(column, Texts) else Texts.of_strings(column) if text else None
    if texts is None:
        parts.append(orjson.dumps(column))
        return len(parts[-1])
    parts += [np.diff(texts.offsets).astype(np.int32).tobytes(), texts.data]
    return [len(texts.data)]


def rejoined(parts: Sequence[bytes]) -> RecordBatch:
    """The whole of parts of a batch that were packed with their places; what several have comes once."""
    read = [_read(part) for part in parts if part]
    if not read:
        return NO_RECORDS
    _, places = np.unique(np.concatenate([at for _, at in read]), return_index=True)
    return together([batch for batch, _ in read]).taken(places)


def unpacked(blob: bytes) -> RecordBatch:
    """Inverse of ``packed``, as columns."""
    return _read(blob)[0] if blob else NO_RECORDS


def _read(blob: bytes) -> tuple[RecordBatch, Ints]:
    """Records, and their places if they were packed with them."""
    data = expanded(blob)
    _, size = _LENGTHS.unpack_from(data)
    head = orjson.loads(memoryview(data)[_LENGTHS.size : _LENGTHS.size + size])
    end = _LENGTHS.size + size

    def buffer(kind: type[np.generic], length: int) -> npt.NDArray[Any]:
        nonlocal end
        first = end + -end % _WORD
        end = first + length * np.dtype(kind).itemsize
        return np.frombuffer(data, kind, length, first)

    records = head["records"]
    relation = buffer(np.int32, records).astype(np.int64)
    time = buffer(np.int64, records)
    told = buffer(np.int8, records) if head["deletes"] else None
    places = buffer(np.int64, records) if head["places"] else np.arange(records)
    blocks = []
    for number, size, described, searched in head["blocks"]:
        columns: list[Values] = []
        for sizes in described:
            if isinstance(sizes, int):
                columns.append(orjson.loads(buffer(np.uint8, sizes).data))
            elif sizes:
                offsets = np.concatenate([[0], np.cumsum(buffer(np.int32, size), dtype=np.int64)])
                columns.append(Texts(buffer(np.uint8, sizes[0]).tobytes(), offsets))
            else:
                columns.append(buffer(np.int64, size))
        blocks.append(ColumnBlock(number, columns, frozenset(searched)))
    if told is None:
        return RecordBatch(relation, time, Rows.in_order(relation, blocks)), places
    truncates = told == _TRUNCATES
    rows = Rows.in_order(relation[~truncates], blocks)
    if truncates.any():
        rows = rows.among_truncations(relation, truncates)
    return RecordBatch(relation, time, rows, told.astype(bool)), places
