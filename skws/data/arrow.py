"""Conversions between Arrow and NumPy that share buffers.

Arrow's own conversions load pandas when first called, which takes longer than
reading a hundred thousand rows.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from skws.data.texts import Texts
from skws_schema.model import AttributeType

Ints = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]

STORED: Final = {
    AttributeType.TEXT: pa.string(),
    AttributeType.STRING: pa.string(),
    AttributeType.INTEGER: pa.int64(),
    AttributeType.NUMBER: pa.float64(),
    AttributeType.BOOLEAN: pa.bool_(),
    AttributeType.TIMESTAMP: pa.int64(),
}
"""The Arrow types of stored attributes; time stamps are in microseconds."""


def integers(array: pa.Array) -> Ints:
    """An int64 array without NULLs, as a NumPy array that shares its memory."""
    return _share_memory(array, np.int64)


def numbers(array: pa.Array) -> npt.NDArray[Any]:
    """An array of numbers, as a NumPy array that shares its memory; undefined in place of NULLs."""
    return _share_memory(array, array.type.to_pandas_dtype())  # a NumPy type


def _share_memory(array: pa.Array, kind: npt.DTypeLike) -> npt.NDArray[Any]:
    _, values = array.buffers()
    if values is None:
        return np.zeros(0, dtype=kind)
    return np.frombuffer(values, dtype=kind)[array.offset : array.offset + len(array)]


def flags(array: pa.Array) -> Flags:
    """A boolean array; NULL is False."""
    valid, values = array.buffers()
    if values is None:
        return np.zeros(len(array), dtype=bool)
    return _bits(values, array) if valid is None else _bits(values, array) & _bits(valid, array)


def filled(array: pa.Array) -> npt.NDArray[Any]:
    """An array of numbers or booleans, with 0 or False for NULL."""
    if pa.types.is_boolean(array.type):
        return flags(array)
    return np.where(flags(array.is_valid()), numbers(array), 0) if array.null_count else numbers(array)


def texts_at(array: pa.Array | pa.ChunkedArray, indices: Ints) -> list[str | None]:
    """Some values of a string array, without the Arrow array that ``take`` would create."""
    if array.null_count or isinstance(array, pa.ChunkedArray):
        return array.take(of_integers(indices)).to_pylist()  # type: ignore[no-any-return]
    _, offsets, data = array.buffers()
    if data is None or not len(indices):
        return [""] * len(indices)
    value_offsets = np.frombuffer(offsets, dtype=np.int32)[array.offset :]
    bounds = zip(value_offsets[indices].tolist(), value_offsets[indices + 1].tolist(), strict=True)
    texts = memoryview(data)
    return [str(texts[first:end], "utf-8") for first, end in bounds]


def reader_of(data: bytes) -> pa.BufferReader:
    """A reader of ``data``, which is copied into Arrow's own memory.

    A thread of Arrow may release the data last, while Python is already exiting. If the data belonged to
    Python, the thread would wait for Python's lock, be ended there, and so abort the process.
    """
    memory = pa.allocate_buffer(len(data), memory_pool=pa.system_memory_pool())
    memoryview(memory).cast("B")[:] = data
    return pa.BufferReader(memory)


def of_integers(values: Ints, valid: Flags | None = None) -> pa.Array:
    """An int64 array; it shares the memory of 64-bit integers. ``valid``: False for NULL."""
    bits = None if valid is None else pa.py_buffer(np.packbits(valid, bitorder="little"))
    memory = pa.py_buffer(np.ascontiguousarray(values, dtype=np.int64))
    return pa.Array.from_buffers(pa.int64(), len(values), [bits, memory])


def of_texts(texts: Texts) -> pa.Array:
    """An array of strings, which shares the memory of ``texts``."""
    kind = pa.string() if texts.offsets.itemsize == 4 else pa.large_string()
    memory = [pa.py_buffer(np.ascontiguousarray(texts.offsets)), pa.py_buffer(texts.data)]
    return pa.Array.from_buffers(kind, len(texts), [None, *memory])


def _bits(buffer: pa.Buffer, array: pa.Array) -> Flags:
    unpacked = np.unpackbits(np.frombuffer(buffer, dtype=np.uint8), bitorder="little")
    return unpacked[array.offset : array.offset + len(array)].astype(bool)
