"""The messages between the processes of a live job; a separate module, so that tasks do not load the engine.

The source sends micro-batches to each shard. Their records are packed once, and logged as they are. A task
passes them to its shard's server, which answers with the results.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, groupby
from operator import itemgetter
from pathlib import Path
from struct import Struct
from typing import TYPE_CHECKING, Any, Final

import msgspec

from skws.data.packing import concat_packed
from skws.jobs.control import JobCommand
from skws.queries.partitioning.parts import Part
from skws.sources.feed import Backlog
from skws_purging.lifespans import ALWAYS

if TYPE_CHECKING:
    from skws.results.result import Result
    from skws.spec.query_spec import Query

_LENGTHS: Final = Struct("<II")


@dataclass(frozen=True, slots=True)
class BatchHeader:
    """A micro-batch without its records.

    ``read``: when it was read, in seconds since the epoch; that took ``reading`` seconds. ``letters``: bad
    records as lines of the dead letter file; ``bad``: their number; ``reasons``: the first few, for the user.
    ``notices``: lines for the user. ``task_notices``: such lines from tasks, which may repeat each other's.
    ``backlog``: the unread part of the source; None if it was not asked. ``ended``: this is the last
    micro-batch. ``number``: that of the micro-batch. ``watched``: a listener of the driver wants internal
    figures. ``reached``: the latest time of all records, if a shard does not get all of them. ``final``: the
    stream time after the records, if there are several partitions (``Session.settle``).
    """

    read: float
    commands: tuple[JobCommand, ...] = ()
    letters: tuple[str, ...] = ()
    bad: int = 0
    reasons: tuple[str, ...] = ()
    notices: tuple[str, ...] = ()
    task_notices: tuple[str, ...] = ()
    backlog: Backlog | None = None
    ended: bool = False
    number: int = 0
    watched: bool = False
    reading: float = 0.0
    reached: int | None = None
    final: int | None = None


_READ_HEADER: Final = msgspec.json.Decoder(BatchHeader).decode


@dataclass(frozen=True, slots=True)
class MicroBatch:
    """A micro-batch. ``tables`` and ``records`` are packed, and empty if there are none."""

    head: BatchHeader
    tables: bytes = b""
    records: bytes = field(default=b"")

    def to_bytes(self) -> bytes:
        head = msgspec.json.encode(self.head)
        return _LENGTHS.pack(len(head), len(self.tables)) + head + self.tables + self.records

    @classmethod
    def from_bytes(cls, blob: bytes) -> MicroBatch:
        """Inverse of ``to_bytes``."""
        head, tables = _LENGTHS.unpack_from(blob)
        first, second = _LENGTHS.size + head, _LENGTHS.size + head + tables
        return cls(_READ_HEADER(blob[_LENGTHS.size : first]), blob[first:second], blob[second:])


def micro_batches_of(rows: Iterable[tuple[int, int, bytes]]) -> Iterator[bytes]:
    """The micro-batches of a shard from its rows: the number, the place and a blob, in order of these.

    Rows at places before 0 are the beginning of the row at place 0, if that is too long for one.
    """
    for _, of_batch in groupby(rows, itemgetter(0)):
        parts = groupby(of_batch, lambda row: max(row[1], 0))
        yield join_parts([b"".join(blob for *_, blob in pieces) for _, pieces in parts])


def join_parts(blobs: Sequence[bytes]) -> bytes:
    """A micro-batch, and the parts that tasks have read, in order of their places, as one."""
    if len(blobs) == 1:
        return blobs[0]
    first, *parts = map(MicroBatch.from_bytes, blobs)
    heads = [part.head for part in parts]
    latest_times = [head.reached for head in heads if head.reached is not None]
    head = replace(
        first.head,
        letters=tuple(chain.from_iterable(head.letters for head in heads)),
        bad=sum(head.bad for head in heads),
        reasons=tuple(chain.from_iterable(head.reasons for head in heads)),
        task_notices=tuple(chain.from_iterable(head.task_notices for head in heads)),
        reading=first.head.reading + max(head.reading for head in heads),
        reached=max(latest_times, default=None),
    )
    return MicroBatch(head, first.tables, concat_packed([part.records for part in parts])).to_bytes()


@dataclass(frozen=True, slots=True)
class Chunk:
    """The records of one micro-batch, in the log of a shard.

    ``position``, ``now`` and ``final``: the state of the stream before them. ``latest``: the latest time
    among them. ``after``: the position after them. ``size``: in bytes. ``begins``: of results that they
    updated, as lists. ``live``: it replaces the log up to it, and has the rows that were alive; older
    chunks may stay for queries with short windows. ``reached``: ``now`` after a live chunk. ``settled``:
    ``final`` after the records.
    """

    number: int
    position: int
    now: int
    latest: int
    after: int
    size: int = 0
    final: int | None = None
    begins: dict[str, list[list[Any]]] = field(default_factory=dict)
    live: bool = False
    reached: int = ALWAYS
    settled: int | None = None

    @property
    def place(self) -> tuple[int, bool]:
        """The position in the log; a live chunk follows the chunks that it replaces."""
        return self.number, self.live

    @property
    def is_plain(self) -> bool:
        """True if it has no information but the state of the stream."""
        times = self.final, self.settled
        return not self.live and times == (None, None) and not any(self.begins.values())


@dataclass(frozen=True, slots=True)
class LogEnd:
    """The end of a shard's log. ``position``, ``now`` and ``final``: those of the stream (``Session``).

    ``ended``: the latest time of the micro-batches with deletions.
    """

    position: int
    now: int
    final: int | None
    ended: int


@dataclass(frozen=True, slots=True)
class Setup:
    """The arguments of a server. ``daemon``: the process with which the server ends.

    ``tabular``: the server returns results as tables of Arrow instead of lines of JSON.

    ``request``: the pickled job. At least four Python processes only pass it on, and would each take two
    seconds to load its modules.
    """

    request: bytes
    share: Part
    socket: Path
    daemon: int
    tabular: bool = False


@dataclass(frozen=True, slots=True)
class BatchAnswer:
    """The answer to a micro-batch: its results, and how the log must change.

    ``stats``: JSON objects for the driver. ``chunk``: describes the new records; None if they are not logged.
    ``live``: a chunk with the live rows that replaces all earlier ones, and its records. ``over``: the
    previous live chunk, or the chunks in its place, can be removed. ``dropped``: chunks to remove.
    ``added`` and ``removed``: queries. ``states``: of queries that keep their own. ``schemas``: new schemas.
    ``position``, ``now`` and ``final``: the state of the stream. ``blobs``: stats and results, encoded; a
    server sends these instead of both. ``ended``: see ``LogEnd``.
    """

    results: list[Result]
    stats: dict[str, Any]
    chunk: Chunk | None
    dropped: list[int]
    added: list[Query]
    removed: list[str]
    position: int
    now: int
    states: dict[str, bytes] = field(default_factory=dict)
    schemas: list[str] = field(default_factory=list)
    blobs: list[bytes] = field(default_factory=list)
    final: int | None = None
    live: tuple[Chunk, bytes] | None = None
    over: bool = False
    ended: int = ALWAYS


RECORDS: Final = (1 << 31) - 1
"""Replaces the number of a blob: the records of a micro-batch, for a listener."""


@dataclass(frozen=True, slots=True)
class ShardFailure:
    """The answer if a request failed. ``kind``: the name of the SkwsError; empty for any other error."""

    kind: str
    message: str


BEHIND = "behind"
"""Sent instead of ``BatchAnswer``: the server's mesh is of another epoch, and needs the state first."""
PAST = "past"
"""Sent instead of ``BatchAnswer``: the commands of the batch need the log."""
WORKING: Final = "working"
"""Sent every few seconds until the answer: the server is working on it."""
