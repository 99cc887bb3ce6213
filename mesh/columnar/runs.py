"""Sorted runs: a hash-join index that grows by batches.

Each batch is a run sorted by key; runs of similar size are merged, so that n
entries stand in about log n runs and each is moved about log n times.
"""

from __future__ import annotations

import numpy as np

from mesh.columnar.columns import Flags, Ints

_NOTHING: Ints = np.empty(0, dtype=np.int64)


class SortedRuns:
    """Entries (key, payload), looked up by key."""

    def __init__(self) -> None:
        self._runs: list[tuple[Ints, Ints]] = []

    def __len__(self) -> int:
        return sum(len(keys) for keys, _ in self._runs)

    def add(self, keys: Ints, payload: Ints) -> None:
        """Add a run; ``keys`` are sorted."""
        if not len(keys):
            return
        self._runs.append((keys, payload))
        while len(self._runs) > 1 and len(self._runs[-2][0]) < 2 * len(self._runs[-1][0]):
            self._runs[-2:] = [_merged(self._runs[-2], self._runs[-1])]

    def probe(self, keys: Ints) -> tuple[Ints, Ints]:
        """All pairs of equal keys, as (position in ``keys``, payload)."""
        found = [probe_run(run, payload, keys) for run, payload in self._runs]
        if not found:
            return _NOTHING, _NOTHING
        return np.concatenate([f[0] for f in found]), np.concatenate([f[1] for f in found])

    def remap(self, new_payload: Ints) -> None:
        """Renumber payloads; entries whose new number is negative go."""
        runs, self._runs = self._runs, []
        for keys, payload in runs:
            renumbered = new_payload[payload]
            kept: Flags = renumbered >= 0
            self.add(keys[kept], renumbered[kept])


def probe_run(run: Ints, payload: Ints, keys: Ints) -> tuple[Ints, Ints]:
    """All pairs of equal keys in one sorted run."""
    first = np.searchsorted(run, keys)
    # Most keys meet nobody: only those that do are searched for their last partner.
    hits = np.flatnonzero(run[np.minimum(first, len(run) - 1)] == keys) if len(run) else _NOTHING
    if not len(hits):
        return _NOTHING, _NOTHING
    first = first[hits]
    counts = np.searchsorted(run, keys[hits], side="right") - first
    return np.repeat(hits, counts), payload[ranges(first, counts)]


def ranges(first: Ints, counts: Ints) -> Ints:
    """The numbers first[i], ..., first[i] + counts[i] - 1 for every i, one after the other."""
    total = int(counts.sum())
    begins = np.repeat(first - (np.cumsum(counts) - counts), counts)
    return begins + np.arange(total, dtype=np.int64)


def _merged(left: tuple[Ints, Ints], right: tuple[Ints, Ints]) -> tuple[Ints, Ints]:
    keys = np.concatenate([left[0], right[0]])
    order = np.argsort(keys, kind="stable")  # a merge, since both parts are sorted
    return keys[order], np.concatenate([left[1], right[1]])[order]
