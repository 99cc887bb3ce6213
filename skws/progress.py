"""Reports of the progress of long work, for the code that displays it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias


@dataclass(frozen=True, slots=True)
class Progress:
    """``bytes``, ``rows`` or ``tasks`` of a stage: ``done`` of ``total``, which is None if not known."""

    stage: str
    done: int = 0
    total: int | None = None
    unit: str = "bytes"


ReportProgress: TypeAlias = Callable[[Progress], None]


def unreported(_progress: Progress) -> None:
    """Ignores progress."""
