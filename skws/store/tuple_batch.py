"""Batches of tuples with their lifespans, as columns."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from skws.data.batch import Rows
from skws.data.blocks import Block
from skws_mesh.columnar.bitmaps import KeywordBitmaps
from skws_mesh.columnar.columns import Ints, ranges
from skws_purging.lifespans import ALWAYS, StreamTuple
from skws_windows.window import FOREVER, ExpressionWindow, Unbounded, Window


@dataclass(slots=True)
class TupleBatch:
    """Tuples in order of their start.

    ``times`` are event times in microseconds; ``place`` is the order of
    arrival. ``followed``, by number: tuples whose deletion is known, or whose
    name depends on more than their columns. ``bitmaps``: None if keywords are
    still to be matched. ``ended_at``: the event times of records that end them, FOREVER for others; None if
    ``end`` determines them.
    """

    relation: Ints
    rows: Rows
    start: Ints
    end: Ints
    times: Ints
    place: Ints
    followed: dict[int, StreamTuple] = field(default_factory=dict)
    bitmaps: KeywordBitmaps | None = None
    ended_at: Ints | None = None

    def merged(self, other: TupleBatch) -> TupleBatch:
        """Merge two batches in order of start; the keywords of both are yet to be matched."""
        start, place = np.concatenate([self.start, other.start]), np.concatenate([self.place, other.place])
        order = np.argsort(start, kind="stable")
        number = np.empty_like(order)
        number[order] = np.arange(len(order))
        followed = {int(number[position]): member for position, member in self.followed.items()}
        other_followed = {
            int(number[len(self.start) + position]): member for position, member in other.followed.items()
        }
        unknown_ends = np.full(len(other.start), FOREVER)  # their objects have the times
        return TupleBatch(
            np.concatenate([self.relation, other.relation])[order],
            Rows.concat([self.rows, other.rows]).take(order),
            start[order],
            np.concatenate([self.end, other.end])[order],
            np.concatenate([self.times, other.times])[order],
            place[order],
            followed | other_followed,
            ended_at=None if self.ended_at is None else np.concatenate([self.ended_at, unknown_ends])[order],
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
    """Rows of static tables, which never end; ``occurrences``: the number of equal rows before, by number."""
    sizes = np.array([len(block) for block in blocks], dtype=np.int64)
    relation = np.repeat(np.array([block.relation for block in blocks], dtype=np.int64), sizes)
    block = np.repeat(np.arange(len(blocks), dtype=np.int64), sizes)
    index = ranges(np.zeros(len(blocks), dtype=np.int64), sizes)
    rows, size = Rows(block, index, tuple(blocks)), len(relation)
    return TupleBatch(
        relation,
        rows,
        np.full(size, ALWAYS),
        np.full(size, FOREVER),
        np.zeros(size, dtype=np.int64),
        np.zeros(size, dtype=np.int64),
        {
            number: StreamTuple(
                int(relation[number]), rows.row(number), ALWAYS, FOREVER, occurrence=occurrence
            )
            for number, occurrence in occurrences.items()
        },
    )


def natural_ends(window: Window, starts: Ints) -> Ints:
    """The ends that a window gives to tuples."""
    if isinstance(window, Unbounded | ExpressionWindow):
        return np.full(len(starts), FOREVER, dtype=np.int64)
    return starts + window.end(0)
