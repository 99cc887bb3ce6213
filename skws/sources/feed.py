"""The protocol of live sources (``Source``, ``Feed``), and code that all sources share.

A feed gives batches of records between offsets. An offset is a small JSON object that only its source
understands. A run can resume from its last offset in another process: the records between two offsets are the
same each time, if the source can read them again.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import ceil
from select import POLLIN, poll
from typing import Any, Final, Protocol, TypeAlias, TypeVar
from urllib.parse import parse_qsl

from skws.data.batch import Chunk
from skws_schema.errors import SourceError, UsageError, nearest, shown
from skws_schema.model import Schema

Offset: TypeAlias = dict[str, Any]
_Position = TypeVar("_Position")


def parse_offset(offset: Offset, source: str, parse: Callable[[], _Position]) -> _Position:
    """The position in ``offset``, by ``parse``. Raises SourceError if it is not an offset of ``source``."""
    try:
        return parse()
    except (KeyError, TypeError, ValueError, AttributeError):
        raise SourceError(f"{shown(offset)} is not an offset of {source}") from None


@dataclass(frozen=True, slots=True)
class Batch:
    """The result of one poll: the records, and the offset after them.

    ``notices``: lines for the user (a file was truncated, a connection lost). ``ended``: True if the source
    has no more records. ``ahead``: the times of known records that come next, by partition. ``over``:
    partitions that have no more records. ``answered``: False if the source is away, so that partitions may
    have records that it cannot give.
    """

    read: Chunk
    end: Offset
    notices: tuple[str, ...] = ()
    ended: bool = False
    ahead: Mapping[int, int] = field(default_factory=dict)
    over: frozenset[int] = frozenset()
    answered: bool = True


@dataclass(frozen=True, slots=True)
class Backlog:
    """The unread part of a source.

    ``text``: a line for the user, in the terms of the source; empty if unknown. ``behind_bytes``: the unread
    bytes of a database's log. ``kept_bytes``: the bytes of the log that the server keeps for this run. Both
    are None for other sources.
    """

    text: str = ""
    behind_bytes: int | None = None
    kept_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class BatchPlan:
    """The end of a batch that is read in parts (``Feed.parts``).

    ``rest``: True if there are further records. ``notices``, ``over``: as in ``Batch``. ``reached``: for
    each partition with records in the batch the time of its last one, or None if it is unknown.
    """

    end: Offset
    rest: bool
    notices: tuple[str, ...] = ()
    reached: Mapping[int, int | None] = field(default_factory=dict)
    over: frozenset[int] = frozenset()


class FeedPart(Protocol):
    """A part of the records between two offsets; any process with access to the source can read it.

    ``partition``: a number above 0 of the file or partition, whose parts are consecutive. None if the chunks
    have it (``Chunk.partitions``). ``may_grow``: True if the partition may have more records later.
    ``until``: the least time of unread records after the batch, also in files without a part; None if all
    records that may be earlier than those of this part are in the batch.
    """

    @property
    def partition(self) -> int | None:
        return None

    @property
    def may_grow(self) -> bool:
        return False

    @property
    def until(self) -> int | None:
        return None

    def read(self, schema: Schema) -> Iterator[Chunk]:
        """The records; may be called repeatedly. Raises SourceError."""


class Feed(Protocol):
    """An open source. For one thread at a time; all methods may raise SourceError."""

    def start(self) -> Offset:
        """The first offset of a new run. Not called when a run resumes from an offset."""

    @property
    def partitioned(self) -> bool:
        """True if its records come from partitions that advance independently (``Chunk.partitions``)."""
        return False

    @property
    def tables_pending(self) -> bool:
        """True if further rows of static tables may precede the stream; ``tables`` is then called again."""
        return False

    def tables(self) -> Iterator[Chunk]:
        """The rows of static tables: all are loaded before the first poll, and after any ``start``."""

    def poll(self, start: Offset, limit: int) -> Batch:
        """At most about ``limit`` records after ``start``; does not wait for more.

        A change that makes two records is never split, so there may be one more.
        """

    def replay(self, start: Offset, end: Offset) -> Chunk:
        """Read the records between two offsets again, also in another process.

        Raises SourceError if the source no longer has them.
        """

    def plan(self, start: Offset, limit: int) -> BatchPlan | None:  # noqa: ARG002 - few can be divided
        """The end of a batch of about ``limit`` records after ``start``, if it can be read in parts.

        None if the source cannot be divided, or has too few records; it is then polled.
        """
        return None

    def parts(self, start: Offset, end: Offset, number: int) -> Sequence[FeedPart] | None:  # noqa: ARG002 - see ``plan``
        """The records of ``replay`` in about ``number`` consecutive parts.

        None if they cannot be divided. Raises SourceError if the source no longer has them.
        """
        return None

    def commit(self, end: Offset) -> None:  # noqa: ARG002 - files keep everything
        """Let the source forget the records before ``end``, which will not be read again."""
        return

    def backlog(self, offset: Offset) -> Backlog:  # noqa: ARG002 - most sources do not know
        """The unread part of the source after ``offset``."""
        return Backlog()

    def change_schema(self, schema: Schema) -> None:
        """Read records by a changed schema, from the next poll on.

        Raises SourceError, without any effect, if the source does not fit it.
        """

    def close(self) -> None:
        """Close files and connections. Uncommitted items can be read again."""
        return


class OuterFeed(Feed):
    """A feed around another one: it adds to its batches and to its offsets."""

    def __init__(self, feed: Feed) -> None:
        self._feed = feed

    def start(self) -> Offset:
        return self._feed.start()

    @property
    def partitioned(self) -> bool:
        return self._feed.partitioned

    @property
    def tables_pending(self) -> bool:
        return self._feed.tables_pending

    def tables(self) -> Iterator[Chunk]:
        return self._feed.tables()

    def replay(self, start: Offset, end: Offset) -> Chunk:
        return self._feed.replay(self._inner_offset(start), self._inner_offset(end))

    def commit(self, end: Offset) -> None:
        self._feed.commit(self._inner_offset(end))

    def backlog(self, offset: Offset) -> Backlog:
        return self._feed.backlog(self._inner_offset(offset))

    def change_schema(self, schema: Schema) -> None:
        self._feed.change_schema(schema)

    def close(self) -> None:
        self._feed.close()

    def _inner_offset(self, offset: Offset) -> Offset:
        """The offset of the inner feed."""
        raise NotImplementedError


class Source(Protocol):
    """The origin of records. ``name`` contains no password.

    ``bounded``: it ends. ``local_only``: only a job in one process can read it. ``divisible``: its feeds can
    give parts (``Feed.parts``).
    """

    @property
    def name(self) -> str: ...

    @property
    def bounded(self) -> bool:
        return False

    @property
    def local_only(self) -> bool:
        return False

    @property
    def divisible(self) -> bool:
        return False

    def open(self, schema: Schema) -> Feed:
        """Open the source. Raises SourceError if it does not exist or does not fit the schema."""

    def leave_nothing(self) -> str:
        """Remove the objects of a run that cannot be resumed; returns a line for the user, or an empty text.

        Raises SourceError.
        """
        return ""


def static_relations(schema: Schema) -> frozenset[int]:
    """The positions of the static tables of ``schema``."""
    return frozenset(i for i, relation in enumerate(schema.relations) if relation.table)


class Clock(Protocol):
    """The time for sources that need it; tests pass their own."""

    def now(self) -> int:
        """Microseconds since a fixed instant, never decreasing."""

    def sleep(self, micros: int) -> None: ...


class SystemClock:
    """The machine's monotonic clock."""

    def now(self) -> int:
        return time.monotonic_ns() // 1000

    def sleep(self, micros: int) -> None:
        time.sleep(micros / 1_000_000)


