"""Which arriving tuples carry keywords of which standing queries, and which keywords are rare."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import chain, islice

import numpy as np

from skws.data.batch import RecordBatch, Rows
from skws.data.record import Record
from skws.keywords.joint import JointMatcher
from skws.keywords.match import EXCLUDED, Matcher
from skws.keywords.plan import Plan
from skws_mesh.columnar.bitmaps import KeywordBitmaps
from skws_mesh.columnar.columns import Ints

FEW = 4  # queries; for more, joint matching pays


class KeywordMatching:
    """The keyword bitmaps of rows for each query; EXCLUDED for those that take no part."""

    def __init__(self) -> None:
        self._matchers: dict[int, Matcher] = {}
        self._joint: JointMatcher | None = None

    @classmethod
    def only(cls, query: int, matcher: Matcher) -> KeywordMatching:
        matching = cls()
        matching.add(query, matcher)
        return matching

    def add(self, query: int, matcher: Matcher) -> None:
        self._matchers[query] = matcher
        if self._joint is not None:
            self._joint.add(query, matcher)
        elif len(self._matchers) > FEW:
            self._joint = JointMatcher(matcher.schema)
            for number, each in self._matchers.items():
                self._joint.add(number, each)

    def remove(self, query: int) -> None:
        del self._matchers[query]
        if self._joint is not None:
            self._joint.remove(query)

    def of(self, rows: Rows) -> KeywordBitmaps:
        """The rows with keywords, by their number."""
        return self._jointly(self._joint, rows) if self._joint else self._one_by_one(rows)

    def _jointly(self, joint: JointMatcher, rows: Rows) -> KeywordBitmaps:
        places, queries, labels = [], [], []
        for block, mine, at in rows.by_block():
            found = joint.bitmaps(block)
            # Rows that are not asked for belong to another batch.
            number = np.full(len(block), -1, dtype=np.int64)
            number[at] = mine
            row = number[found.tuple]
            asked = row >= 0
            places.append(row[asked])
            queries.append(found.query[asked])
            labels.append(found.bitmap[asked])
        return in_order(places, queries, labels)

    def _one_by_one(self, rows: Rows) -> KeywordBitmaps:
        places, queries, labels = [], [], []
        first = np.cumsum([0, *map(len, rows.blocks)])
        # Where each row stands among all of the blocks: cheaper than to go block by block.
        at = first.take(rows.block) + rows.place
        for query, matcher in self._matchers.items():
            found = matcher.bitmaps_of(rows.blocks)
            here = np.concatenate(found).take(at) if found else np.zeros(0, dtype=np.int64)
            carrying = np.flatnonzero(here)
            places.append(carrying)
            labels.append(here[carrying].astype(np.int64))
            queries.append(np.full(len(carrying), query, dtype=np.int64))
        return in_order(places, queries, labels)


def in_order(places: list[Ints], queries: list[Ints], labels: list[Ints]) -> KeywordBitmaps:
    """Labels by tuple, then query."""
    if not places:
        return KeywordBitmaps.none()
    place, query, label = map(np.concatenate, (places, queries, labels))
    order = np.lexsort((query, place))
    return KeywordBitmaps(place[order], query[order], label[order])


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
