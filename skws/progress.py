"""How far a long piece of work is, told to whoever shows it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias


@dataclass(frozen=True, slots=True)
class Progress:
    """``done`` of ``total`` units (``bytes`` or ``tasks``) of a stage; ``total`` is None if not known."""

    stage: str
    done: int = 0
    total: int | None = None
    unit: str = "bytes"


ReportProgress: TypeAlias = Callable[[Progress], None]


def unreported(_progress: Progress) -> None:
    """Progress that nobody watches."""
