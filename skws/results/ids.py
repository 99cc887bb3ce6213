"""Ids of results: 96 bits that depend on their tuples and joins, not on the order of either.

A tuple counts by a digest of its name, a join by its name and its ends, left
and right being distinct. Sums of well mixed numbers do not depend on order,
so the ids of many results are made by columns (``ids``), with the same outcome
as one by one (``id_of``). Digests are two *lanes* of 64 bits, which never mix:
two results are taken for one only if both lanes agree by chance.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from hashlib import blake2b
from struct import Struct
from typing import Final

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]
Lanes = npt.NDArray[np.uint64]

_BITS: Final = (1 << 64) - 1
_LEFT: Final = 0x9E3779B97F4A7C15
_RIGHT: Final = 0xC2B2AE3D27D4EB4F
# The finalizer of MurmurHash3 (fmix64; Appleby).
_SHIFT: Final = 33
_FACTORS: Final = (0xFF51AFD7ED558CCD, 0xC4CEB9FE1A85EC53)
_TWO: Final = Struct("<QQ")
_SHOWN: Final = 24  # hexadecimal digits: all of the first lane, half of the second


def digest(name: bytes) -> bytes:
    """The two lanes of a name, little-endian."""
    return blake2b(name, digest_size=16).digest()


def digests(before: bytes, names: Sequence[bytes]) -> list[bytes]:
    """Those of many names that begin alike."""
    begun, made = blake2b(before, digest_size=16).copy, []
    for name in names:  # one at a time: each state takes the last one's place in the processor's caches
        state = begun()
        state.update(name)
        made.append(state.digest())
    return made


@lru_cache(maxsize=4096)
def digest_of_join(name: str) -> bytes:
    return digest(name.encode())


def lanes(digests: Iterable[bytes]) -> Lanes:
    """Digests as a row of two lanes each."""
    return np.frombuffer(b"".join(digests), dtype="<u8").reshape(-1, 2).astype(np.uint64, copy=False)


def ids(members: Lanes, tuples: Ints, joins: Lanes, ends: tuple[Ints, Ints, Ints]) -> tuple[Lanes, list[str]]:
    """The ids of results of one size, a row each: their first lanes, which are in the order of ids, and all.

    ``tuples`` are the numbers of theirs among ``members``; ``ends`` have for their joins the columns of
    ``tuples`` on the left and on the right, and the number among ``joins``.
    """
    made = [mixed_lane(members, tuples, joins, ends, lane) for lane in range(2)]
    text = np.column_stack(made).astype(">u8").tobytes().hex()
    return made[0], [text[first : first + _SHOWN] for first in range(0, len(text), 32)]


def mixed_lane(
    members: Lanes, tuples: Ints, joins: Lanes, ends: tuple[Ints, Ints, Ints], lane: int
) -> npt.NDArray[np.uint64]:
    """One lane of the ids that ``ids`` makes of the same."""
    left, right, names = ends
    row = np.arange(len(tuples))[:, None] * tuples.shape[1]
    of = members[:, lane].take(tuples)
    pairs = of.take(row + left) * np.uint64(_LEFT)
    pairs ^= of.take(row + right) * np.uint64(_RIGHT)
    pairs += joins[:, lane].take(names)
    return _mixed(of.sum(axis=1) + _mixed(pairs).sum(axis=1, dtype=np.uint64))


def id_of(members: Sequence[bytes], joins: Iterable[tuple[int, int, str]]) -> str:
    """The id of one result, of the digests of its tuples and its joins: left tuple, right tuple, name."""
    of = list(map(_TWO.unpack, members))
    ends = [(left, right, _TWO.unpack(digest_of_join(name))) for left, right, name in joins]
    made = []
    for lane in range(2):
        pairs = (
            ((of[left][lane] * _LEFT ^ of[right][lane] * _RIGHT) & _BITS) + name[lane]
            for left, right, name in ends
        )
        total = sum(digests[lane] for digests in of) + sum(_mixed_one(pair & _BITS) for pair in pairs)
        made.append(_mixed_one(total & _BITS))
    return f"{made[0]:016x}{made[1]:016x}"[:_SHOWN]


def _mixed(numbers: Lanes) -> Lanes:
    for factor in _FACTORS:
        numbers = (numbers ^ (numbers >> np.uint64(_SHIFT))) * np.uint64(factor)
    return numbers ^ (numbers >> np.uint64(_SHIFT))


def _mixed_one(number: int) -> int:
    for factor in _FACTORS:
        number = (number ^ (number >> _SHIFT)) * factor & _BITS
    return number ^ (number >> _SHIFT)
