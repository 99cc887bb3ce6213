"""How much memory a run may take: by ``--memory``, or a share of what the machine offers."""

from __future__ import annotations

import gc
import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from ctypes import CDLL
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

from skws_schema import budgets
from skws_schema.errors import UsageError

DEFAULT: Final = "60%"
LEAST: Final = 64 << 20
"""Below this not even what is loaded fits."""
_MMAP_THRESHOLD: Final = -3
_LARGE: Final = (
    4 << 20
)  # bytes; those of micro-batches are smaller, and pass too often to be worth a call each
_UNITS: Final = {"": 1, "k": 10, "m": 20, "g": 30, "t": 40}
_SIZE: Final = re.compile(r"(\d+(?:\.\d+)?)\s*(?:(%)|([kmgt]?)(i?)b?)", re.I)
_CGROUPS: Final = (  # limit and use, of the second and the first version
    ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory.current"),
    ("/sys/fs/cgroup/memory/memory.limit_in_bytes", "/sys/fs/cgroup/memory/memory.usage_in_bytes"),
)


@dataclass(frozen=True, slots=True)
class MemoryShare:
    """What one of ``among`` equal processes on a machine may take; ``size`` as of ``--memory``.

    ``among`` 0: a process for each core of the machine that it runs on.
    """

    size: str = DEFAULT
    among: int = 1

    @contextmanager
    def kept(self, warn: Callable[[str], None] = lambda _: None) -> Iterator[None]:
        """Have this process keep to it. Raises MemoryBudgetError where it cannot, inside."""
        use(self.size, warn, self.among or os.cpu_count() or 1)
        with budgets.explain_refusals():
            yield


class _Asked:
    """What the command line says."""

    size = DEFAULT
    warn: Callable[[str], None] = staticmethod(lambda _: None)


def use(size: str, warn: Callable[[str], None], among: int = 1) -> None:
    """From now on this process keeps to a budget. Raises UsageError for a size that cannot be read."""
    budgets.use(budgets.MemoryBudget(read_size(size, among), warn))
    _Asked.size, _Asked.warn = size, warn


def ask(size: str) -> None:
    """The user says how much. Raises UsageError."""
    use(size, _Asked.warn)


def warn_by(warn: Callable[[str], None]) -> None:
    """Warnings go here from now on, if there is a budget at all."""
    if budgets.size() is not None:
        use(_Asked.size, warn)


def asked() -> str:
    """The size that was asked for, as text, for other processes."""
    return _Asked.size


def share(among: int) -> MemoryShare | None:
    """What each of several processes may take of what was asked for; None if there is no budget."""
    return None if budgets.size() is None else MemoryShare(_Asked.size, among)


def read_size(text: str, among: int = 1, what: str = "--memory") -> int:
    """Bytes for one of ``among`` processes, of a text such as ``2GiB``, ``500 MB`` or ``60%``.

    A share is one of what is free now. Raises UsageError, which names ``what`` has the text.
    """
    match = _SIZE.fullmatch(text.strip())
    if match is None:
        raise UsageError(f"{what} {text}: expected a size such as 2GiB or 500MB, or a share such as 60%")
    number, percent, unit, binary = match.groups()
    if percent:
        if not 0 < float(number) <= 100:
            raise UsageError(f"{what} {text}: expected a share above 0% and of at most 100%")
        return max(LEAST, budgets.used() + int(float(number) / 100 * free() / among))
    power = _UNITS[unit.lower()]
    size = int(float(number) * ((1 << power) if binary or not power else 1000 ** (power // 10)))
    if size < LEAST:
        raise UsageError(f"{what} {text}: expected at least {budgets.shown(LEAST)}")
    return max(LEAST, size // among)


def free() -> int:
    """Bytes that this process may still take: of the machine, its container and its own limit."""
    return min(_free_in_machine(), _free_in_containers(), _free_addresses())


def _free_in_machine() -> int:
    with suppress(OSError, ValueError):
        for line in Path("/proc/meminfo").read_text(encoding="ascii").splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) << 10
    return _free_pages()


def _free_pages() -> int:
    with suppress(ValueError, OSError, AttributeError):
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return 4 << 30


def _free_in_containers() -> int:
    free = _NO_LIMIT
    for limit, used in _CGROUPS:
        with suppress(OSError, ValueError):
            free = min(free, int(Path(limit).read_text()) - int(Path(used).read_text()))
    return max(0, free)


def _free_addresses() -> int:
    """Of ``ulimit -v``, what is not taken by what is loaded."""
    with suppress(ImportError, OSError, ValueError):
        import resource  # noqa: PLC0415 - there is none on Windows

        limit, _ = resource.getrlimit(resource.RLIMIT_AS)
        if limit != resource.RLIM_INFINITY:
            pages = int(Path("/proc/self/statm").read_text().split()[0])
            return max(0, limit - pages * resource.getpagesize())
    return _NO_LIMIT


_NO_LIMIT: Final = 1 << 62


def return_large_arrays() -> None:
    """From now on arrays of megabytes go back to the system when they are freed.

    glibc keeps ever larger ones for reuse (``M_MMAP_THRESHOLD`` in mallopt(3)): a third of the memory where
    columns grow. Other allocators are left as they are.
    """
    with suppress(OSError, AttributeError):
        CDLL(None).mallopt(_MMAP_THRESHOLD, _LARGE)


def expect_long_lived_objects() -> None:
    """Make garbage collections rare.

    Live windows and saved searches are hundreds of thousands of small objects without cycles.
    Python's defaults scan them repeatedly, which takes a third of the time.
    """
    gc.set_threshold(200_000, 20, 20)


def expect_short_pauses() -> None:
    """Collect garbage in small steps, and completely only rarely, since each collection delays the keys.

    Objects that exist now are never collected. Results and live tuples are many objects
    without cycles, which are freed without the collector.
    """
    gc.freeze()
    gc.set_threshold(2_000, 5, 100)


@contextmanager
def making_long_lived_objects() -> Iterator[None]:
    """No garbage is collected inside: what is made at once and stays, as very many saved searches, is none.

    To look through them again and again took an eighth of a whole run.
    """
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


@cache
def freeze_loaded_objects() -> None:
    """Have collections pass over what is loaded now; once in a process.

    Spark's workers collect all garbage after each task. To look through the modules of skws, Arrow and NumPy
    took two thirds of the time of tasks that read 10,000 rows. Of a run it is also the queries that it begins
    with.
    """
    gc.freeze()
