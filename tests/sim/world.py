"""The surroundings of a simulated process: time, effects, and the faults that they meet.

An *effect* is anything that a process does to the world: a write, a sync, a
statement to a server, a sleep. Faults count effects, so a kill may come between any two.
"""

from __future__ import annotations

import errno
import os
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from random import Random
from typing import Any, Final, Literal
from unittest.mock import patch
from weakref import WeakSet

from skws import memory
from skws.durable import read_file
from skws.formats import files
from skws.jobs import checkpoint
from skws.jobs import standing_queries as standing
from skws.jobs.clock import StoppableClock
from skws.queries import operator, session
from skws.queries.keywords import engine, kind, live_results
from skws.store import directory, row_files
from skws.store.directory import RowStore, StoreSizes
from skws_mesh.columnar import hash_index, operators
from skws_mesh.columnar.store import PartialStore
from skws_purging import policy
from skws_schema import budgets as budget
from skws_schema.yaml.document import to_yaml
from skws_schema.yaml.load import parse_schema
from tests.sim.disk import Disk, Raw, installed

Kind = Literal["kill", "power", "interrupt", "short", "full", "error", "away", "repeat", "memory"]
_WRITES: Final = frozenset({"write", "create", "rename", "mkdir", "sql"})
_CALLS: Final = frozenset(
    {"write", "sync", "rename", "create", "truncate", "unlink", "read", "sql", "commit", "task"}
)
_NETWORK: Final = frozenset({"fetch", "ask"})
_DISK: Final = _CALLS - {"sql", "commit", "task"}
_MEETS: Final[dict[str, frozenset[str] | None]] = {
    "kill": None,  # any effect
    "power": None,
    "interrupt": None,
    "short": frozenset({"write"}),
    "full": _WRITES,
    "error": _CALLS,
    "away": _NETWORK,
    "repeat": _NETWORK,
    "memory": frozenset(),  # no effect, but the checks of the budget between them
}


_READ_SCHEMAS: Final = (checkpoint, operator, standing, kind)
_parse_schema: Final = lru_cache(maxsize=64)(parse_schema)
_to_yaml: Final = lru_cache(maxsize=64)(to_yaml)
"""A process reads and writes its schemas several times, which would take a fifth of a simulation."""
_BUDGET: Final = 1 << 30
_FILTER_BITS: Final = 8  # small, so that filters grow
_LEAST_SWEPT: Final = 8  # small, so that dead tuples are purged while a process lives
_row_store: Final = partial(RowStore, sizes=StoreSizes(column_rows=8))
_partial_store: Final = partial(PartialStore, most_scanned=1)
_LEAST_FILED: Final = 4  # rows that get a separate file
_MOST_FILES: Final = 4  # small, so that some of these files are merged


class Killed(BaseException):
    """The process ends here; nothing that it does afterwards has an effect."""


class Finding(Exception):  # noqa: N818 - of a simulation, and no error of its own
    """The product broke a promise."""


@dataclass(frozen=True, slots=True)
class Fault:
    """``after``: which of the effects that it can meet, from 1. ``part``: how much, or how long.

    ``at``: the name of the counted effects; without it, all that the fault can meet.
    """

    kind: Kind
    after: int
    part: float = 0.5
    at: str = ""

    def __str__(self) -> str:
        return f"{self.kind}@{self.at}{self.after}:{self.part:.3f}"

    @property
    def meets(self) -> frozenset[str] | None:
        """The names of the counted effects; None for all."""
        return frozenset({self.at}) if self.at else _MEETS[self.kind]


@contextmanager
def _limited_memory() -> Iterator[None]:
    """A context with the budget of a simulated process."""
    size, text = budget.size(), memory.size_text()
    memory.use(str(_BUDGET), lambda _: None)
    try:
        yield
    finally:
        memory.use(text, lambda _: None)
        budget.use(None if size is None else budget.MemoryBudget(size))


