"""What a task and its shard's server send each other; apart, so that tasks do not load the engine."""

from __future__ import annotations

import socket
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path
from typing import TYPE_CHECKING, Any

from skws.queries.partitioning import Part
from skws.spark.streaming.lazy_pickle import LazyPickle
from skws.spark.streaming.record_log import Chunk

if TYPE_CHECKING:
    from skws.results.model import LiveResult
    from skws.spec.job import Job
    from skws.spec.query import Query


@dataclass(frozen=True, slots=True)
class Setup:
    """What a server is started with. ``daemon``: the process without which it has no reason to live."""

    request: LazyPickle[Job]
    share: Part
    socket: Path
    daemon: int


@dataclass(frozen=True, slots=True)
class Worked:
    """What a micro-batch came to, and how the log must change.

    ``stats`` are for the driver, JSON objects. ``chunk``: what to know of the
    records just taken, None if there were none. ``dropped``: chunks that can
    go. ``added`` and ``removed``: queries. ``states``: of those that keep
    their own. ``schemas``: those that it has changed to. ``position`` and ``now``: where the stream stands.
    ``blobs``: stats and results, encoded; a server sends these in place of both.
    """

    results: list[LiveResult]
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


@dataclass(frozen=True, slots=True)
class Failed:
    """An answer in place of another. ``kind``: the name of an error of ours, empty for any other."""

    kind: str
    message: str


BEHIND = "behind"
"""In place of ``Worked``: the server's mesh is of another epoch, and needs the state first."""
PAST = "past"
"""In place of ``Worked``: the batch's commands need the log."""


def talking(connected: socket.socket) -> Connection:
    """Objects over a socket, which nobody else can reach."""
    return Connection(connected.detach())
