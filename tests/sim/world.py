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
from functools import lru_cache
from pathlib import Path
from random import Random
from typing import Any, Final, Literal
from unittest.mock import patch
from weakref import WeakSet

from skws import memory
from skws.durable import read
from skws.formats import files
from skws.jobs import checkpoint
from skws.jobs import standing_queries as standing
from skws.jobs.clock import StoppableClock
from skws.queries import operator, session
from skws.queries.keywords import engine, kind
from skws.store import directory, row_files
from skws_mesh.columnar import hash_index, store
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
"""A process reads and writes its schemas several times, which takes a fifth of a simulation."""
_BUDGET: Final = 1 << 30
_FILTER_BITS: Final = 8  # so few that filters grow
_LEAST_SWEPT: Final = 8  # so few that what is dead is swept out while a process lives
_MANY_ROWS: Final = 8  # that become columns
_LEAST_FILED: Final = 4  # rows that are kept in a file of their own
_MOST_FILES: Final = 4  # of them, so few that some become one


class Killed(BaseException):
    """The process ends here; nothing that it does from now on has an effect."""


class Finding(Exception):  # noqa: N818 - of a simulation, and no error of its own
    """The product broke a promise."""


@dataclass(frozen=True, slots=True)
class Fault:
    """``after``: at which of the effects that it can meet, from 1. ``part``: how far, or how long.

    ``at``: the name of the effects that count; without one, all that it can meet.
    """

    kind: Kind
    after: int
    part: float = 0.5
    at: str = ""

    def __str__(self) -> str:
        return f"{self.kind}@{self.at}{self.after}:{self.part:.3f}"

    @property
    def meets(self) -> frozenset[str] | None:
        """The names of the effects that count; None for all."""
        return frozenset({self.at}) if self.at else _MEETS[self.kind]


class World:
    """``micros``: the time. ``faults``: how many of each kind came to pass. ``log``: what happened last."""

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
        """Inside, files, random bytes and waits are those of the world."""
        files._begins_packed.cache_clear()  # what it knows of files of another world
        with ExitStack() as stack:
            stack.enter_context(installed(self.disk))
            for module in _READ_SCHEMAS:
                stack.enter_context(patch.object(module, "parse_schema", _parse_schema))
            stack.enter_context(patch.object(checkpoint, "to_yaml", _to_yaml))
            stack.enter_context(patch.object(hash_index, "_LEAST_BITS", _FILTER_BITS))
            stack.enter_context(patch.object(store, "_SCANNED", 1))
            stack.enter_context(patch.object(policy, "LEAST", _LEAST_SWEPT))
            stack.enter_context(patch.object(row_files, "LEAST", _LEAST_FILED))
            stack.enter_context(patch.object(row_files, "MOST", _MOST_FILES))
            stack.enter_context(patch.object(directory, "_MANY", _MANY_ROWS))
            stack.enter_context(patch.object(session, "PART", _LEAST_FILED))
            stack.enter_context(patch.object(engine, "TAKEN_UP", _LEAST_FILED))
            stack.enter_context(patch.object(row_files, "mapped", self._mapped))
            stack.enter_context(patch.object(budget._Process, "budget", budget.MemoryBudget(_BUDGET)))
            stack.enter_context(patch.object(memory._Asked, "size", "1GiB"))
            stack.enter_context(patch.object(budget, "used", self.used))
            stack.enter_context(patch.object(budget, "_holders", WeakSet()))  # not those of other worlds
            stack.enter_context(patch.object(os, "urandom", self._entropy.randbytes))
            stack.enter_context(patch.object(os, "getpid", lambda: 1))  # part of names of temporary files
            # Opened by the system's calls themselves, below Python.
            stack.enter_context(patch.object(files, "CountedFile", lambda path, _: Raw(self.disk, str(path))))
            yield

    def _mapped(self, path: Path) -> memoryview:
        """A file that a process looks at: as it is then, since such a file is written once."""
        return memoryview(read(path))

    # --- faults ----------------------------------------------------------------------------------

    def arm(self, faults: Sequence[Fault]) -> None:
        """Let faults come at the next effects."""
        self._armed = [[fault.after, fault, fault.meets] for fault in faults]

    @property
    def armed(self) -> int:
        """How many faults may still come, but for writes that are cut short again and again."""
        return sum(armed[0] > 0 and armed[1].kind != "short" for armed in self._armed)

    def disarm(self) -> None:
        """What has not come does not come any more."""
        self._armed = []
        self.free()

    def free(self) -> None:
        """The disk works, and has room again."""
        self._full = self._broken = False
        self._limited.clear()

    def end_process(self) -> None:
        self._dead = self.failed = False
        self.disk.end_process()

    @contextmanager
    def calm(self) -> Iterator[None]:
        """Inside, another program acts, which no fault meets."""
        before, self._calm = self._calm, True
        try:
            yield
        finally:
            self._calm = before

    def effect(self, name: str, path: str = "") -> float | None:
        """Called before each effect; raises what meets it. Of a write: the part that is written."""
        if self._calm:
            return None
        if self._dead:
            raise Killed
        self.effects += 1
        self.micros += 20
        part = None
        limited = path in self._limited
        for armed in tuple(self._armed):
            meets = armed[2]
            if meets is None or name in meets:
                armed[0] -= 1
                if armed[0] == 0:
                    self._armed.remove(armed)
                    part = self._meet(armed[1], name, path) or part
        if self._broken and name in _DISK:
            self.failed = True
            raise OSError(errno.EIO, os.strerror(errno.EIO), path)
        if name in _WRITES and (self._full or limited):
            self.failed = True
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)
        return part

    def used(self) -> int:
        """Bytes that the process holds, by its checks: too many at times. Raises MemoryError."""
        for armed in () if self._calm else self._armed:
            if armed[1].kind == "memory":
                armed[0] -= 1
                if armed[0] == 0:
                    self.faults["memory"] += 1
                    self.failed = True
                    if armed[1].part < 0.5:
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
            case "short":  # and each as many writes later
                self._armed.append([fault.after, fault, fault.meets])
                return fault.part
            case "full":
                if name == "write" and fault.part < 0.7:  # a part of this write has room yet
                    if fault.part < 0.35:
                        self._armed.append([1, Fault("full", 1, 1.0), _WRITES])
                        self.faults["full"] -= 1
                    else:
                        self._limited.add(path)  # the file reaches its limit, and the disk does not
                    return fault.part
                self._full = True
            case "error":
                self.failed = True
                self._broken = name in _DISK and fault.part < 0.4  # for good, or this call alone
                raise OSError(errno.EIO, os.strerror(errno.EIO), path)
            case "away":
                self._away_until = self.micros + int(fault.part * 20_000_000)
            case "repeat":
                self._repeats = True
        return None

    @property
    def away(self) -> bool:
        """Whether the servers are away, for the process that runs."""
        return not self._calm and self.micros < self._away_until

    def come_back(self) -> None:
        """The servers are there again."""
        self._away_until = 0

    def repeats(self) -> bool:
        """Whether a server repeats itself now, or breaks off; once for each such fault."""
        if self._calm or not self._repeats:
            return False
        self._repeats = False
        return True

    # --- time ------------------------------------------------------------------------------------

    def pass_time(self, micros: int) -> None:
        self.effect("rest")
        self.micros += max(0, micros)


class _Stopping:
    """As an event of ``threading``; nothing sets it while the process waits."""

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
