"""How often each keyword occurs: the rarest makes the best root of a mesh (S-KWS paper, Section 3.3)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import chain, islice

from skws.batches import RecordBatch
from skws.engine.labelling import Labelling
from skws.keywords import EXCLUDED
from skws.plan import Plan
from skws.records import Record

SAMPLE = 4_096  # records: among so many, a keyword that is many times as frequent as another shows itself


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


def ordered_by_first_batch(plan: Plan, batches: Iterator[RecordBatch]) -> tuple[Plan, Iterator[RecordBatch]]:
    """The same with a stream that comes in batches: the first of them tells."""
    first = next(batches, None)
    if first is None:
        return plan, batches
    rows = first.rows.taken(slice(0, SAMPLE))
    label = Labelling.only(0, plan.matcher).of(rows).label
    label = label[label != EXCLUDED]
    shares = tuple(int((label >> slot & 1).sum()) / len(rows) for slot in range(len(plan.query.slots)))
    return replace(plan, frequencies=shares), chain([first], batches)
