"""Sorted runs: a hash-join index that grows by batches.

An entry is one 64-bit integer: the leading bits of its hash, then its payload.
So a run is a plain sorted array, and sorting, the fastest thing that NumPy
does, is all that it takes to build one. Runs of similar size are merged, so
that n entries stand in about log n runs and each is moved about log n times.

Most hashes that are looked up are in no run. A filter tells so at a hundredth
of the cost of a search.
"""

from __future__ import annotations

import numpy as np

from mesh.columnar.columns import NOTHING, Hashes, Ints, ranges
from mesh.columnar.filter import HashFilter

_LEAST_PAYLOAD_BITS = 20


class SortedRuns:
    """Entries (hash, payload), looked up by hash; payloads are not negative.

    A look-up may also give an entry whose hash differs in its last bits.
    """

    def __init__(self) -> None:
        self._runs: list[Hashes] = []
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
        self._push(np.sort((hashes & self._hash_part) | payload.view(np.uint64)))
        if self._filter.has_room(len(hashes)):
            self._filter.add(hashes)
        else:
            self._renew_filter()

    def probe(self, hashes: Hashes) -> tuple[Ints, Ints]:
        """All pairs of equal hashes, as (position in ``hashes``, payload)."""
        wanted = self._filter.passing(hashes)
        if not len(wanted):
            return NOTHING, NOTHING
        prefixes = hashes[wanted] & self._hash_part
        order = np.argsort(prefixes)  # what is sorted is found in a third of the time
        wanted, prefixes = wanted[order], prefixes[order]
        found = [self._probe_run(run, prefixes) for run in self._runs]
        positions = wanted[np.concatenate([hits for hits, _ in found])]
        return positions, np.concatenate([payload for _, payload in found])

    def remap(self, new_payload: Ints) -> None:
        """Renumber payloads, keeping their order, from 0 on; entries whose new number is negative go."""
        runs, self._runs, self._size = self._runs, [], 0
        left = int(new_payload.max(initial=-1)) + 1
        self._make_room(left - 1)
        gone = len(new_payload) - left
        oldest_went = left and new_payload[gone] == 0  # all others moved alike
        for run in runs:
            payload = (run & self._payload_part).view(np.int64)
            if oldest_went:
                self._push(run.take(np.flatnonzero(payload >= gone)) - np.uint64(gone))
            else:
                renumbered = new_payload.take(payload)
                kept = np.flatnonzero(renumbered >= 0)
                self._push((run.take(kept) & self._hash_part) | renumbered.take(kept).view(np.uint64))
        self._renew_filter()

    def _push(self, run: Hashes) -> None:
        self._size += len(run)
        if len(run):
            self._runs.append(run)
        while len(self._runs) > 1 and len(self._runs[-2]) < 2 * len(self._runs[-1]):
            # The stable sort finds the two sorted runs and merges them, at a twentieth of a sort's cost.
            self._runs[-2:] = [np.sort(np.concatenate(self._runs[-2:]), kind="stable")]

    def _probe_run(self, run: Hashes, prefixes: Hashes) -> tuple[Ints, Ints]:
        first = np.searchsorted(run, prefixes)
        met = run[np.minimum(first, len(run) - 1)] & self._hash_part
        hits = np.flatnonzero(met == prefixes)
        if not len(hits):
            return NOTHING, NOTHING
        first = first[hits]
        counts = np.searchsorted(run, prefixes[hits] | self._payload_part, side="right") - first
        return np.repeat(hits, counts), (run[ranges(first, counts)] & self._payload_part).view(np.int64)

    def _set_payload_bits(self, bits: int) -> None:
        self._payload_bits = bits
        self._payload_part = np.uint64((1 << bits) - 1)
        self._hash_part = ~self._payload_part

    def _make_room(self, payload: int) -> None:
        """See to it that ``payload`` fits; what it takes from the hashes changes their order."""
        if payload < 1 << self._payload_bits:
            return
        old = self._payload_part
        self._set_payload_bits(payload.bit_length() + 1)
        self._runs = [np.sort((run & self._hash_part) | (run & old)) for run in self._runs]

    def _renew_filter(self) -> None:
        self._filter = HashFilter(self._size)
        for run in self._runs:
            self._filter.add(run)