class World:
    """``micros``: the time. ``faults``: how many of each kind occurred. ``log``: the latest effects."""

    def __init__(self) -> None:
        self.micros = 1_700_000_000_000_000
        self.disk = Disk(self.effect, lambda: self.micros * 1000)
        self.effects = 0
        self.faults: Counter[str] = Counter()
        self.failed = False  # an error or interrupt has reached the process
        self.power_lost = False
        self._dead = self._calm = self._full = self._broken = False
        self._armed: list[list[Any]] = []
        self._away_until = 0
        self._repeats = False
        self._limited: set[str] = set()
        self._entropy = Random(0)

    @contextmanager
    def simulated(self) -> Iterator[None]:
        """A context in which files, random bytes and waits are those of the world."""
        files._has_packed_head.cache_clear()  # knowledge of files of another world
        with ExitStack() as stack:
            stack.enter_context(installed(self.disk))
            for module in _READ_SCHEMAS:
                stack.enter_context(patch.object(module, "parse_schema", _parse_schema))
            stack.enter_context(patch.object(checkpoint, "to_yaml", _to_yaml))
            stack.enter_context(patch.object(hash_index, "LEAST_BITS", _FILTER_BITS))
            for module in (operators, live_results):
                stack.enter_context(patch.object(module, "PartialStore", _partial_store))
            stack.enter_context(patch.object(policy, "LEAST", _LEAST_SWEPT))
            stack.enter_context(patch.object(row_files, "LEAST", _LEAST_FILED))
            stack.enter_context(patch.object(row_files, "MOST", _MOST_FILES))
            stack.enter_context(patch.object(directory, "RowStore", _row_store))
            stack.enter_context(patch.object(session, "PART", _LEAST_FILED))
            stack.enter_context(patch.object(engine, "LOAD_SIZE", _LEAST_FILED))
            stack.enter_context(patch.object(row_files, "mapped", self._mapped))
            stack.enter_context(_limited_memory())
            stack.enter_context(patch.object(budget, "used_bytes", self.used))
            stack.enter_context(patch.object(budget, "_holders", WeakSet()))  # not those of other worlds
            stack.enter_context(patch.object(os, "urandom", self._entropy.randbytes))
            stack.enter_context(patch.object(os, "getpid", lambda: 1))  # part of names of temporary files
            # Opened by system calls, below Python.
            stack.enter_context(patch.object(files, "CountedFile", lambda path, _: Raw(self.disk, str(path))))
            yield

    def _mapped(self, path: Path) -> memoryview:
        """A file that a process maps: its content at that time, since such a file is written once."""
        return memoryview(read_file(path))

    # --- faults ----------------------------------------------------------------------------------

    def arm(self, faults: Sequence[Fault]) -> None:
        """Schedule faults at the next effects."""
        self._armed = [[fault.after, fault, fault.meets] for fault in faults]

    @property
    def armed(self) -> int:
        """The number of scheduled faults, without writes that are cut short repeatedly."""
        return sum(armed_fault[0] > 0 and armed_fault[1].kind != "short" for armed_fault in self._armed)

    def disarm(self) -> None:
        """Cancel the scheduled faults."""
        self._armed = []
        self.free()

    def free(self) -> None:
        """Make the disk work, with free space."""
        self._full = self._broken = False
        self._limited.clear()

    def end_process(self) -> None:
        self._dead = self.failed = False
        self.disk.end_process()

    @contextmanager
    def calm(self) -> Iterator[None]:
        """A context in which another program acts, which no fault meets."""
        before, self._calm = self._calm, True
        try:
            yield
        finally:
            self._calm = before

    def effect(self, name: str, path: str = "") -> float | None:
        """Called before each effect; raises its fault. For a write: the part that is written."""
        if self._calm:
            return None
        if self._dead:
            raise Killed
        self.effects += 1
        self.micros += 20
        fraction = None
        is_limited = path in self._limited
        for armed_fault in tuple(self._armed):
            meets = armed_fault[2]
            if meets is None or name in meets:
                armed_fault[0] -= 1
                if armed_fault[0] == 0:
                    self._armed.remove(armed_fault)
                    fraction = self._meet(armed_fault[1], name, path) or fraction
        if self._broken and name in _DISK:
            self.failed = True
            raise OSError(errno.EIO, os.strerror(errno.EIO), path)
        if name in _WRITES and (self._full or is_limited):
            self.failed = True
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)
        return fraction

    def used(self) -> int:
        """The bytes that the process holds, for its checks: sometimes too many. Raises MemoryError."""
        for armed_fault in () if self._calm else self._armed:
            if armed_fault[1].kind == "memory":
                armed_fault[0] -= 1
                if armed_fault[0] == 0:
                    self.faults["memory"] += 1
                    self.failed = True
                    if armed_fault[1].part < 0.5:
                        raise MemoryError
                    return 2 * _BUDGET
        return 0

    def _meet(self, fault: Fault, name: str, path: str) -> float | None:
        self.faults[fault.kind] += 1
        match fault.kind:
            case "kill" | "power":
                self._dead, self.power_lost = True, fault.kind == "power"
                raise Killed
            case "interrupt":
                self.failed = True
                raise KeyboardInterrupt
            case "short":  # and again after as many writes
                self._armed.append([fault.after, fault, fault.meets])
                return fault.part
            case "full":
                if name == "write" and fault.part < 0.7:  # a part of this write has room yet
                    if fault.part < 0.35:
                        self._armed.append([1, Fault("full", 1, 1.0), _WRITES])
                        self.faults["full"] -= 1
                    else:
                        self._limited.add(path)  # the file reaches its limit, not the disk
                    return fault.part
                self._full = True
            case "error":
                self.failed = True
                self._broken = name in _DISK and fault.part < 0.4  # permanently, or for this call only
                raise OSError(errno.EIO, os.strerror(errno.EIO), path)
            case "away":
                self._away_until = self.micros + int(fault.part * 20_000_000)
            case "repeat":
                self._repeats = True
        return None

    @property
    def away(self) -> bool:
        """True if the servers are away for the running process."""
        return not self._calm and self.micros < self._away_until

    def come_back(self) -> None:
        """Make the servers available again."""
        self._away_until = 0

    def repeats(self) -> bool:
        """True if a server repeats itself or breaks off now; once for each such fault."""
        if self._calm or not self._repeats:
            return False
        self._repeats = False
        return True

    # --- time ------------------------------------------------------------------------------------

    def pass_time(self, micros: int) -> None:
        self.effect("rest")
        self.micros += max(0, micros)


class _Stopping:
    """Like an event of ``threading``; nothing sets it while the process waits."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._set = False

    def is_set(self) -> bool:
        return self._set

    def set(self) -> None:
        self._set = True

    def wait(self, seconds: float) -> bool:
        if not self._set:
            self._world.pass_time(int(seconds * 1_000_000))
        return self._set


class SimClock(StoppableClock):
    """The clock of one process."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.stopping = _Stopping(world)  # type: ignore[assignment]  # all of an event that a clock uses

    def now(self) -> int:
        return self._world.micros
