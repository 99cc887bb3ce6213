"""A simulated full disk: writes fail, or write only a part."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from enum import Enum
from typing import Any

import pytest


class Fault(Enum):
    """The effect on a system call."""

    NONE_WRITTEN = "none"
    SHORT = "short"
    INTERRUPTED_SHORT = "interrupted short"
    INTERRUPTED_BEHIND = "interrupted behind"


CALLS = ("write", "fsync", "fdatasync", "replace")


class FullDisk:
    """Calls in ``CALLS`` fail from the ``after``-th on; ``fault`` is the effect of the first failure.

    ``hit``: True if a call has failed.
    """

    def __init__(self, patch: pytest.MonkeyPatch, after: int, fault: Fault) -> None:
        self._calls_left = after
        self._fault = fault
        self.hit = False
        for name in CALLS:
            patch.setattr(os, name, self._failing(name, getattr(os, name)))

    def _failing(self, name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            self._calls_left -= 1
            if self._calls_left > 0:
                return real(*args, **kwargs)
            first, self.hit = not self.hit, True
            if not first:
                if self._fault in {Fault.INTERRUPTED_SHORT, Fault.INTERRUPTED_BEHIND}:
                    return real(*args, **kwargs)  # an interrupt occurs once
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            return self._first(name, real, args, kwargs)

        return call

    def _first(self, name: str, real: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        if self._fault is Fault.INTERRUPTED_BEHIND:
            real(*args, **kwargs)
            raise KeyboardInterrupt
        if name == "write" and self._fault is not Fault.NONE_WRITTEN:
            handle, data = args
            length = real(handle, bytes(data)[: len(data) // 2])
            if self._fault is Fault.SHORT:
                return length
        if self._fault is Fault.INTERRUPTED_SHORT:
            raise KeyboardInterrupt
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
