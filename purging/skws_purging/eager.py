"""Eager purging: on expiry, bottom up (S-KWS paper, Section 4.3, Figure 4.5)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

from skws_purging.policy import Op, PurgePolicy

T = TypeVar("T")


class EagerPurging(PurgePolicy[Op]):
    """Expired tuples leave every output at once, from the source upwards."""

    def sources_expired(self, sources: Iterable[Op], horizon: int) -> None:
        for source in sources:
            purge_upwards(
                source.consumers(),
                lambda operator: self.drop_dead(operator, horizon),
                lambda operator: operator.consumers(),
            )


def purge_upwards(
    operators: Iterable[T], drop: Callable[[T], bool], consumers: Callable[[T], Iterable[T]]
) -> None:
    """Clean the operators, and those above each that had something to drop.

    ``drop`` cleans an operator's output and returns whether anything was there
    to remove: if not, nothing above can hold it either.
    """
    for operator in operators:
        if drop(operator):
            purge_upwards(consumers(operator), drop, consumers)
