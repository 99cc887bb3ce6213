"""Words that several messages share."""

from __future__ import annotations


def counted(count: int, noun: str, *, at_least: bool = False) -> str:
    """A number with its noun: ``1 network``, ``1,120 networks``, ``at least 7 networks``."""
    return f"{'at least ' if at_least else ''}{count:,} {noun}{'' if count == 1 else 's'}"
