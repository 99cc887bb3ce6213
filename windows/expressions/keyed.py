"""A stream split by key: each key's records together, with as many before them as guards look back."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from schema.model import Value
from windows.expressions.alphabet import Alphabet, StreamRecord
from windows.expressions.source import Arranged, Ints, RowSource, Source


class Part(NamedTuple):
    """The new records of one key: [begin, end) of the batch; the first ``early`` have too few before them."""

    key: tuple[Value, ...]
    begin: int
    end: int
    early: int


@dataclass(frozen=True, slots=True)
class SplitBatch:
    """Records key by key; ``arrival`` is a record's place in the batch as it came (-1 for one of before)."""

    source: Source
    arrival: Ints
    parts: list[Part]


class Streams:
    """The last k records of each key's stream. A record in which a key's field is NULL is of no stream."""

    def __init__(self, k: int, per: Sequence[str], alphabet: Alphabet) -> None:
        self._k = k
        self._infos = [alphabet.fields[name] for name in per]
        self._last: dict[tuple[Value, ...], list[StreamRecord]] = {}

    def state(self) -> list[Any]:
        """The last records of each key, in plain values."""
        return [(key, list(map(tuple, records))) for key, records in self._last.items()]

    def restore(self, state: list[Any]) -> None:
        """Hold what a ``state`` was of."""
        self._last = {
            tuple(key): [StreamRecord(relation, time, tuple(row)) for relation, time, row in records]
            for key, records in state
        }

    def sorted(self, source: Source) -> SplitBatch:
        """A batch split by key, keys in order of their first record."""
        size = len(source.relation)
        if not self._infos and not self._k:
            return SplitBatch(source, np.arange(size), [Part((), 0, size, 0)])
        keys, codes = self._keys(source) if self._infos else ([()], np.zeros(size, dtype=np.int64))
        order = np.argsort(codes, kind="stable") if self._infos else np.arange(size)
        ends = np.cumsum(np.bincount(codes + 1, minlength=len(keys) + 1))
        earlier = RowSource.of([record for key in keys for record in self._last.get(key, ())])
        taken: list[Ints] = []
        parts: list[Part] = []
        held, begin = size, 0
        for number, key in enumerate(keys):
            own = order[ends[number] : ends[number + 1]]
            tail = len(self._last.get(key, ()))
            # The records of before stand behind those of the batch until all are put in order.
            taken += [np.arange(held, held + tail), own]
            held += tail
            parts.append(Part(key, begin + tail, begin + tail + len(own), min(self._k - tail, len(own))))
            begin += tail + len(own)
        places = np.concatenate(taken) if taken else np.zeros(0, dtype=np.int64)
        split = SplitBatch(Arranged(source, earlier, places), np.where(places < size, places, -1), parts)
        if self._k:
            self._remember(split)
        return split

    def _keys(self, source: Source) -> tuple[list[tuple[Value, ...]], Ints]:
        """The keys of a batch in order of occurrence, and each record's by number; -1 for one with NULL."""
        columns = [source.column(info).listed() for info in self._infos]
        # One value is hashed faster than a tuple of one.
        found: list[Any] = columns[0] if len(columns) == 1 else list(zip(*columns, strict=True))
        numbers: dict[Any, int] = {}
        keys: list[tuple[Value, ...]] = []
        for value in dict.fromkeys(found):
            key = (value,) if len(columns) == 1 else value
            numbers[value] = -1 if None in key else len(keys)
            if None not in key:
                keys.append(key)
        return keys, np.fromiter(map(numbers.__getitem__, found), np.int64, len(found))

    def _remember(self, split: SplitBatch) -> None:
        """The last k records of each key, some of which may be of before."""
        for part in split.parts:
            begin = max(part.end - self._k, part.begin - len(self._last.get(part.key, ())))
            self._last[part.key] = [split.source.record(place) for place in range(begin, part.end)]
