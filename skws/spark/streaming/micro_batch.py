"""What the source hands to each shard for a micro-batch: a head for the job, and records as columns of JSON.

A log keeps the records as they came, so they are packed once and never again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from itertools import chain
from struct import Struct
from typing import Any, Final

import numpy as np
import orjson

from skws.data.batch import NO_RECORDS, Ints, RecordBatch, Rows, together
from skws.data.blocks import Block, ColumnBlock
from skws.jobs.control import Command
from skws.spark.streaming.compressed import compressed, expanded
from skws_schema.model import Value

_LENGTHS: Final = Struct("<II")


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
    columns = [(number, _columns(blocks, places)) for number, blocks, _, places in batch.rows.by_relation()]
    told: dict[str, object] = {"relations": batch.relation, "times": batch.time, "columns": columns}
    if batch.delete is not None and batch.delete.any():
        told["deletes"] = batch.delete
    if places is not None:
        told["places"] = places
    return compressed(orjson.dumps(told, option=orjson.OPT_SERIALIZE_NUMPY))


def _columns(blocks: Sequence[Block], places: Ints) -> list[Sequence[Value]]:
    """The values by column of rows at some places in all the blocks."""
    found: list[Sequence[Value]] = []
    whole = len(places) == sum(map(len, blocks)) and bool((np.diff(places) == 1).all())
    taken = None if whole else places.tolist()
    for column in range(len(blocks[0].row(0))):
        values = list(chain.from_iterable(block.values(column) for block in blocks))
        found.append(values if taken is None else [values[place] for place in taken])
    return found


def rejoined(parts: Sequence[bytes]) -> RecordBatch:
    """The whole of parts of a micro-batch that were packed with their places."""
    told = [orjson.loads(expanded(part)) for part in parts if part]
    if not told:
        return NO_RECORDS
    places = np.concatenate([one["places"] for one in told])
    return together([_read(one) for one in told]).taken(np.argsort(places))


def unpacked(blob: bytes) -> RecordBatch:
    """Inverse of ``packed``, as columns."""
    return _read(orjson.loads(expanded(blob))) if blob else NO_RECORDS


def _read(told: dict[str, Any]) -> RecordBatch:
    relation = np.array(told["relations"], dtype=np.int64)
    blocks = [ColumnBlock(number, columns) for number, columns in told["columns"]]
    deletes = told.get("deletes")
    return RecordBatch(
        relation,
        np.array(told["times"], dtype=np.int64),
        Rows.in_order(relation, blocks),
        None if deletes is None else np.array(deletes, dtype=bool),
    )
