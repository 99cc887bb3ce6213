"""How much work an analysis may take: a count of steps, which is the same on every machine."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from types import TracebackType
from typing import Final, TypeAlias

# Called with a budget that is spent, now and then, and with None when its work is done.
Watch: TypeAlias = "Callable[[Budget | None], None]"

_EVERY: Final = 1_024
"""Steps between two reports."""
_watch: ContextVar[Watch | None] = ContextVar("watch", default=None)


class OverBudgetError(Exception):
    """An analysis needs more steps than it may take."""


class Budget:
    """Steps of one analysis, which ``stage`` names; ``spent`` of ``limit`` are gone.

    A context: whoever watches is told of its end.
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

    def __enter__(self) -> Budget:
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
def watched(watch: Watch | None) -> Iterator[None]:
    """Show ``watch`` the budgets that are spent meanwhile, in this thread; None shows them to nobody."""
    token = _watch.set(watch)
    try:
        yield
    finally:
        _watch.reset(token)
