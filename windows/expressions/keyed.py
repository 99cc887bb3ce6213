"""A stream split by key: each key's records together, with as many before them as guards look back."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from schema.model import Row, Value
from windows.expressions.alphabet import Alphabet, StreamRecord
from windows.expressions.columns import Columns, Ints


class Part(NamedTuple):
    """The new records of one key: [begin, end) of the batch; the first ``early`` have too few before them."""

    key: tuple[Value, ...]
    begin: int
    end: int
    early: int


@dataclass(frozen=True, slots=True)
class SplitBatch:
    """Records key by key; ``arrival`` is a record's place in the batch as it came (-1 for one of before)."""

    relation: Ints
    time: Ints
    rows: Sequence[Row]
    arrival: Ints
    parts: list[Part]


class Streams:
    """The last k records of each key's stream. A record in which a key's field is NULL is of no stream."""

    def __init__(self, k: int, per: Sequence[str], alphabet: Alphabet) -> None:
        self._k = k
        self._infos = [alphabet.fields[name] for name in per]
        self._alphabet = alphabet
        self._last: dict[tuple[Value, ...], list[StreamRecord]] = {}

    def sorted(self, relation: Ints, time: Ints, rows: Sequence[Row]) -> SplitBatch:
        """A batch split by key, keys in order of their first record."""
        if not self._infos and not self._k:
            return SplitBatch(relation, time, rows, np.arange(len(rows)), [Part((), 0, len(rows), 0)])
        if not self._infos:
            return self._whole(relation, time, rows)
        return self._split(relation, time, rows)

    def _whole(self, relation: Ints, time: Ints, rows: Sequence[Row]) -> SplitBatch:
        before = self._last.get((), [])
        tail = len(before)
        self._last[()] = [*before, *_records(relation, time, rows, self._k)][-self._k :]
        rows = [*(record.row for record in before), *rows]
        relation = np.concatenate([np.array([r.relation for r in before], dtype=np.int64), relation])
        time = np.concatenate([np.array([r.time for r in before], dtype=np.int64), time])
        early = min(self._k - tail, len(rows) - tail)
        arrival = np.arange(len(rows)) - tail
        return SplitBatch(relation, time, rows, arrival, [Part((), tail, len(rows), early)])

    def _split(self, relation: Ints, time: Ints, rows: Sequence[Row]) -> SplitBatch:
        keys, codes = self._keys(relation, time, rows)
        order = np.argsort(codes, kind="stable")
        ends = np.cumsum(np.bincount(codes + 1, minlength=len(keys) + 1))
        before = [record for key in keys for record in self._last.get(key, ())]
        taken: list[Ints] = []
        parts: list[Part] = []
        held, size = len(rows), 0
        for number, key in enumerate(keys):
            own = order[ends[number] : ends[number + 1]]
            tail = len(self._last.get(key, ()))
            # The records of before stand behind those of the batch until all are put in order.
            taken += [np.arange(held, held + tail), own]
            held += tail
            parts.append(Part(key, size + tail, size + tail + len(own), min(self._k - tail, len(own))))
            size += tail + len(own)
        places = np.concatenate(taken) if taken else np.zeros(0, dtype=np.int64)
        split = _taken(places, relation, time, rows, before, parts)
        if self._k:
            self._remember(split)
        return split

    def _keys(self, relation: Ints, time: Ints, rows: Sequence[Row]) -> tuple[list[tuple[Value, ...]], Ints]:
        """The keys of a batch in order of occurrence, and each record's by number; -1 for one with NULL."""
        columns = Columns(self._alphabet, relation, time, rows)
        numbers: dict[tuple[Value, ...], int] = {}
        codes = [
            -1 if None in key else numbers.setdefault(key, len(numbers))
            for key in zip(*(columns.listed(info.name) for info in self._infos), strict=True)
        ]
        return list(numbers), np.array(codes, dtype=np.int64)

    def _remember(self, split: SplitBatch) -> None:
        """The last k records of each key, some of which may be of before."""
        for part in split.parts:
            begin = max(part.end - self._k, part.begin - len(self._last.get(part.key, ())))
            here = slice(begin, part.end)
            self._last[part.key] = list(
                map(StreamRecord, split.relation[here].tolist(), split.time[here].tolist(), split.rows[here])
            )


def _records(relation: Ints, time: Ints, rows: Sequence[Row], last: int) -> Iterator[StreamRecord]:
    """The last records of a batch."""
    begin = max(len(rows) - last, 0)
    return map(StreamRecord, relation[begin:].tolist(), time[begin:].tolist(), rows[begin:])


def _taken(
    places: Ints,
    relation: Ints,
    time: Ints,
    rows: Sequence[Row],
    before: Sequence[StreamRecord],
    parts: list[Part],
) -> SplitBatch:
    """The records at some places of a batch with records of before behind it."""
    relations = np.concatenate([relation, np.array([r.relation for r in before], dtype=np.int64)])
    times = np.concatenate([time, np.array([r.time for r in before], dtype=np.int64)])
    together = [*rows, *(record.row for record in before)]
    arrival = np.where(places < len(rows), places, -1)
    return SplitBatch(
        relations[places], times[places], [together[i] for i in places.tolist()], arrival, parts
    )
