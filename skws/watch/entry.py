"""One micro-batch, as it is worked on and as the journal keeps it: commands, then records."""

from __future__ import annotations

from dataclasses import asdict, dataclass

import orjson

from skws.records import Record
from skws.sources.feed import Offset
from skws.watch.control import Command


@dataclass(frozen=True, slots=True)
class Entry:
    """What came between two offsets of the source, and between two of the control folder.

    ``letters``: bad records as lines of the dead letter file. ``bad``: their number.
    ``ended``: so has the source.
    """

    number: int
    end: Offset
    control: int
    commands: tuple[Command, ...] = ()
    records: tuple[Record, ...] = ()
    letters: tuple[str, ...] = ()
    bad: int = 0
    ended: bool = False

    @property
    def insertions(self) -> int:
        return sum(not record.delete for record in self.records)

    def to_json(self) -> bytes:
        """What the journal keeps."""
        shown = {
            "number": self.number,
            "end": self.end,
            "control": self.control,
            "commands": [asdict(command) for command in self.commands],
            "records": [tuple(record) for record in self.records],
            "letters": self.letters,
            "bad": self.bad,
            "ended": self.ended,
        }
        return orjson.dumps(shown)

    @classmethod
    def from_json(cls, text: bytes) -> Entry:
        """Inverse of ``to_json``."""
        told = orjson.loads(text)
        told["commands"] = tuple(Command(**command) for command in told["commands"])
        told["records"] = tuple(
            Record(r, time, tuple(row), delete) for r, time, row, delete in told["records"]
        )
        told["letters"] = tuple(told["letters"])
        return cls(**told)
