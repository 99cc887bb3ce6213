"""What the source hands to each shard for a micro-batch: a head for the job, and records as columns.

A log keeps the records as they came, so they are packed once and never again.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from struct import Struct
from typing import Final

import orjson

from skws.jobs.control import Command

_LENGTHS: Final = Struct("<II")


@dataclass(frozen=True, slots=True)
class BatchHeader:
    """All of a micro-batch but its records.

    ``read``: seconds since the epoch when it was read, which took ``reading``
    seconds. ``letters``: bad
    records as lines of the dead letter file; ``bad``: their number.
    ``reasons``: the first few, for the user. ``notices`` are lines for the
    user, ``behind`` what waits in the source (None: not asked). ``ended``:
    nothing will come after this. ``number``: micro-batches are counted.
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
        shown = orjson.loads(text)
        shown["commands"] = tuple(Command(**one) for one in shown["commands"])
        for name in ("letters", "reasons", "notices"):
            shown[name] = tuple(shown[name])
        return cls(**shown)


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
