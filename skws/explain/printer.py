"""The tree of an explanation as indented text."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from skws.explain.branch import Branch
from skws.results.writers.text import visible

INDENT: Final = "  "


def to_text(branches: tuple[Branch, ...]) -> str:
    """One line a branch; equal trees read the same."""
    return "".join(f"{line}\n" for branch in branches for line in _lines(branch, ""))


def _lines(branch: Branch, indent: str) -> Iterator[str]:
    yield indent + visible(branch.text)
    for below in branch.below:
        yield from _lines(below, indent + INDENT)
