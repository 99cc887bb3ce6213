"""A hash-join index that grows by batches.

An entry is one 64-bit integer: the leading bits of its hash, then its payload.
A *run* is a sorted range of entries. Entries that share some leading bits form
a *bucket*; the directory of a run has the start of each bucket. The last runs
are merged if they are of similar size and not too large. So n entries are in
about log n runs (some more if there are millions of entries), and each entry
is moved about log n times. All runs are searched at once.

Most hashes that are looked up are in no run. A filter rejects them at a tenth
of the cost of a look-up.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from skws_mesh.columnar.columns import NOTHING, Hashes, Integers, Ints, ranges, with_space, write

LEAST_BITS: Final = 17
"""The binary logarithm of the fewest bits of a filter: 16 kB, which fits the processor's caches."""
_BITS_PER_HASH = 8  # bits per hash, so that one in eight absent hashes passes
_BYTE_SHIFT = 3  # 8 bits


class HashFilter:
    """A bitmap for an expected number of hashes. With more hashes, more absent ones pass."""

    def __init__(self, expected: int = 0) -> None:
        bits = max(LEAST_BITS, (expected * _BITS_PER_HASH).bit_length())
        self._count = 0
        self._set(np.zeros(1 << (bits - _BYTE_SHIFT), dtype=np.uint8))

    @classmethod
    def from_bits(cls, bits: npt.NDArray[np.uint8], added: int) -> HashFilter:
        """The filter with the bitmap ``bits``, to which ``added`` hashes were added."""
        new_filter = cls()
        new_filter._count = added
        new_filter._set(bits)
        return new_filter

    @property
    def bits(self) -> npt.NDArray[np.uint8]:
        return self._bits

    def has_room(self, count: int) -> bool:
        """True if the filter stays sparse enough with ``count`` hashes added."""
        return (self._count + count) * _BITS_PER_HASH <= len(self._bits) << _BYTE_SHIFT

    def add(self, hashes: Hashes) -> None:
        self._count += len(hashes)
        for first in range(0, len(hashes), PAIRS):  # each part takes a few times the memory of its hashes
            positions = self._positions(hashes[first : first + PAIRS])
            np.bitwise_or.at(self._bits, positions >> _BYTE_SHIFT, _bit(positions))

    def grow(self) -> None:
        """Double the bitmap; every hash that passed still passes."""
        self._set(np.packbits(np.repeat(np.unpackbits(self._bits, bitorder="little"), 2), bitorder="little"))

    def candidates(self, hashes: Hashes) -> Ints:
        """The positions of the hashes that may be present."""
        positions = self._positions(hashes)
        hits = self._bits.take(positions >> _BYTE_SHIFT)
        hits &= _bit(positions)
        return np.flatnonzero(hits)

    def _positions(self, hashes: Hashes) -> Ints:
        # NumPy takes twice as long to index by unsigned numbers
        return (hashes >> self._shift).view(np.int64)

    def _set(self, bits: npt.NDArray[np.uint8]) -> None:
        self._bits = bits
        self._shift = np.uint64(64 - (len(bits).bit_length() - 1 + _BYTE_SHIFT))


def _bit(positions: Ints) -> npt.NDArray[np.uint8]:
    """The bit of each position within its byte."""
    return _BITS.take(positions & 7)


_BITS: Final = np.left_shift(1, np.arange(8)).astype(np.uint8)


PAIRS: Final = 1 << 18
"""The most pairs that are joined at once: enough for NumPy to be efficient; they take some ten megabytes."""
MERGED: Final = 1 << 22
"""The most entries of a merged run; merging them takes half a second."""
_LEAST_PAYLOAD_BITS = 20
_NO_ENTRIES: Hashes = np.empty(0, dtype=np.uint64)

Places: TypeAlias = npt.NDArray[np.int32]
"""Positions of entries; there are fewer than two billion."""

_NO_PLACES: Places = np.empty(0, dtype=np.int32)


class Run(NamedTuple):
    """``size`` entries sorted by their leading ``bits``, one or two per bucket on average."""

    size: int
    bits: int

    @property
    def directory(self) -> int:
        """The length of its directory: the start of each bucket, and the end of the last one."""
        return (1 << self.bits) + 1


class StoredEntries(NamedTuple):
    """A whole index as arrays, to be written to a file and mapped from it.

    ``entries`` and ``begins`` may have space for more than the ``runs`` need.
    """

    entries: Hashes
    begins: Places
    filter: npt.NDArray[np.uint8]
    runs: list[Run]
    payload_bits: int


