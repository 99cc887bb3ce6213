"""The memory budget of a run: the size of ``--memory``, or a share of the machine's free memory."""

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
"""With less memory, not even the loaded modules fit."""
_MMAP_THRESHOLD: Final = -3
_LARGE: Final = 4 << 20  # bytes; arrays of micro-batches are smaller, and too many to be worth a call each
_UNITS: Final = {"": 1, "k": 10, "m": 20, "g": 30, "t": 40}
_SIZE: Final = re.compile(r"(\d{1,18}(?:\.\d{1,18})?)\s*(?:(%)|([kmgt]?)(i?)b?)", re.I)
_CGROUPS: Final = Path("/sys/fs/cgroup")
_OWN_CGROUPS: Final = Path("/proc/self/cgroup")
# The controller and its folder; limit, use and counter of cached files; of the second and the first version.
_CGROUP_FILES: Final = (
    ("", ".", "memory.max", "memory.current", "inactive_file"),
    ("memory", "memory", "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
)


@dataclass(frozen=True, slots=True)
class MemoryShare:
    """The budget of one of ``among`` equal processes on a machine; ``size`` as in ``--memory``.

    ``among`` 0: as many processes as the machine has cores.
    """

    size: str = DEFAULT
    among: int = 1

    @contextmanager
    def apply(self, warn: Callable[[str], None] = lambda _: None) -> Iterator[None]:
        """Limit this process to the budget. Code inside raises MemoryBudgetError when it is used up."""
        use(self.size, warn, self.among or os.cpu_count() or 1)
        with budgets.explain_refusals():
            yield


class _CommandLine:
    """The budget that the command line sets."""

    size = DEFAULT
    warn: Callable[[str], None] = staticmethod(lambda _: None)


def use(size: str, warn: Callable[[str], None], among: int = 1) -> None:
    """Set the budget of this process. Raises UsageError for an invalid size."""
    budgets.use(budgets.MemoryBudget(read_size(size, among), warn))
    _CommandLine.size, _CommandLine.warn = size, warn


def set_size(size: str) -> None:
    """Set the budget to the size of ``--memory``. Raises UsageError."""
    use(size, _CommandLine.warn)


def warn_by(warn: Callable[[str], None]) -> None:
    """Set the function that receives warnings, if there is a budget."""
    if budgets.size() is not None:
        use(_CommandLine.size, warn)


def size_text() -> str:
    """The text of ``--memory``, for other processes."""
    return _CommandLine.size


def share(among: int) -> MemoryShare | None:
    """The budget of each of ``among`` processes; None if there is no budget."""
    return None if budgets.size() is None else MemoryShare(_CommandLine.size, among)


def read_size(text: str, among: int = 1, what: str = "--memory") -> int:
    """Bytes for one of ``among`` processes, of a text such as ``2GiB``, ``500 MB`` or ``60%``.

    A share is a share of the memory that is free now. Raises UsageError, whose text begins with ``what``.
    """
    match = _SIZE.fullmatch(text.strip())
    if match is None:
        raise UsageError(f"{what} {text}: expected a size such as 2GiB or 500MB, or a share such as 60%")
    number, percent, unit, binary = match.groups()
    if percent:
        if not 0 < float(number) <= 100:
            raise UsageError(f"{what} {text}: expected a share above 0% and of at most 100%")
        return max(LEAST, budgets.used_bytes() + int(float(number) / 100 * free() / among))
    power = _UNITS[unit.lower()]
    size = int(float(number) * ((1 << power) if binary or not power else 1000 ** (power // 10)))
    if size < LEAST:
        raise UsageError(f"{what} {text}: expected at least {budgets.size_text(LEAST)}")
    return max(LEAST, size // among)


def free() -> int:
    """Bytes that this process may still take: the least of the machine, its container and its own limit."""
    return min(_free_in_machine(), free_in_container(), _free_addresses())


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


def free_in_container(folder: Path = _CGROUPS, own_groups: Path = _OWN_CGROUPS) -> int:
    """Bytes that the container, or the unit of systemd, may still take: the least of all groups around it.

    Cached files count as free, as the kernel drops them first. ``own_groups`` is a file as ``cgroups(7)``
    describes it.
    """
    least = _NO_LIMIT
    for controller, subfolder, limit, used, counter in _CGROUP_FILES:
        path = _group_path(controller, own_groups)
        for group in (folder / subfolder / each for each in (path, *path.parents)):
            with suppress(OSError, ValueError):
                free_bytes = int((group / limit).read_text()) - int((group / used).read_text())
                least = min(least, free_bytes + _counted_bytes(group / "memory.stat", counter))
    return max(0, least)


def _group_path(controller: str, own_groups: Path) -> Path:
    """The relative path of the group of this process; the top if it is unknown."""
    with suppress(OSError, ValueError):
        for line in own_groups.read_text().splitlines():
            _, controllers, path = line.split(":", 2)
            if controller in controllers.split(",") and ".." not in path:
                return Path(path.lstrip("/"))
    return Path()


def _counted_bytes(statistics: Path, counter: str) -> int:
    """A counter of a cgroup; 0 if it cannot be read."""
    with suppress(OSError, ValueError):
        for line in statistics.read_text().splitlines():
            if line.startswith(f"{counter} "):
                return int(line.split()[1])
    return 0


def _free_addresses() -> int:
    """The bytes of addresses that ``ulimit -v`` leaves."""
    with suppress(ImportError, OSError, ValueError):
        import resource  # noqa: PLC0415 - there is none on Windows

        limit, _ = resource.getrlimit(resource.RLIMIT_AS)
        if limit != resource.RLIM_INFINITY:
            pages = int(Path("/proc/self/statm").read_text().split()[0])
            return max(0, limit - pages * resource.getpagesize())
    return _NO_LIMIT


_NO_LIMIT: Final = 1 << 62


def return_large_arrays() -> None:
    """From now on, return freed arrays of megabytes to the system.

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
    """Collect no garbage inside, where many objects are created that stay, such as saved searches.

    Repeated scans of such objects took an eighth of a whole run.
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
    """Exclude all objects that exist now from garbage collection; once in a process.

    Spark's workers collect all garbage after each task. Scanning the modules of skws, Arrow and NumPy took
    two thirds of the time of tasks that read 10,000 rows. In a run, its first queries are excluded as well.
    """
    gc.freeze()