class Watchable(Protocol):
    def fileno(self) -> int: ...


def readable(file: int | Watchable, seconds: float) -> bool:
    """Wait at most ``seconds`` until ``file`` has data or has ended; True if so.

    It uses poll, since select refuses descriptors from 1,024 on, which a process with many files has.
    """
    poller = poll()
    poller.register(file, POLLIN)
    return bool(poller.poll(ceil(seconds * 1000)))


def parameters(query: str, names: Collection[str], where: str, hint: str = "") -> dict[str, str]:
    """The parameters of an address.

    Raises UsageError for an unknown one; the message begins with ``where``.
    """
    values = dict(parse_qsl(query, keep_blank_values=True))
    for name in values:
        if name not in names:
            raise UsageError(f"{where} no parameter {shown(name)}{nearest(name, names)}{hint}")
    return values


HIDDEN: Final = "***"
REPLAY: Final = "replay:"
"""The beginning of the address of a replay."""
# Up to the last @, so that a password that contains one is hidden (perhaps with the query).
_USER_INFO: Final = re.compile(r"(?<=://)([^:/?#@]*):(.*)@", re.S)
_PARAMETER: Final = re.compile(
    r"(?i)((?:^|[?&\s;])[\w.]*(?:password|secret|token)\s*=\s*)('(?:[^'\\]|\\.)*'|[^&\s;]*)"
)


def redacted(address: str) -> str:
    """``address`` with every password replaced by stars."""
    return _PARAMETER.sub(rf"\g<1>{HIDDEN}", _USER_INFO.sub(rf"\g<1>:{HIDDEN}@", address))


def replay_path(address: str) -> tuple[str, str]:
    """The path and the parameters of the address of a replay: those after the last question mark."""
    text = address.removeprefix(REPLAY)
    path, _, query = text.rpartition("?") if "?" in text else (text, "", "")
    return path, query
