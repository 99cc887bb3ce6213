"""Tuples with settled lifespans to insert, and how many to insert at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from skws.data.batch import BATCH, RecordBatch, Rows
from skws.data.blocks import Block
from skws.keywords.keyword_matching import KeywordMatching
from skws_mesh.columnar.bitmaps import KeywordBitmaps
from skws_mesh.columnar.columns import Ints, distinct
from skws_purging.tuples import ALWAYS, StreamTuple
from skws_windows.window import FOREVER, ExpressionWindow, Unbounded, Window

RESULTS: Final = 1 << 18
"""Results of one portion, about: they are in memory together, as columns of integers."""
_FIRST: Final = 2048  # tuples with keywords: each can join each
_SAMPLE: Final = 128  # rows that tell the share with keywords


@dataclass(slots=True)
class TupleBatch:
    """Tuples in order of their start.

    ``times`` are event times in microseconds; ``place`` is the order of
    arrival. ``followed``, by number: tuples whose deletion is known, or whose
    name depends on more than their columns. ``bitmaps``: None if keywords are
    still to be matched.
    """

    relation: Ints
    rows: Rows
    start: Ints
    end: Ints
    times: Ints
    place: Ints
    followed: dict[int, StreamTuple] = field(default_factory=dict)
    bitmaps: KeywordBitmaps | None = None

    def merged(self, other: TupleBatch) -> TupleBatch:
        """These and other tuples in order of start; keywords of both are still to be matched."""
        start, place = np.concatenate([self.start, other.start]), np.concatenate([self.place, other.place])
        order = np.argsort(start, kind="stable")
        number = np.empty_like(order)
        number[order] = np.arange(len(order))
        own = {int(number[at]): known for at, known in self.followed.items()}
        others = {int(number[len(self.start) + at]): known for at, known in other.followed.items()}
        return TupleBatch(
            np.concatenate([self.relation, other.relation])[order],
            Rows.together([self.rows, other.rows]).taken(order),
            start[order],
            np.concatenate([self.end, other.end])[order],
            np.concatenate([self.times, other.times])[order],
            place[order],
            own | others,
        )


def of_tuples(tuples: list[StreamTuple], follow: Callable[[StreamTuple], bool]) -> TupleBatch:
    """A batch of tuples; ``follow``: True for those to follow."""
    relation = np.array([t.relation for t in tuples], dtype=np.int64)
    return TupleBatch(
        relation,
        Rows.of(relation, [t.row for t in tuples]),
        np.array([t.start for t in tuples], dtype=np.int64),
        np.array([t.end for t in tuples], dtype=np.int64),
        np.array([t.time for t in tuples], dtype=np.int64),
        np.array([t.place for t in tuples], dtype=np.int64),
        {place: t for place, t in enumerate(tuples) if follow(t)},
    )


def of_table_rows(blocks: Sequence[Block], occurrences: Mapping[int, int]) -> TupleBatch:
    """Rows of static tables, alive for ever; ``occurrences``: the number of equal rows before, by number."""
    sizes = [len(block) for block in blocks]
    relation = np.repeat([block.relation for block in blocks], sizes).astype(np.int64)
    block = np.repeat(np.arange(len(blocks), dtype=np.int64), sizes)
    place = np.concatenate([np.arange(size, dtype=np.int64) for size in sizes])
    rows, size = Rows(block, place, tuple(blocks)), len(relation)
    return TupleBatch(
        relation,
        rows,
        np.full(size, ALWAYS),
        np.full(size, FOREVER),
        np.zeros(size, dtype=np.int64),
        np.zeros(size, dtype=np.int64),
        {
            number: StreamTuple(int(relation[number]), rows.row(number), ALWAYS, FOREVER, occurrence=before)
            for number, before in occurrences.items()
        },
    )


def natural_ends(window: Window, starts: Ints) -> Ints:
    """The ends that a window gives to tuples."""
    if isinstance(window, Unbounded | ExpressionWindow):
        return np.full(len(starts), FOREVER, dtype=np.int64)
    return starts + window.end(0)


class Portions:
    """Cuts batches in order of time at the ends of instants: smaller portions where results are many.

    The first portions are small where many tuples contain keywords. ``carriers``: the most tuples with
    keywords in the next portion.
    """

    def __init__(self, matching: KeywordMatching) -> None:
        self._matching = matching
        self.carriers = _FIRST

    def of(self, batch: RecordBatch) -> Iterator[RecordBatch]:
        """The batch in portions; ``led_to`` is called for each before the next is taken."""
        while len(batch) > self.carriers:
            end = _end_of_instant(batch, self._most(batch))
            if end == len(batch):
                break
            portion, batch = batch.cut(end)
            yield portion
        yield batch

    def led_to(self, results: int) -> None:
        """A portion had so many results."""
        if results > RESULTS:
            self.carriers = max(1, self.carriers * RESULTS // results)
        elif 2 * results < RESULTS:
            self.carriers = min(BATCH, 2 * self.carriers)

    def _most(self, batch: RecordBatch) -> int:
        """The number of records that are likely to have ``carriers`` tuples with keywords."""
        if self.carriers == BATCH:
            return len(batch)
        sample = batch.rows.taken(slice(None, None, -(-len(batch) // _SAMPLE))).packed()
        carrying = len(distinct(self._matching.of(sample).tuple))
        return len(batch) if not carrying else self.carriers * len(sample) // carrying


def _end_of_instant(batch: RecordBatch, most: int) -> int:
    """The place behind the last instant that ends within ``most`` records, or else behind the first one."""
    ends = np.append(np.flatnonzero(np.diff(batch.time)) + 1, len(batch))
    return int(ends[max(0, int(np.searchsorted(ends, most, side="right")) - 1)])
