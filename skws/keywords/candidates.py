"""Which texts of an Arrow column can match at all: those to be analysed.

An Arrow column of texts is one long string of bytes. Where a text of ASCII
holds a substring that some keyword begins with, it is a candidate; all texts
are searched at once, at the speed of memory. Other texts are left to a
regular expression.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from mesh.columnar.columns import distinct
from skws.arrow_arrays import flags, of_integers
from skws.keywords.prefilter import ASCII_JOINERS, condition, substrings
from skws.keywords.query import Alternative

Places: TypeAlias = npt.NDArray[np.int64]

_MOST: Final = 32  # substrings, each of which is looked for in all bytes
_LOWER: Final = bytes(range(256)).lower()
_JOINERS: Final = "".join(ASCII_JOINERS).encode()


class Candidates:
    """The texts that may satisfy any of some alternatives."""

    def __init__(self, alternatives: Sequence[Alternative]) -> None:
        self._condition = condition(alternatives)
        plain = substrings(alternatives)
        few = plain is not None and len(plain) <= _MOST
        self._plain = [re.compile(re.escape(start.encode())) for start in plain or ()] if few else None

    def of(self, column: pa.Array) -> Places | None:
        """The places of the candidates in order; None if the alternatives tell nothing beforehand."""
        if self._condition is None:
            return None
        if self._plain is None or not pa.types.is_string(column.type):
            return self._matching(column)
        data, offsets = _bytes_of(column)
        if data.isascii():
            return self._holding(data, offsets)
        foreign = np.flatnonzero(np.frombuffer(data, dtype=np.uint8) >= 0x80)
        others = distinct(np.searchsorted(offsets, foreign, side="right") - 1)
        found = others[self._matching(column.take(of_integers(others)))]
        return distinct(np.concatenate([found, self._holding(data, offsets)]))

    def _matching(self, column: pa.Array) -> Places:
        return np.flatnonzero(flags(pc.match_substring_regex(column, self._condition)))

    def _holding(self, data: bytes, offsets: Places) -> Places:
        """The texts that hold a substring, perhaps also some of more than ASCII, or with a part of one."""
        bare = data.translate(_LOWER, delete=_JOINERS)
        if len(bare) < len(data):
            joiners = np.flatnonzero(np.isin(np.frombuffer(data, dtype=np.uint8), list(_JOINERS)))
            offsets = offsets - np.searchsorted(joiners, offsets)
        places = [match.start() for start in self._plain or () for match in start.finditer(bare)]
        return distinct(np.searchsorted(offsets, places, side="right") - 1)


def _bytes_of(column: pa.Array) -> tuple[bytes, Places]:
    """All texts as one, and where each begins; the last offset is where all end."""
    _, offsets, data = column.buffers()
    within = np.frombuffer(offsets, dtype=np.int32)[column.offset : column.offset + len(column) + 1]
    if data is None or not len(within):
        return b"", np.zeros(len(column) + 1, dtype=np.int64)
    first, last = int(within[0]), int(within[-1])
    return data[first:last].to_pybytes(), within.astype(np.int64) - first
