"""Eager purging: on expiry, bottom up (S-KWS paper, Section 4.3, Figure 4.5)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

T = TypeVar("T")


def purge_upwards(
    operators: Iterable[T], drop: Callable[[T], bool], parents: Callable[[T], Iterable[T]]
) -> None:
    """Clean the operators, and those above each that had something to drop.

    ``drop`` cleans an operator's output and tells whether anything was there
    to remove: if not, nothing above can hold it either.
    """
    for operator in operators:
        if drop(operator):
            purge_upwards(parents(operator), drop, parents)
