"""A time limit for work in this thread, which checks it between pieces (``memory.check``)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from time import monotonic
from typing import Final

from skws_schema.errors import SkwsError

_ends: Final[ContextVar[float | None]] = ContextVar("deadline", default=None)


class TimeLimitError(SkwsError):
    """Work was given up, since it takes longer than it may."""


@contextmanager
def within(seconds: float) -> Iterator[None]:
    """Work inside raises TimeLimitError once it has taken so long; an outer limit that ends sooner holds."""
    end, outer = monotonic() + seconds, _ends.get()
    token = _ends.set(end if outer is None else min(end, outer))
    try:
        yield
    finally:
        _ends.reset(token)


def check_time() -> None:
    """Raises TimeLimitError if this thread has used up the time it has."""
    end = _ends.get()
    if end is not None and monotonic() > end:
        raise TimeLimitError("it takes longer than the time limit")
