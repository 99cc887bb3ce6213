"""Budgets of memory, so that a process fails before the system kills it, of time, and of steps.

A process has one memory budget. Code that makes many objects calls ``check`` from time to time, which takes
some microseconds. The budget counts the private pages of this process, without mapped files, which the
system may drop at any time.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from itertools import islice
from mmap import mmap
from threading import Lock
from time import monotonic
from types import TracebackType
from typing import Final, NamedTuple, Protocol, TypeAlias, TypeVar
from weakref import WeakSet

from skws_schema.errors import MemoryBudgetError, SkwsError

_ends: Final[ContextVar[float | None]] = ContextVar("deadline", default=None)


class TimeLimitError(SkwsError):
    """Work was abandoned at its time limit."""


@contextmanager
def within(seconds: float) -> Iterator[None]:
    """Limit the time of the work inside, which raises TimeLimitError; an earlier outer limit still holds."""
    end, outer_end = monotonic() + seconds, _ends.get()
    token = _ends.set(end if outer_end is None else min(end, outer_end))
    try:
        yield
    finally:
        _ends.reset(token)


def check_time() -> None:
    """Raises TimeLimitError if this thread is past its time limit."""
    end = _ends.get()
    if end is not None and monotonic() > end:
        raise TimeLimitError("it takes longer than the time limit")


HELP: Final = (
    "What would help: fewer or rarer keywords, a smaller --max-size, a shorter window, --limit N, "
    "or a larger --memory"
)
T = TypeVar("T")

_CHECK_INTERVAL: Final = 1_024  # items
_PAGE: Final = os.sysconf("SC_PAGE_SIZE")
_RESERVE: Final = 32 << 20  # released to report the error; never written to, so it takes no page


class Footprint(NamedTuple):
    """The number of entries that an object holds, and a description of the largest group of them."""

    entries: int
    text: str


class Holder(Protocol):
    """An object that grows with a query or a stream."""

    def footprint(self) -> Footprint:
        """Its current size; called from any ``check``."""
        ...


class MemoryBudget:
    """A limit of ``size`` bytes; ``warn`` is called once, when half of them are in use."""

    def __init__(self, size: int, warn: Callable[[str], None] = lambda _: None) -> None:
        self.size = size
        self._warn = warn
        self._warned = False

    def check(self, planned: int) -> None:
        """Raises MemoryBudgetError if another ``planned`` bytes would exceed the budget."""
        total = used_bytes() + planned
        if total > self.size:
            raise MemoryBudgetError(
                f"the memory budget of {size_text(self.size)} is used up{_largest_holder_text()}.\n{HELP}"
            )
        if not self._warned and 2 * total > self.size:
            self._warned = True
            self._warn(
                f"half of the memory budget of {size_text(self.size)} is in use{_largest_holder_text()}"
            )


_holders: WeakSet[Holder] = WeakSet()
_holders_lock: Final = Lock()


class _Process:
    """The budget in force."""

    budget: MemoryBudget | None = None
    reserve: mmap | None = None


def use(budget: MemoryBudget | None) -> None:
    """Put a budget in force for the process; None lifts it."""
    _Process.budget = budget
    _Process.reserve = None if budget is None else mmap(-1, _RESERVE)


def size() -> int | None:
    """The budget in force, in bytes; None without one."""
    return None if _Process.budget is None else _Process.budget.size


def register(holder: Holder) -> None:
    """Name this object in messages about memory while it exists."""
    with _holders_lock:
        _holders.add(holder)


def check(planned: int = 0) -> None:
    """Raises MemoryBudgetError if the budget in force does not allow another ``planned`` bytes.

    Raises TimeLimitError if this thread is past its time limit.
    """
    check_time()
    if _Process.budget is not None:
        _Process.budget.check(planned)


@contextmanager
def explain_refusals() -> Iterator[None]:
    """Turn a MemoryError inside into a MemoryBudgetError."""
    try:
        yield
    except MemoryError:
        raise refused() from None


def refused() -> MemoryBudgetError:
    """The error to raise in place of a MemoryError."""
    if _Process.reserve is not None:
        _Process.reserve.close()
    try:
        return MemoryBudgetError(f"the system is out of memory{_largest_holder_text()}.\n{HELP}")
    except MemoryError:
        return MemoryBudgetError(f"the system is out of memory.\n{HELP}")


def memory_checked(items: Iterable[T]) -> Iterator[T]:
    """The same items, with a check of the budget every 1,024 items."""
    remaining = iter(items)
    for item in remaining:
        check()
        yield item
        yield from islice(remaining, _CHECK_INTERVAL - 1)  # takes a third of the time of counting


def used_bytes() -> int:
    """Private memory of this process, in bytes."""
    try:
        with open("/proc/self/statm", "rb", buffering=0) as file:
            _, resident, shared, *_ = file.read().split()
    except OSError:  # not Linux
        return _peak()
    return (int(resident) - int(shared)) * _PAGE


def size_text(size: int) -> str:
    """A number of bytes as text, in the largest unit in which it is at least 1."""
    for unit, bits in (("GiB", 30), ("MiB", 20), ("KiB", 10)):
        if size >= 1 << bits:
            return f"{size / (1 << bits):.1f} {unit}"
    return f"{size} bytes"


def _largest_holder_text() -> str:
    """A description of the holder with the most entries."""
    with _holders_lock:  # other threads may begin searches
        holders = list(_holders)
    largest = max((holder.footprint() for holder in holders), default=None)
    return f": {largest.text}" if largest is not None and largest.entries else ""


def _peak() -> int:
    import resource  # noqa: PLC0415 - absent on Windows

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


# Called from time to time with a budget while it is spent, and with None when its analysis ends.
Watch: TypeAlias = "Callable[[StepBudget | None], None]"

_REPORT_INTERVAL: Final = 1_024
"""Steps between two reports."""
_watch: ContextVar[Watch | None] = ContextVar("watch", default=None)
_most_steps: ContextVar[int] = ContextVar("most_steps", default=sys.maxsize)


class OverBudgetError(Exception):
    """An analysis needs more steps than its budget."""


class StepBudget:
    """Counts the steps of one analysis, ``spent`` of at most ``limit``. ``stage`` names it in messages.

    As a context manager, it calls the watch with None at the end.
    """

    def __init__(self, limit: int, stage: str) -> None:
        self.limit = min(limit, _most_steps.get())
        self.stage = stage
        self.spent = 0
        self._watch = _watch.get()
        self._reported = 0

    def spend(self, steps: int = 1) -> None:
        """Count steps. Raises OverBudgetError if there are more than ``limit``."""
        self.spent += steps
        if self.spent > self.limit:
            raise OverBudgetError
        if self._watch is not None and self.spent - self._reported >= _REPORT_INTERVAL:
            self._reported = self.spent
            self._watch(self)

    def __enter__(self) -> StepBudget:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._watch is not None and self._reported:
            self._watch(None)


@contextmanager
def within_steps(limit: int) -> Iterator[None]:
    """Limit every analysis that begins inside, in this thread, to ``limit`` steps."""
    token = _most_steps.set(min(limit, _most_steps.get()))
    try:
        yield
    finally:
        _most_steps.reset(token)


@contextmanager
def watch_steps(watch: Watch | None) -> Iterator[None]:
    """Call ``watch`` with the budgets that are spent inside, in this thread; None calls nothing."""
    token = _watch.set(watch)
    try:
        yield
    finally:
        _watch.reset(token)
