"""The messages between the processes of a live job; a module apart, so that tasks do not load the engine.

The source hands each shard micro-batches, whose records are packed once: a log keeps them as they came. A
task asks its shard's server what they come to.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from struct import Struct
from typing import TYPE_CHECKING, Any, Final

import msgspec

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

    ``read``: seconds since the epoch when it was read, which took ``reading``
    seconds. ``letters``: bad
    records as lines of the dead letter file; ``bad``: their number.
    ``reasons``: the first few, for the user. ``notices`` are lines for the
    user, ``backlog`` what waits in the source (None: not asked). ``ended``:
    nothing will come after this. ``number``: micro-batches are counted.
    ``watched``: an onlooker of the driver wants to see what goes on inside. ``reached``: the latest time of
    all records, where a shard does not see all of them. ``final``: up to which time all partitions have come
    behind the records, where several are read (``Session.settle``).
    """

    read: float
    commands: tuple[JobCommand, ...] = ()
    letters: tuple[str, ...] = ()
    bad: int = 0
    reasons: tuple[str, ...] = ()
    notices: tuple[str, ...] = ()
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
    """``tables`` and ``records`` are packed, empty if there are none."""

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


@dataclass(frozen=True, slots=True)
class Chunk:
    """The records of one micro-batch, in the log of a shard.

    ``position``, ``now`` and ``final``: where the stream stood before them. ``latest``: the latest time among
    them; ``after``: the position behind them. ``size`` in bytes. ``begins``: of results that they updated, as
    lists. ``lasting``: it stands for all of the log up to it, with the records of what lived then; there may
    be chunks of that part of the log, up to its own number, which only queries with short windows read.
    ``reached``: ``now`` behind such a one. ``settled``: ``final`` behind them.
    """

    number: int
    position: int
    now: int
    latest: int
    after: int
    size: int = 0
    final: int | None = None
    begins: dict[str, list[list[Any]]] = field(default_factory=dict)
    lasting: bool = False
    reached: int = ALWAYS
    settled: int | None = None

    @property
    def place(self) -> tuple[int, bool]:
        """The position in the log; a lasting chunk follows the chunks that it replaces."""
        return self.number, self.lasting

    @property
    def is_plain(self) -> bool:
        """True if it says nothing of its records but where the stream stood."""
        times = self.final, self.settled
        return not self.lasting and times == (None, None) and not any(self.begins.values())


@dataclass(frozen=True, slots=True)
class Reached:
    """Where the log of a shard ends. ``position``, ``now`` and ``final``: of the stream (``Session``).

    ``ended``: the latest time of the micro-batches with deletions.
    """

    position: int
    now: int
    final: int | None
    ended: int


@dataclass(frozen=True, slots=True)
class Setup:
    """The arguments of a server. ``daemon``: the server ends when this process does. ``tabular``: results are
    wanted as tables of Arrow, not as lines of JSON.

    ``request``: the pickled job. Four Python processes and more only pass it on: it would take each of them
    two seconds to load what it refers to.
    """

    request: bytes
    share: Part
    socket: Path
    daemon: int
    tabular: bool = False


@dataclass(frozen=True, slots=True)
class Worked:
    """The answer to a micro-batch: its results, and how the log must change.

    ``stats`` are for the driver, JSON objects. ``chunk``: what to know of the
    records just taken, None if the log goes without. ``lasting``: a chunk with what lives in place of all so
    far, and its records; ``over``: the one before can go, or what is in place of it.
    ``dropped``: chunks that can go. ``added`` and ``removed``: queries. ``states``: of those that keep
    their own. ``schemas``: those that it has changed to. ``position``, ``now`` and ``final``: where the
    stream stands.
    ``blobs``: stats and results, encoded; a server sends these in place of both. ``ended``: as of
    ``Reached``.
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
    lasting: tuple[Chunk, bytes] | None = None
    over: bool = False
    ended: int = ALWAYS


RECORDS: Final = (1 << 31) - 1
"""Replaces the number of a blob: the records of a micro-batch, for a listener."""


@dataclass(frozen=True, slots=True)
class Failed:
    """The answer if a request failed. ``kind``: the name of a SkwsError, empty for any other error."""

    kind: str
    message: str


BEHIND = "behind"
"""Sent instead of ``Worked``: the server's mesh is of another epoch, and needs the state first."""
PAST = "past"
"""Sent instead of ``Worked``: the commands of the batch need the log."""
WORKING: Final = "working"
"""Sent every few seconds until the answer: the server is working on it."""
