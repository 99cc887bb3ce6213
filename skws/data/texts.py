"""The texts of a column as one byte string, so that all of them are searched at once.

They are made from Python strings, or from Arrow arrays without copying each
text. This module does not import Arrow, which takes longer to load than the search of a small
replay takes.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from itertools import chain
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    import pyarrow as pa

Places: TypeAlias = npt.NDArray[np.int64]
Column: TypeAlias = "Texts | pa.Array | pa.ChunkedArray | Sequence[str | None]"
"""Texts in any form; other values of Arrow arrays are searched by their text."""

_OFFSETS = {"string": np.int32, "large_string": np.int64}
_MANY: Final = 512  # texts from which Arrow's ``take`` is faster
_LONE = "surrogatepass"  # Python strings may have lone surrogates


@dataclass(frozen=True, slots=True)
class Texts:
    """Texts in UTF-8; the text with number i is ``data[offsets[i]:offsets[i + 1]]``. NULL is the empty text.

    Both may be views of a file; offsets have 32 bits if these suffice.
    """

    data: bytes | memoryview
    offsets: Places

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @classmethod
    def of(cls, columns: Sequence[Column]) -> Texts:
        """The texts of several columns, one after the other; lists are joined first."""
        lists = [column for column in columns if isinstance(column, list | tuple)]
        if len(lists) == len(columns):
            return cls._of_list(list(chain.from_iterable(lists)))
        return cls.concat([part for column in columns for part in cls._parts(column)])

    @classmethod
    def of_strings(cls, texts: Sequence[object]) -> Texts | None:
        """The texts of strings; None if some values are NULL or not strings."""
        try:
            joined = "".join(texts)  # type: ignore[arg-type]  # the cheapest check of the types
        except TypeError:
            return None
        return cls._of_joined(joined, texts)  # type: ignore[arg-type]  # all are texts

    @classmethod
    def concat(cls, parts: Sequence[Texts]) -> Texts:
        """The texts of several objects, one after the other."""
        if len(parts) == 1:
            return parts[0]
        offsets = [np.zeros(1, dtype=np.int64)]
        size = 0
        data = []
        for part in parts:
            first, end = int(part.offsets[0]), int(part.offsets[-1])
            offsets.append(part.offsets[1:].astype(np.int64) + (size - first))
            data.append(part.data if end - first == len(part.data) else part.data[first:end])
            size += end - first
        return cls(b"".join(data), np.concatenate(offsets))

    def at(self, indices: Places) -> list[str]:
        data, begins, ends = self.data, self.offsets[indices].tolist(), self.offsets[1:][indices].tolist()
        try:
            return [str(data[first:end], "utf-8") for first, end in zip(begins, ends, strict=True)]
        except UnicodeDecodeError:  # rare, and a check beforehand would take twice as long
            return [str(data[first:end], "utf-8", _LONE) for first, end in zip(begins, ends, strict=True)]

    def __getitem__(self, rows: slice) -> Texts:
        """Consecutive texts, which share the memory; the slice has no step."""
        first, end, _ = rows.indices(len(self))
        return Texts(self.data, self.offsets[first : max(first, end) + 1])

    def take(self, indices: Places) -> Texts:
        """A copy of some of the texts."""
        if len(indices) >= _MANY and "pyarrow" in sys.modules:
            return self._take_with_arrow(indices)
        data, begins, ends = self.data, self.offsets[indices], self.offsets[1:][indices]
        offsets = np.zeros(len(indices) + 1, dtype=np.int64)
        np.cumsum(ends - begins, out=offsets[1:])
        parts = [data[first:end] for first, end in zip(begins.tolist(), ends.tolist(), strict=True)]
        return Texts(b"".join(parts), offsets)

    def _take_with_arrow(self, indices: Places) -> Texts:
        """As ``take``, several times as fast, if Arrow has already been loaded."""
        import pyarrow as pa  # noqa: PLC0415 - as above

        offsets = np.ascontiguousarray(self.offsets, dtype=np.int64)
        buffers = [None, pa.py_buffer(offsets), pa.py_buffer(self.data)]
        index_buffer = pa.py_buffer(np.ascontiguousarray(indices, dtype=np.int64))
        arrow_indices = pa.Array.from_buffers(pa.int64(), len(indices), [None, index_buffer])
        arrow_texts = pa.Array.from_buffers(pa.large_binary(), len(self), buffers).take(arrow_indices)
        _, ends, data = arrow_texts.buffers()
        # Copied, since Arrow's pool does not return its memory.
        ends = np.frombuffer(ends, dtype=np.int64, count=len(indices) + 1).copy()
        return Texts(b"" if data is None else data[: int(ends[-1])].to_pybytes(), ends)

    def some(self, indices: Places) -> Texts:
        """Some of the texts; consecutive ones share the memory."""
        if len(indices) and (np.diff(indices) == 1).all():
            return Texts(self.data, self.offsets[indices[0] : indices[-1] + 2])
        return self.take(indices)

    def lengths(self) -> Places:
        """The number of characters of each text."""
        begins, ends = self.offsets[:-1].astype(np.int64), self.offsets[1:].astype(np.int64)
        if not len(self):
            return ends
        data = self.data[begins[0] : ends[-1]]
        if bytes(data).isascii():
            return ends - begins
        characters = np.zeros(len(data) + 1, dtype=np.int64)
        np.cumsum(np.frombuffer(data, dtype=np.uint8) & 0xC0 != 0x80, out=characters[1:])
        character_counts: Places = characters.take(ends - begins[0]) - characters.take(begins - begins[0])
        return character_counts

    def tolist(self) -> list[str]:
        return self.at(np.arange(len(self)))

    @classmethod
    def _parts(cls, column: Column) -> list[Texts]:
        if isinstance(column, Texts):
            return [column]
        if isinstance(column, list | tuple):
            return [cls._of_list(column)]
        array: Any = column  # an array or a chunked one; Arrow has no type hints
        return [cls._of_array(chunk) for chunk in getattr(array, "chunks", [array])]

    @classmethod
    def _of_list(cls, texts: Sequence[str | None]) -> Texts:
        joined = cls.of_strings(texts)
        if joined is not None:
            return joined
        strings = ["" if text is None else str(text) for text in texts]
        return cls._of_joined("".join(strings), strings)

    @classmethod
    def _of_joined(cls, joined: str, texts: Sequence[str]) -> Texts:
        if joined.isascii():
            data, lengths = joined.encode(), map(len, texts)
        else:
            encoded = [text.encode("utf-8", _LONE) for text in texts]
            data, lengths = b"".join(encoded), map(len, encoded)
        offsets = np.zeros(len(texts) + 1, dtype=np.int64)
        np.cumsum(np.fromiter(lengths, dtype=np.int64, count=len(texts)), out=offsets[1:])
        return cls(data, offsets)

    @classmethod
    def _of_array(cls, array: pa.Array) -> Texts:
        kind = _OFFSETS.get(str(array.type))
        if kind is None:
            return cls._of_list(array.to_pylist())
        if array.null_count:  # their bytes may be anything
            array = array.fill_null(_empty_text(array.type))
        _, bounds, data = array.buffers()
        if data is None or not len(array):
            return cls(b"", np.zeros(len(array) + 1, dtype=np.int64))
        offsets = np.frombuffer(bounds, dtype=kind)[array.offset : array.offset + len(array) + 1]
        first, last = int(offsets[0]), int(offsets[-1])
        return cls(data[first:last].to_pybytes(), offsets.astype(np.int64) - first)


@cache
def _empty_text(kind: pa.DataType) -> pa.Scalar:
    """An empty text of a type, made of buffers: Arrow loads pandas to make one of a Python text."""
    import pyarrow as pa  # noqa: PLC0415 - there is an array of Arrow

    return pa.Array.from_buffers(kind, 1, [None, pa.py_buffer(bytes(16)), pa.py_buffer(b"")])[0]
