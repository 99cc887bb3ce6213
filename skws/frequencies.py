"""How often each keyword occurs: the rarest makes the best root of a mesh (S-KWS paper, Section 3.3)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from skws.plan import Plan
from skws.records import Record


class KeywordFrequencies:
    """Counts tuples by the keywords that they contain; ``slots`` is the number of keywords."""

    def __init__(self, slots: int) -> None:
        self.tuples = 0
        self._with_keyword = [0] * slots

    def observe(self, keywords: int) -> None:
        """Count a tuple, given its keyword bitmap."""
        self.tuples += 1
        if keywords:
            for slot in range(len(self._with_keyword)):
                self._with_keyword[slot] += keywords >> slot & 1

    @property
    def shares(self) -> tuple[float, ...] | None:
        """The share of tuples that contain each keyword; None before the first tuple."""
        if not self.tuples:
            return None
        return tuple(count / self.tuples for count in self._with_keyword)


def ordered_by(plan: Plan, records: Iterable[Record]) -> Plan:
    """The plan with the keyword frequencies of some records, such as the first of a stream."""
    seen = KeywordFrequencies(len(plan.query.slots))
    for record in records:
        bitmap = -1 if record.delete else plan.matcher.bitmap(record.relation, record.row)
        if bitmap >= 0:
            seen.observe(bitmap)
    return replace(plan, frequencies=seen.shares)
