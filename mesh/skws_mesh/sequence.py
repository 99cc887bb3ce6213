"""Keywords in order: ``fraud ; refund``, all tuples with the first before all with the second.

The order is a condition on pairs of tuples, so a partial result that breaks it
is dropped at once. A tuple's keywords lie within one group, or no network has
a node for it.
"""

from __future__ import annotations

from dataclasses import dataclass

FREE = -1


@dataclass(frozen=True, slots=True)
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
