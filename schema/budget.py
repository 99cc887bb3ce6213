"""How much work an analysis may take: a count of steps, which is the same on every machine."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final, TypeAlias

Watch: TypeAlias = "Callable[[Budget], None]"

_EVERY: Final = 1_024
"""Steps between two reports."""
_watch: ContextVar[Watch | None] = ContextVar("watch", default=None)


class OverBudgetError(Exception):
    """An analysis needs more steps than it may take."""


class Budget:
    """Steps of one analysis, which ``stage`` names; ``spent`` of ``limit`` are gone."""

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


@contextmanager
def watched(watch: Watch) -> Iterator[None]:
    """Show ``watch`` the budgets that are spent meanwhile, in this thread."""
    token = _watch.set(watch)
    try:
        yield
    finally:
        _watch.reset(token)
