"""Which chunks stand in which texts: all texts are cut at once.

A chunk is a part of a text that is analysed by itself (``skws.keywords.analysis.chunks``).
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from skws.data.texts import Texts
from skws.keywords.analysis import chunks
from skws_mesh.columnar.columns import Ints
from skws_schema.model import Analyzer

if TYPE_CHECKING:
    import pyarrow as pa

_FEW: Final = 2_000
"""Texts that are cut by Python: Arrow takes longer to load."""


class Occurrences(NamedTuple):
    """``chunks``: different ones. ``which`` of them stand in a ``text``, a number for each time."""

    chunks: list[str]
    which: Ints
    text: Ints


def occurrences(texts: Texts, analyzer: Analyzer = Analyzer.ENGLISH) -> Occurrences:
    """The chunks of some texts."""
    if len(texts) >= _FEW:
        from skws.data.arrow import of_texts  # noqa: PLC0415 - as above

        with suppress(UnicodeDecodeError):  # by a lone surrogate
            return occurrences_in(of_texts(texts), analyzer)
    numbers: dict[str, int] = {}
    cut = [chunks(text, analyzer) for text in texts.tolist()]
    which = [numbers.setdefault(chunk, len(numbers)) for some in cut for chunk in some]
    counts = np.fromiter(map(len, cut), dtype=np.int64, count=len(cut))
    return Occurrences(list(numbers), np.array(which, dtype=np.int64), np.repeat(np.arange(len(cut)), counts))


def occurrences_in(texts: pa.Array, analyzer: Analyzer = Analyzer.ENGLISH) -> Occurrences:
    """The chunks of an array of strings; NULLs have none."""
    import pyarrow as pa  # noqa: PLC0415 - as above
    import pyarrow.compute as pc  # noqa: PLC0415 - as above

    from skws.data.arrow import flags, integers  # noqa: PLC0415 - as above

    if analyzer is Analyzer.NONE:  # a text is one chunk
        found = texts.drop_null().dictionary_encode()
        text = np.flatnonzero(flags(texts.is_valid()))
    else:
        split = pc.utf8_split_whitespace(texts)
        found = split.flatten().dictionary_encode()
        text = integers(pc.list_parent_indices(split).cast(pa.int64()))
    return Occurrences(found.dictionary.to_pylist(), integers(found.indices.cast(pa.int64())), text)
