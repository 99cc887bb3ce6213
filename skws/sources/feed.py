"""What a live source is to whoever follows it: batches of records between offsets.

An offset is a small JSON object that only its source understands. Whoever
keeps the last one can go on there in another process: the records between
two offsets are the same each time, as far as the source can give them again.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

from schema.model import Schema
from skws.records import BadRecord, Record

Offset: TypeAlias = dict[str, Any]
Item: TypeAlias = Record | BadRecord


@dataclass(frozen=True, slots=True)
class Batch:
    """What one poll gave: items in order of arrival, and the offset behind them.

    ``notices`` are lines for the user (a file was cut, a connection lost).
    ``ended``: nothing will ever come after this.
    """

    items: Sequence[Item]
    end: Offset
    notices: tuple[str, ...] = ()
    ended: bool = False


class Feed(Protocol):
    """An open source. One thread at a time; all methods may raise SourceError."""

    def start(self) -> Offset:
        """The offset of a new run, made ready to be followed. Not called when a run goes on at an offset."""

    @property
    def tables_come(self) -> bool:
        """Whether rows of static tables may still come ahead of the stream: ``tables`` is asked again."""

    def tables(self) -> Iterator[Item]:
        """The rows of static tables, to be loaded whole before the first poll and after any ``start``."""

    def poll(self, start: Offset, limit: int) -> Batch:
        """About ``limit`` items behind ``start`` at most, without waiting for more to arrive.

        A change that gives two records is never parted, so one more may come.
        """

    def again(self, start: Offset, end: Offset) -> Iterator[Item]:
        """The items that polls gave between two offsets, once more; also in another process.

        Raises SourceError where the source no longer has them.
        """

    def commit(self, end: Offset) -> None:
        """Nothing before ``end`` will be asked for again: the source may forget it."""

    def behind(self, offset: Offset) -> str:
        """How much waits behind ``offset``, as a line for the user; empty if that cannot be known."""

    def adopt(self, schema: Schema) -> None:
        """Read records by another schema, a later one of the same search, from the next poll on.

        Raises SourceError if the source does not fit it; then nothing has changed.
        """

    def close(self) -> None:
        """Let go of files and connections. What was not committed stays to be read."""


class Source(Protocol):
    """A place that records come from; ``name`` is fit to be shown (no password in it).

    ``local_only``: only a loop in one process can follow it.
    """

    @property
    def name(self) -> str: ...

    @property
    def local_only(self) -> bool: ...

    def open(self, schema: Schema) -> Feed:
        """Raises SourceError if the source is not there or does not fit the schema."""
