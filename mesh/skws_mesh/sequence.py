"""Keywords in order: ``fraud ; refund``, all tuples with the first before all with the second.

The order is a condition on pairs of tuples, so a partial result that breaks it
is dropped at once. A tuple's keywords lie within one group, or no network has
a node for it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias

from skws_purging.tuples import Members, StreamTuple, compatible

Compatible: TypeAlias = Callable[[Members, StreamTuple], bool]

FREE = -1


@dataclass(frozen=True)
class KeywordSequence:
    """``groups``: bitmaps of the keywords that come one after the other; none where there is no order."""

    groups: tuple[int, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.groups)

    def allows(self, keywords: int) -> bool:
        """True if a tuple may carry these keywords, of one group at most: it does not come before itself."""
        return sum(bool(keywords & group) for group in self.groups) <= 1

    def rank(self, keywords: int) -> int:
        """The group of a tuple with some keywords; FREE if it has none, or there is no order."""
        return next((rank for rank, group in enumerate(self.groups) if keywords & group), FREE)

    @property
    def of_tables(self) -> int:
        """The keywords that static tuples may carry: they come before all others, in no order themselves."""
        return self.groups[0] if self.groups else -1

    @cached_property
    def compatible(self) -> Compatible:
        """What decides whether a tuple can join others: lifespans, and the order."""
        return self._in_order if self.groups else compatible

    def _in_order(self, members: Members, new: StreamTuple) -> bool:
        return compatible(members, new) and all(self._agree(member, new) for member in members)

    def _agree(self, one: StreamTuple, other: StreamTuple) -> bool:
        first, second = self.rank(one.keywords), self.rank(other.keywords)
        if FREE in (first, second) or first == second:
            return True
        return (first < second) == ((one.start, one.place) < (other.start, other.place))
