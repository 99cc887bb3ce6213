"""Runs: a hash-join index that grows by batches.

An entry is one 64-bit integer: the leading bits of its hash, then its payload.
A run is an array of entries in order of their *buckets*, which are still fewer
of these leading bits; a directory tells where each bucket begins. Runs of
similar size become one, so that n entries stand in about log n runs and each
is moved about log n times.

Most hashes that are looked up are in no run. A filter tells so at a tenth of
the cost of a look-up.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from mesh.columnar.columns import NOTHING, Hashes, Ints, ranges
from mesh.columnar.filter import HashFilter

_LEAST_PAYLOAD_BITS = 20
_DIGIT = 16  # bits by which NumPy sorts in linear time: several times as fast as by 64


@dataclass(frozen=True)
class _Run:
    """Entries in order of their leading ``bits``."""

    entries: Hashes
    bits: int

    @classmethod
    def of(cls, entries: Hashes) -> _Run:
        """Of entries in any order."""
        bits = _bits(len(entries))
        if bits > _DIGIT:  # a radix sort, by the last digit first
            entries = entries.take(_order(entries, bits))
        return cls(entries.take(_order(entries, min(bits, _DIGIT))), bits)

    def __len__(self) -> int:
        return len(self.entries)

    def near(self, hashes: Hashes) -> tuple[Ints, Hashes]:
        """The entries of the buckets of hashes, as (position in ``hashes``, entry)."""
        bucket = _leading(hashes, self.bits)
        first = self._begins.take(bucket)
        counts = self._begins.take(bucket + 1) - first
        positions = np.repeat(np.arange(len(hashes), dtype=np.int64), counts)
        return positions, self.entries.take(ranges(first, counts))

    @cached_property
    def _begins(self) -> Ints:
        """Where each bucket begins, and the last one ends."""
        begins = np.zeros((1 << self.bits) + 1, dtype=np.int64)
        sizes = np.bincount(_leading(self.entries, self.bits), minlength=1 << self.bits)
        np.cumsum(sizes, out=begins[1:])
        return begins


class HashRuns:
    """Entries (hash, payload), looked up by hash; payloads are not negative.

    A look-up may also give an entry whose hash differs in its last bits.
    """

    def __init__(self) -> None:
        self._runs: list[_Run] = []
        self._size = 0
        self._set_payload_bits(_LEAST_PAYLOAD_BITS)
        self._filter = HashFilter()

    def __len__(self) -> int:
        return self._size

    def add(self, hashes: Hashes, payload: Ints) -> None:
        """Add entries in any order."""
        if not len(hashes):
            return
        self._make_room(int(payload.max()))
        self._push(_Run.of((hashes & self._hash_part) | payload.view(np.uint64)))
        if self._filter.has_room(len(hashes)):
            self._filter.add(hashes)
        else:
            self._renew_filter()

    def probe(self, hashes: Hashes) -> tuple[Ints, Ints]:
        """All pairs of equal hashes, as (position in ``hashes``, payload)."""
        wanted = self._filter.passing(hashes)
        if not len(wanted):
            return NOTHING, NOTHING
        prefixes = hashes.take(wanted) & self._hash_part
        found = [self._probe_run(run, prefixes) for run in self._runs]
        positions = np.concatenate([hits for hits, _ in found])
        return wanted.take(positions), np.concatenate([payload for _, payload in found])

    def remap(self, new_payload: Ints) -> None:
        """Renumber payloads, keeping their order, from 0 on; entries whose new number is negative go."""
        runs, self._runs, self._size = self._runs, [], 0
        left = int(new_payload.max(initial=-1)) + 1
        self._make_room(left - 1)
        gone = len(new_payload) - left
        oldest_went = left and new_payload[gone] == 0  # all others moved alike
        for run in runs:
            payload = (run.entries & self._payload_part).view(np.int64)
            if oldest_went:
                kept = run.entries.take(np.flatnonzero(payload >= gone)) - np.uint64(gone)
            else:
                renumbered = new_payload.take(payload)
                stays = np.flatnonzero(renumbered >= 0)
                kept = (run.entries.take(stays) & self._hash_part) | renumbered.take(stays).view(np.uint64)
            self._push(_Run(kept, min(run.bits, _bits(len(kept)))))
        self._renew_filter()

    def _push(self, run: _Run) -> None:
        self._size += len(run)
        if len(run):
            self._runs.append(run)
        while len(self._runs) > 1 and len(self._runs[-2]) < 2 * len(self._runs[-1]):
            self._runs[-2:] = [_Run.of(np.concatenate([run.entries for run in self._runs[-2:]]))]

    def _probe_run(self, run: _Run, prefixes: Hashes) -> tuple[Ints, Ints]:
        positions, entries = run.near(prefixes)
        hits = np.flatnonzero((entries ^ prefixes.take(positions)) <= self._payload_part)
        return positions.take(hits), (entries.take(hits) & self._payload_part).view(np.int64)

    def _set_payload_bits(self, bits: int) -> None:
        self._payload_part = np.uint64((1 << bits) - 1)
        self._hash_part = ~self._payload_part

    def _make_room(self, payload: int) -> None:
        """See to it that ``payload`` fits, by what it takes from the hashes."""
        if payload <= int(self._payload_part):
            return
        old = self._payload_part
        self._set_payload_bits(payload.bit_length() + 1)
        self._runs = [
            _Run((run.entries & self._hash_part) | (run.entries & old), run.bits) for run in self._runs
        ]

    def _renew_filter(self) -> None:
        self._filter = HashFilter(self._size)
        for run in self._runs:
            self._filter.add(run.entries)


def _bits(entries: int) -> int:
    """So many that a bucket has one or two entries."""
    return max(1, entries.bit_length() - 1)


def _leading(hashes: Hashes, bits: int) -> Ints:
    return (hashes >> np.uint64(64 - bits)).view(np.int64)


def _order(hashes: Hashes, bits: int) -> Ints:
    """The stable order by the last digit of the leading ``bits``."""
    return np.argsort(_leading(hashes, bits).astype(np.uint16), kind="stable")
