"""What the source hands to each shard for a micro-batch: a head for the job, and records as columns.

A log keeps the records as they came, so they are packed once and never again.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import asdict, dataclass, field
from itertools import chain
from struct import Struct
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import orjson

from skws.data.batch import NO_RECORDS, Ints, RecordBatch, Rows, together
from skws.data.blocks import Block, ColumnBlock, Values, packed_integers
from skws.data.texts import Texts
from skws.jobs.control import Command
from skws.spark.streaming.compressed import compressed, expanded

_LENGTHS: Final = Struct("<II")
_FORM: Final = 1  # at the beginning of records: what is compressed begins with 0
_WORD: Final = 8  # bytes, at multiples of which buffers begin


@dataclass(frozen=True, slots=True)
class BatchHeader:
    """All of a micro-batch but its records.

    ``read``: seconds since the epoch when it was read, which took ``reading``
    seconds. ``letters``: bad
    records as lines of the dead letter file; ``bad``: their number.
    ``reasons``: the first few, told to the user. ``notices`` are lines for the
    user, ``behind`` what waits in the source (None: not asked). ``ended``:
    nothing will come after this. ``number``: parcels are counted.
    ``watched``: an onlooker of the driver wants to see what goes on inside. ``reached``: the latest time of
    all records, where a shard does not see all of them.
    """

    read: float
    commands: tuple[Command, ...] = ()
    letters: tuple[str, ...] = ()
    bad: int = 0
    reasons: tuple[str, ...] = ()
    notices: tuple[str, ...] = ()
    behind: str | None = None
    ended: bool = False
    number: int = 0
    watched: bool = False
    reading: float = 0.0
    reached: int | None = None

    def to_json(self) -> bytes:
        return orjson.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: bytes) -> BatchHeader:
        """Inverse of ``to_json``."""
        told = orjson.loads(text)
        told["commands"] = tuple(Command(**one) for one in told["commands"])
        for name in ("letters", "reasons", "notices"):
            told[name] = tuple(told[name])
        return cls(**told)


@dataclass(frozen=True, slots=True)
class MicroBatch:
    """``tables`` and ``records`` are packed, empty if there are none."""

    head: BatchHeader
    tables: bytes = b""
    records: bytes = field(default=b"")

    def to_bytes(self) -> bytes:
        head = self.head.to_json()
        return _LENGTHS.pack(len(head), len(self.tables)) + head + self.tables + self.records

    @classmethod
    def from_bytes(cls, blob: bytes) -> MicroBatch:
        """Inverse of ``to_bytes``."""
        head, tables = _LENGTHS.unpack_from(blob)
        first, second = _LENGTHS.size + head, _LENGTHS.size + head + tables
        return cls(BatchHeader.from_json(blob[_LENGTHS.size : first]), blob[first:second], blob[second:])


def packed(batch: RecordBatch, places: Ints | None = None) -> bytes:
    """Records by column, their rows by relation and column; empty if there are none.

    ``places``: of a part of a micro-batch, where its records are in the whole.
    """
    if not len(batch):
        return b""
    deletes = batch.delete if batch.delete is not None and batch.delete.any() else None
    parts = [batch.relation.astype(np.int32).tobytes(), batch.time.tobytes()]
    if deletes is not None:
        parts.append(deletes.astype(np.int8).tobytes())
    if places is not None:
        parts.append(places.tobytes())
    blocks = []
    for number, held, _, at in batch.rows.by_relation():
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
    """The whole of parts of a micro-batch that were packed with their places."""
    read = [_read(part) for part in parts if part]
    if not read:
        return NO_RECORDS
    return together([batch for batch, _ in read]).taken(np.argsort(np.concatenate([at for _, at in read])))


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
    deletes = buffer(np.int8, records).astype(bool) if head["deletes"] else None
    places = buffer(np.int64, records) if head["places"] else np.arange(records)
    blocks = []
    for number, rows, told, searched in head["blocks"]:
        columns: list[Values] = []
        for sizes in told:
            if isinstance(sizes, int):
                columns.append(orjson.loads(buffer(np.uint8, sizes).data))
            elif sizes:
                offsets = np.concatenate([[0], np.cumsum(buffer(np.int32, rows), dtype=np.int64)])
                columns.append(Texts(buffer(np.uint8, sizes[0]).tobytes(), offsets))
            else:
                columns.append(buffer(np.int64, rows))
        blocks.append(ColumnBlock(number, columns, frozenset(searched)))
    return RecordBatch(relation, time, Rows.in_order(relation, blocks), deletes), places
