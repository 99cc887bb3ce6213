"""Splits texts into chunks, all at once.

A chunk is a part of a text that is analysed separately (``skws.keywords.analysis.chunks``).
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

FEW_TEXTS: Final = 2_000
"""The number of texts from which Arrow splits them; for fewer, loading it takes longer."""


class Occurrences(NamedTuple):
    """The chunks of some texts. ``chunks``: the distinct chunks; one may be empty, and then has no tokens.

    For each occurrence, ``which`` is the index of its chunk, and ``text`` the index of its text.
    """

    chunks: list[str]
    which: Ints
    text: Ints


def occurrences(
    texts: Texts, analyzer: Analyzer = Analyzer.ENGLISH, few_texts: int = FEW_TEXTS
) -> Occurrences:
    """The chunks of some texts. Python splits fewer than ``few_texts``, and Arrow others."""
    if len(texts) >= few_texts:
        from skws.data.arrow import of_texts  # noqa: PLC0415 - as above

        with suppress(UnicodeDecodeError):  # a lone surrogate
            return occurrences_in(of_texts(texts), analyzer)
    numbers: dict[str, int] = {}
    chunks_of_texts = [chunks(text, analyzer) for text in texts.tolist()]
    chunk_numbers = [
        numbers.setdefault(chunk, len(numbers)) for text_chunks in chunks_of_texts for chunk in text_chunks
    ]
    counts = np.fromiter(map(len, chunks_of_texts), dtype=np.int64, count=len(chunks_of_texts))
    return Occurrences(
        list(numbers),
        np.array(chunk_numbers, dtype=np.int64),
        np.repeat(np.arange(len(chunks_of_texts)), counts),
    )


def occurrences_in(texts: pa.Array, analyzer: Analyzer = Analyzer.ENGLISH) -> Occurrences:
    """The chunks of an array of strings; NULLs have none."""
    import pyarrow as pa  # noqa: PLC0415 - as above
    import pyarrow.compute as pc  # noqa: PLC0415 - as above

    from skws.data.arrow import flags, integers  # noqa: PLC0415 - as above

    if analyzer is Analyzer.NONE:  # a text is one chunk
        encoded = texts.drop_null().dictionary_encode()
        text = np.flatnonzero(flags(texts.is_valid()))
    else:
        words = pc.utf8_split_whitespace(texts)
        encoded = words.flatten().dictionary_encode()
        text = integers(pc.list_parent_indices(words).cast(pa.int64()))
    return Occurrences(encoded.dictionary.to_pylist(), integers(encoded.indices.cast(pa.int64())), text)
