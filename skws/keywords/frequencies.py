"""How often each keyword occurs: the rarest makes the best root of a mesh (S-KWS paper, Section 3.3)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import chain, islice

from skws.data.batch import RecordBatch
from skws.data.record import Record
from skws.keywords.keyword_matching import KeywordMatching
from skws.keywords.match import EXCLUDED
from skws.keywords.plan import Plan

SAMPLE = 4_096  # records: enough to see that a keyword is many times as frequent as another


def ordered_by_first(plan: Plan, stream: Iterator[Record]) -> tuple[Plan, Iterator[Record]]:
    """The plan with the keyword frequencies of the first records of a stream, and the whole stream."""
    first = list(islice(stream, SAMPLE))
    return ordered_by_sample(plan, RecordBatch.of(first)), chain(first, stream)


def ordered_by_sample(plan: Plan, sample: RecordBatch | None) -> Plan:
    """The plan with the frequencies of first records; as it is without any, or with a single keyword."""
    if sample is None or not len(sample) or len(plan.query.slots) < 2:
        return plan
    rows = sample.rows.taken(slice(0, SAMPLE))
    label = KeywordMatching.only(0, plan.matcher).of(rows).bitmap
    label = label[label != EXCLUDED]
    shares = tuple(int((label >> slot & 1).sum()) / len(rows) for slot in range(len(plan.query.slots)))
    return replace(plan, frequencies=shares)
