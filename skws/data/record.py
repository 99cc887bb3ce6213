"""Records: insertions and deletions of tuples, each at a time; and input that is malformed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from skws_schema.model import Row


class Record(NamedTuple):
    """One insertion or deletion.

    ``relation`` is the relation's position in the schema, ``time`` the event
    time in microseconds since the epoch (0 for static tables). A deletion's
    row may hold the key attributes alone.
    """

    relation: int
    time: int
    row: Row
    delete: bool = False


OnLate: TypeAlias = Callable[[Record, int], None]
"""Called with a late record and the latest time before it, in microseconds."""


def unheard(_record: Record, _reached: int) -> None:
    """Ignores late records."""


@dataclass(frozen=True, slots=True)
class BadRecord:
    """A malformed record: its place, its raw bytes, and the reason.

    ``line`` counts from 1 (0 where the format has no lines); ``offset`` is in
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
