"""The protocol of live sources (``Source``, ``Feed``), and what all sources share.

A feed gives batches of records between offsets. An offset is a small JSON
object that only its source understands. A run can resume from its last offset
in another process: the records between two offsets are the same each time, as
far as the source can read them again.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from math import ceil
from select import POLLIN, poll
from typing import Any, Final, Protocol, TypeAlias, TypeVar
from urllib.parse import parse_qsl

from skws.data.batch import Chunk, Item
from skws_schema.errors import SourceError, UsageError, nearest
from skws_schema.model import Schema

Offset: TypeAlias = dict[str, Any]
_Position = TypeVar("_Position")


def parse_offset(offset: Offset, source: str, parse: Callable[[], _Position]) -> _Position:
    """The position in ``offset``, by ``parse``. Raises SourceError if it is not an offset of ``source``."""
    try:
        return parse()
    except (KeyError, TypeError, ValueError, AttributeError):
        raise SourceError(f"{offset!r} is not an offset of {source}") from None


@dataclass(frozen=True, slots=True)
class Batch:
    """The result of one poll: what was read, and the offset after it.

    ``notices`` are lines for the user (a file was cut, a connection lost).
    ``ended``: the source has ended; no more will come.
    """

    read: Chunk
    end: Offset
    notices: tuple[str, ...] = ()
    ended: bool = False


@dataclass(frozen=True, slots=True)
class Backlog:
    """How much of a source is not read yet.

    ``text``: a line for the user in the source's own words; empty if unknown. ``behind_bytes``: of a
    database's log. ``kept_bytes``: of the log that the server keeps since this run may read it again. None
    of other sources.
    """

    text: str = ""
    behind_bytes: int | None = None
    kept_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class BatchPlan:
    """The end of a batch that nobody has read yet: who wants its records reads its parts (``Feed.parts``).

    ``rest``: there is more behind it. ``notices``: as of a batch.
    """

    end: Offset
    rest: bool
    notices: tuple[str, ...] = ()


class FeedPart(Protocol):
    """A part of what is between two offsets: any process reads it, on any machine that sees the source.

    ``partition``: a number above 0 of what it is a part of, as a file: such parts follow each other. None if
    its chunks tell (``Chunk.partitions``). ``until``: the least time of what is unread behind the batch, also
    in what it has nothing of; None if all that may be earlier than its records is in the batch.
    """

    @property
    def partition(self) -> int | None:
        return None

    @property
    def until(self) -> int | None:
        return None

    def read(self, schema: Schema) -> Iterator[Chunk]:
        """The records, as often as it is called. Raises SourceError."""


class Feed(Protocol):
    """An open source. For one thread at a time; all methods may raise SourceError."""

    def start(self) -> Offset:
        """The first offset of a new run, ready to be polled. Not called when a run resumes from an offset."""

    @property
    def tables_pending(self) -> bool:
        """Whether rows of static tables may still come before the stream: call ``tables`` again."""
        return False

    def tables(self) -> Iterator[Item]:
        """The rows of static tables, to be loaded whole before the first poll and after any ``start``."""

    def poll(self, start: Offset, limit: int) -> Batch:
        """At most about ``limit`` records after ``start``; does not wait for more to arrive.

        A change that makes two records is never split, so one more may come.
        """

    def replay(self, start: Offset, end: Offset) -> Chunk:
        """What polls gave between two offsets, once more; also in another process.

        Raises SourceError if the source no longer has them.
        """

    def plan(self, start: Offset, limit: int) -> BatchPlan | None:  # noqa: ARG002 - most cannot be divided
        """Where a batch of about ``limit`` records after ``start`` ends, if it can be read in parts.

        None to ``poll``: the source cannot be divided, or has too little to be worth that.
        """
        return None

    def parts(self, start: Offset, end: Offset, number: int) -> Sequence[FeedPart] | None:  # noqa: ARG002 - see ``plan``
        """What ``replay`` gives between two offsets, in about so many parts that follow each other.

        None if it cannot be divided. Raises SourceError if the source no longer has it.
        """
        return None

    def commit(self, end: Offset) -> None:  # noqa: ARG002 - files keep everything
        """Let the source forget everything before ``end``: it will not be read again."""
        return

    def backlog(self, offset: Offset) -> Backlog:  # noqa: ARG002 - most sources cannot tell
        """How much of the source comes after ``offset``."""
        return Backlog()

    def change_schema(self, schema: Schema) -> None:
        """Read records by a later schema of the same search, from the next poll on.

        Raises SourceError if the source does not fit it; then nothing has changed.
        """

    def close(self) -> None:
        """Close files and connections. Items that were not committed can be read again."""
        return


class Source(Protocol):
    """A place that records come from; ``name`` may be shown to anyone (it holds no password).

    ``bounded``: it ends by itself. ``local_only``: only a loop in one process can read it.
    """

    @property
    def name(self) -> str: ...

    @property
    def bounded(self) -> bool:
        return False

    @property
    def local_only(self) -> bool:
        return False

    def open(self, schema: Schema) -> Feed:
        """Raises SourceError if the source is not there or does not fit the schema."""

    def leave_nothing(self) -> str:
        """Remove what a run that cannot be resumed has made there; a line for the user, or an empty text.

        Raises SourceError.
        """
        return ""


def static_relations(schema: Schema) -> frozenset[int]:
    """The positions of the static tables of ``schema``."""
    return frozenset(i for i, relation in enumerate(schema.relations) if relation.table)


class Clock(Protocol):
    """The time for sources that need it; tests pass their own."""

    def now(self) -> int:
        """Microseconds since some fixed instant, never going back."""

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
    """Wait at most ``seconds`` until ``file`` has data or has ended; whether it does.

    By poll, since select refuses the descriptors from 1,024 on that a process with many files has.
    """
    watched = poll()
    watched.register(file, POLLIN)
    return bool(watched.poll(ceil(seconds * 1000)))


def parameters(query: str, names: Collection[str], where: str, hint: str = "") -> dict[str, str]:
    """The parameters of an address. Raises UsageError, which begins with ``where``, for an unknown one."""
    values = dict(parse_qsl(query, keep_blank_values=True))
    for name in values:
        if name not in names:
            raise UsageError(f"{where} no parameter {name!r}{nearest(name, names)}{hint}")
    return values


HIDDEN: Final = "***"
# To the last @, so that a password with one in it is hidden whole (a query may be hidden with it).
_USER_INFO: Final = re.compile(r"(?<=://)([^:/?#@]*):(.*)@", re.S)
_PARAMETER: Final = re.compile(
    r"(?i)((?:^|[?&\s;])[\w.]*(?:password|secret|token)\s*=\s*)('(?:[^'\\]|\\.)*'|[^&\s;]*)"
)


def redacted(address: str) -> str:
    """``address`` with every password replaced by stars."""
    return _PARAMETER.sub(rf"\g<1>{HIDDEN}", _USER_INFO.sub(rf"\g<1>:{HIDDEN}@", address))
