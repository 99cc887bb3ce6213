"""The budget of steps of an analysis: a count that is the same on every machine.

The budget of memory is another one (``memory.py``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from types import TracebackType
from typing import Final, TypeAlias

# Called with a budget every now and then while it is spent, and with None when its work is done.
Watch: TypeAlias = "Callable[[StepBudget | None], None]"

_EVERY: Final = 1_024
"""Steps between two reports."""
_watch: ContextVar[Watch | None] = ContextVar("watch", default=None)


class OverBudgetError(Exception):
    """An analysis needs more steps than it may take."""


class StepBudget:
    """Steps of one analysis, which ``stage`` names; ``spent`` of ``limit`` are used.

    A context: at its end the watch is called with None.
    """

    def __init__(self, limit: int, stage: str) -> None:
        self.limit = limit
        self.stage = stage
        self.spent = 0
        self._watch = _watch.get()
        self._reported = 0

    def spend(self, steps: int = 1) -> None:
        """Raises OverBudgetError if nothing is left."""
        self.spent += steps
        if self.spent > self.limit:
            raise OverBudgetError
        if self._watch is not None and self.spent - self._reported >= _EVERY:
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
def watch_steps(watch: Watch | None) -> Iterator[None]:
    """Call ``watch`` with the budgets that are spent meanwhile in this thread; None: call nothing."""
    token = _watch.set(watch)
    try:
        yield
    finally:
        _watch.reset(token)