class HashIndex:
    """Entries (hash, payload), looked up by hash. Payloads are not negative.

    A look-up may also return an entry whose hash differs in its last bits. ``runs`` are in the order
    in which their entries and directories are stored. ``max_payload``: payloads up to this one take no more
    bits.
    """

    runs: list[Run]

    def __init__(self, max_payload: int = 0) -> None:
        self._size = 0
        self._entries = _NO_ENTRIES  # with space for more
        self._begins = _NO_PLACES  # start of each bucket among the entries; with space for more
        self._set_runs([])
        self._set_payload_bits(max(_LEAST_PAYLOAD_BITS, max_payload.bit_length()))
        self.filter = HashFilter()

    @classmethod
    def from_stored(cls, stored: StoredEntries) -> HashIndex:
        """The index from which ``stored`` was made; the arrays are not copied."""
        index = cls()
        index._size = sum(run.size for run in stored.runs)
        index._entries, index._begins = stored.entries, stored.begins
        index._set_runs(stored.runs)
        index._set_payload_bits(stored.payload_bits)
        index.filter = HashFilter.from_bits(stored.filter, index._size)
        return index

    def stored_entries(self) -> StoredEntries:
        directories = sum(run.directory for run in self.runs)
        return StoredEntries(
            self._entries[: self._size],
            self._begins[:directories],
            self.filter.bits,
            self.runs,
            self.payload_bits,
        )

    @property
    def payload_bits(self) -> int:
        return int(self._payload_part).bit_length()

    def __len__(self) -> int:
        return self._size

    def make_space(self, count: int, max_payload: int) -> None:
        """Make space for ``count`` entries to be added together, with payloads of at most ``max_payload``."""
        self._make_room(max_payload)
        self._entries = with_space(self._entries, self._size, self._size + count)
        directories = sum(run.directory for run in self.runs)
        self._begins = with_space(self._begins, directories, directories + count + 2 * (count // MERGED + 1))
        if not self.filter.has_room(count):
            self.filter = HashFilter(self._size + count)
            self.filter.add(self._entries[: self._size])

    def add(self, hashes: Hashes, payload: Ints) -> None:
        """Add entries in any order."""
        for first in range(0, len(hashes), MERGED):
            chunk = slice(first, first + MERGED)
            self._add(hashes[chunk], payload[chunk])

    def _add(self, hashes: Hashes, payload: Ints) -> None:
        """Like ``add``, for at most MERGED entries."""
        self._make_room(int(payload.max()))
        entries = (hashes & self._hash_part) | payload.view(np.uint64)
        self._push(entries)
        if self.filter.has_room(len(hashes)):
            self.filter.add(entries)  # now mostly sorted, so neighbouring bits are set
        else:
            self._renew_filter()

    def probe(self, hashes: Hashes) -> tuple[Ints, Ints]:
        """All pairs of equal hashes, as (position in ``hashes``, payload)."""
        return concat_pairs(list(self.probe_in_parts(hashes)))

    def probe_in_parts(self, hashes: Hashes) -> Iterator[tuple[Ints, Ints]]:
        """Like ``probe``, in parts of about PAIRS pairs at most; entries must not change meanwhile."""
        candidates = self.filter.candidates(hashes)
        if not len(candidates):
            return
        prefixes = hashes.take(candidates) & self._hash_part
        bucket = ((prefixes >> self._shifts).view(np.int64) + self._directories).ravel()
        first = self._begins.take(bucket)
        counts = self._begins.take(bucket + 1) - first
        positions = np.tile(np.arange(len(candidates)), len(self.runs))
        for begins, lengths, numbers in _split(first, counts, positions):
            origin = np.repeat(numbers, lengths)
            differences = self._entries.take(ranges(begins, lengths))
            differences ^= prefixes.take(origin)  # the payload, if the hashes agree
            hits = np.flatnonzero(differences <= self._payload_part)
            yield candidates.take(origin.take(hits)), differences.take(hits).view(np.int64)

    def remap(self, new_payload: Ints) -> None:
        """Renumber payloads from 0 on, in the same order; entries with a negative number are dropped."""
        count = int(new_payload.max(initial=-1)) + 1
        self._make_room(count - 1)
        drop_count = len(new_payload) - count
        is_shift = count > 0 and new_payload[drop_count] == 0  # only the oldest were dropped
        entry_parts: list[Hashes] = []
        runs, directories = [], [_NO_PLACES]
        directory_start = entry_start = size = 0
        for run in self.runs:
            entries = self._entries[entry_start : entry_start + run.size]
            payload = (entries & self._payload_part).view(np.int64)
            if is_shift:
                alive = payload >= drop_count
                entries = entries[alive] - np.uint64(drop_count)
            else:
                new_numbers = new_payload.take(payload)
                alive = new_numbers >= 0
                entries = (entries[alive] & self._hash_part) | new_numbers[alive].view(np.uint64)
            if len(entries):
                # The remaining entries are still sorted, and fewer entries need fewer leading bits.
                positions = np.concatenate([NOTHING, [0], np.cumsum(alive)]) + size
                directory = positions.take(
                    self._begins[directory_start : directory_start + run.directory] - entry_start
                ).astype(np.int32)
                bits = min(run.bits, _bits_of(len(entries)))
                runs.append(Run(len(entries), bits))
                directories.append(directory[:: 1 << (run.bits - bits)])
                entry_parts.append(entries)
                size += len(entries)
            directory_start += run.directory
            entry_start += run.size
        self._size, self._entries = size, np.concatenate([_NO_ENTRIES, *entry_parts])
        self._begins = np.concatenate(directories)
        self._set_runs(runs)
        self._renew_filter()

    def _push(self, entries: Hashes) -> None:
        """Add a run; merge it with last runs less than twice its size, up to MERGED entries."""
        first, size = self._size, len(entries)
        while self.runs and self.runs[-1].size < 2 * size and self.runs[-1].size + size <= MERGED:
            first -= self.runs[-1].size
            size += self.runs.pop().size
        run = run_of(size)
        if len(entries) < size:
            entries = np.concatenate([self._entries[first : self._size], entries])
        entries.sort()  # in place, and with the processor's vector instructions
        begins = _directory(entries, run.bits)
        self._size = first + size
        if first or len(self._entries) >= self._size:
            directories = sum(other.directory for other in self.runs)
            self._entries = write(self._entries, first, entries)
            self._begins = write(self._begins, directories, begins + np.int32(first))
        else:
            self._entries, self._begins = entries, begins
        self._set_runs([*self.runs, run])

    def _set_runs(self, runs: list[Run]) -> None:
        self.runs = runs
        self._shifts = np.array([64 - run.bits for run in runs], dtype=np.uint64)[:, None]
        directories = np.array([run.directory for run in runs], dtype=np.int64)
        self._directories = (np.cumsum(directories) - directories)[:, None]

    def _set_payload_bits(self, bits: int) -> None:
        self._payload_part = np.uint64((1 << bits) - 1)
        self._hash_part = ~self._payload_part

    def _make_room(self, payload: int) -> None:
        """Make ``payload`` fit, at the cost of bits of the hashes."""
        if payload <= int(self._payload_part):
            return
        old_mask = self._payload_part
        self._set_payload_bits(payload.bit_length() + 1)
        mask = self._hash_part | old_mask
        self._entries = self._entries & mask

    def _renew_filter(self) -> None:
        self.filter = HashFilter(len(self))
        self.filter.add(self._entries[: self._size])


def run_of(size: int) -> Run:
    """A run of ``size`` entries."""
    return Run(size, _bits_of(size))


def _bits_of(size: int) -> int:
    """The number of leading bits that makes as many buckets as there are entries, or half as many."""
    return max(1, size.bit_length() - 1)


def _directory(entries: Hashes, bits: int) -> Places:
    """The start of each bucket of sorted entries, by their leading ``bits``, and the end of the last one."""
    begins = np.zeros((1 << bits) + 1, dtype=np.int32)
    np.cumsum(np.bincount(_leading(entries, bits), minlength=1 << bits), out=begins[1:], dtype=np.int32)
    return begins


def _leading(hashes: Hashes, bits: int) -> Ints:
    return (hashes >> np.uint64(64 - bits)).view(np.int64)


def concat_pairs(parts: list[tuple[Ints, Ints]]) -> tuple[Ints, Ints]:
    if len(parts) == 1:
        return parts[0]
    first, second = zip(*parts, strict=True) if parts else ((NOTHING,), (NOTHING,))
    return np.concatenate(first), np.concatenate(second)


def in_parts(pairs: tuple[Ints, Ints]) -> Iterator[tuple[Ints, Ints]]:
    """The pairs in parts of at most PAIRS."""
    for begin in range(0, len(pairs[0]), PAIRS):
        yield pairs[0][begin : begin + PAIRS], pairs[1][begin : begin + PAIRS]


def in_fewer_parts(parts: Iterable[tuple[Ints, Ints]]) -> Iterator[tuple[Ints, Ints]]:
    """The pairs in parts of PAIRS to twice as many; smaller parts are joined."""
    pending: list[tuple[Ints, Ints]] = []
    for part in parts:
        pending.append(part)
        if sum(len(first) for first, _ in pending) >= PAIRS:
            yield concat_pairs(pending)
            pending = []
    if pending:
        yield concat_pairs(pending)


def _split(first: Places, counts: Places, numbers: Ints) -> Iterator[tuple[Integers, Integers, Ints]]:
    """Ranges of positions, in parts of PAIRS positions in total; long ranges are cut."""
    total = int(counts.sum())
    if total <= PAIRS:
        yield first, counts, numbers
        return
    ends = np.cumsum(counts)
    for begin in range(0, total, PAIRS):
        end = min(begin + PAIRS, total)
        low, high = np.searchsorted(ends, (begin, end - 1), side="right")
        chunk = slice(int(low), int(high) + 1)
        starts = ends[chunk] - counts[chunk]
        lower, upper = np.maximum(starts, begin), np.minimum(ends[chunk], end)
        yield first[chunk] + (lower - starts), upper - lower, numbers[chunk]
