"""How often each keyword occurs: the rarest makes the best root of a mesh (S-KWS paper, Section 3.3)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import chain, islice

from skws.data.batch import RecordBatch
from skws.data.record import Record
from skws.keywords import EXCLUDED
from skws.keywords.keyword_matching import KeywordMatching
from skws.keywords.plan import Plan

SAMPLE = 4_096  # records: enough to tell a keyword that is many times as frequent as another


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


def ordered_by_first(plan: Plan, stream: Iterator[Record]) -> tuple[Plan, Iterator[Record]]:
    """The plan with the frequencies of the first records of a stream, and the whole stream."""
    first = list(islice(stream, SAMPLE))
    return ordered_by(plan, first), chain(first, stream)


def ordered_by_sample(plan: Plan, sample: RecordBatch | None) -> Plan:
    """The same by a batch of first records; the plan as it is without one, or with a single keyword."""
    if sample is None or not len(sample) or len(plan.query.slots) < 2:
        return plan
    rows = sample.rows.taken(slice(0, SAMPLE))
    label = KeywordMatching.only(0, plan.matcher).of(rows).bitmap
    label = label[label != EXCLUDED]
    shares = tuple(int((label >> slot & 1).sum()) / len(rows) for slot in range(len(plan.query.slots)))
    return replace(plan, frequencies=shares)
