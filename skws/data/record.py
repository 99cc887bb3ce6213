"""What flows into an engine: records that insert or delete a tuple at a time."""

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
"""Hears of a record that is too late, and of the latest time before it, in microseconds."""


def unheard(_record: Record, _reached: int) -> None:
    """Late records that nobody asks for."""


@dataclass(frozen=True, slots=True)
class BadRecord:
    """Input that is no record: where it stands, its raw bytes, and why.

    ``line`` counts from 1 (0 where the format has no lines); ``offset`` is in
    bytes (in rows for Parquet, in messages for Kafka). ``where``: how the place
    within ``source`` is told, where line and row do not tell it.
    """

    source: str
    line: int
    offset: int
    raw: bytes
    reason: str
    where: str = ""


Item: TypeAlias = Record | BadRecord
