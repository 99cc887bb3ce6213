"""Keywords in order: ``fraud ; refund``, all tuples with the first before all with the second.

The order is a condition on pairs of tuples, so a partial result that violates
it is dropped at once. The keywords of a tuple are all in one group; no network
has a node for other tuples.
"""

from __future__ import annotations

from dataclasses import dataclass

FREE = -1


@dataclass(frozen=True, slots=True)
class KeywordSequence:
    """``groups``: the bitmap of the keywords of each group, in order; empty if there is no order."""

    groups: tuple[int, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.groups)

    def allows(self, keywords: int) -> bool:
        """True if a tuple may carry these keywords: all in one group, as a tuple does not precede itself."""
        return sum(bool(keywords & group) for group in self.groups) <= 1

    def rank(self, keywords: int) -> int:
        """The group of a tuple with these keywords; FREE if it has none, or if there is no order."""
        return next((rank for rank, group in enumerate(self.groups) if keywords & group), FREE)

    @property
    def of_tables(self) -> int:
        """The keywords that static tuples may carry: static tuples precede all others, and have no order."""
        return self.groups[0] if self.groups else -1
