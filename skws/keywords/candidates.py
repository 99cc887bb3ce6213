"""Which texts of a column can match at all: those to be analysed.

Where a text of ASCII holds a substring that some keyword begins with, it is a
candidate; all texts are searched at once, at the speed of memory. Other texts
are left to a regular expression, Python's or, where there are many, Arrow's.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

import numpy as np

from mesh.columnar.columns import distinct
from skws.keywords.prefilter import ASCII_JOINERS, condition, substrings
from skws.keywords.query import Alternative
from skws.texts import Places, Texts

_ARROW_PAYS: Final = 5_000  # texts in all
_MOST: Final = 32  # substrings, each of which is looked for in all bytes
_LOWER: Final = bytes(range(256)).lower()
_JOINERS: Final = "".join(ASCII_JOINERS).encode()


class Candidates:
    """The texts that may satisfy any of some alternatives."""

    def __init__(self, alternatives: Sequence[Alternative]) -> None:
        self._condition = condition(alternatives)
        self._matched = 0  # by the regular expression, so far
        plain = substrings(alternatives)
        few = plain is not None and len(plain) <= _MOST
        self._plain = [re.compile(re.escape(start.encode())) for start in plain or ()] if few else None

    def of(self, texts: Texts) -> Places | None:
        """The places of the candidates in order; None if the alternatives tell nothing beforehand."""
        if self._condition is None:
            return None
        if self._plain is None:
            return self._matching(texts, np.arange(len(texts)))
        if texts.data.isascii():
            return self._holding(texts.data, texts.offsets)
        foreign = np.flatnonzero(np.frombuffer(texts.data, dtype=np.uint8) >= 0x80)
        others = distinct(np.searchsorted(texts.offsets, foreign, side="right") - 1)
        found = self._matching(texts, others)
        return distinct(np.concatenate([found, self._holding(texts.data, texts.offsets)]))

    def _matching(self, texts: Texts, places: Places) -> Places:
        """Of the texts at some places those that meet the condition."""
        self._matched += len(places)
        chosen = texts.at(places)
        if self._matched < _ARROW_PAYS:
            search = re.compile(self._condition or "").search
            return places[[place for place, text in enumerate(chosen) if search(text)]]
        import pyarrow as pa  # noqa: PLC0415 - it takes long to load
        import pyarrow.compute as pc  # noqa: PLC0415 - as above

        from skws.arrow_arrays import flags  # noqa: PLC0415 - as above

        return places[flags(pc.match_substring_regex(pa.array(chosen, pa.large_string()), self._condition))]

    def _holding(self, data: bytes, offsets: Places) -> Places:
        """The texts that hold a substring, perhaps also some of more than ASCII, or with a part of one."""
        bare = data.translate(_LOWER, delete=_JOINERS)
        if len(bare) < len(data):
            joiners = np.flatnonzero(np.isin(np.frombuffer(data, dtype=np.uint8), list(_JOINERS)))
            offsets = offsets - np.searchsorted(joiners, offsets)
        places = [match.start() for start in self._plain or () for match in start.finditer(bare)]
        return distinct(np.searchsorted(offsets, places, side="right") - 1)
