"""A stream split by key: each key's records together, with as many before them as guards look back."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from schema.model import Row, Value
from windows.expressions.alphabet import Alphabet, StreamRecord
from windows.expressions.columns import Ints


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
        places: dict[tuple[Value, ...], list[int]] = {}
        value = self._alphabet.value
        names = [info.name for info in self._infos]
        for i, record in enumerate(map(StreamRecord, relation.tolist(), time.tolist(), rows)):
            key = tuple([value(name, record) for name in names])
            if None not in key:
                places.setdefault(key, []).append(i)
        joined: list[StreamRecord] = []
        arrival: list[int] = []
        parts: list[Part] = []
        for key, own in places.items():
            before = self._last.get(key, [])
            begin = len(joined) + len(before)
            fresh = [StreamRecord(relation.item(i), time.item(i), rows[i]) for i in own]
            joined += before + fresh
            arrival += [-1] * len(before) + own
            parts.append(Part(key, begin, len(joined), min(self._k - len(before), len(own))))
            if self._k:
                self._last[key] = (before + fresh)[-self._k :]
        return _split_batch(joined, arrival, parts)


def _records(relation: Ints, time: Ints, rows: Sequence[Row], last: int) -> Iterator[StreamRecord]:
    """The last records of a batch."""
    begin = max(len(rows) - last, 0)
    return map(StreamRecord, relation[begin:].tolist(), time[begin:].tolist(), rows[begin:])


def _split_batch(joined: list[StreamRecord], arrival: list[int], parts: list[Part]) -> SplitBatch:
    return SplitBatch(
        np.array([r.relation for r in joined], dtype=np.int64),
        np.array([r.time for r in joined], dtype=np.int64),
        [r.row for r in joined],
        np.array(arrival, dtype=np.int64),
        parts,
    )
