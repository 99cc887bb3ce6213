"""The one tree that explain makes; the printer, DOT and the drawing only write it down."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Role(StrEnum):
    """What a branch stands for, so that a drawing can tell the mesh from the notes on it."""

    NOTE = "note"
    CLUSTER = "cluster"
    OPERATOR = "operator"
    NETWORK = "network"
    MORE = "more"


@dataclass(frozen=True, slots=True)
class Branch:
    """A line and what belongs below it. ``idle``: no tuple of the replay ever came so far."""

    text: str
    below: tuple[Branch, ...] = ()
    role: Role = Role.NOTE
    idle: bool = False
