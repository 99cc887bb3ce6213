"""The file of an index: named arrays and Arrow tables in one file, memory-mapped when read.

An index is built in a folder, a file for each part, and then packed into one
file, whose end lists the parts.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from mmap import ACCESS_READ, mmap
from pathlib import Path
from typing import Any, BinaryIO, Final

import numpy as np
import numpy.typing as npt
import orjson
import pyarrow as pa

_MAGIC: Final = b"skws index 1\n"
_ALIGNED: Final = 64  # bytes, as Arrow has it
_NUMBER: Final = 8  # bytes


def save(folder: Path, name: str, values: npt.NDArray[Any]) -> None:
    """Write an array whole."""
    np.save(folder / f"{name}.npy", values)


def written(folder: Path, name: str, size: int, kind: type[np.generic]) -> npt.NDArray[Any]:
    """A new array of zeros on disk, to be filled in any order."""
    if not size:  # nothing can be mapped
        save(folder, name, np.empty(0, dtype=kind))
        return np.empty(0, dtype=kind)
    return np.lib.format.open_memmap(folder / f"{name}.npy", mode="w+", dtype=kind, shape=(size,))


@contextmanager
def packed(path: Path, mark: str = "") -> Iterator[Path]:
    """A folder for the parts of an index; the file appears, whole, when the ``with`` ends well.

    ``mark``: the state of the data that it is made from. Raises OSError.
    """
    folder = path.with_name(f".{path.name}.new")
    shutil.rmtree(folder, ignore_errors=True)  # of a process that was killed
    folder.mkdir()
    try:
        yield folder
        whole = folder / "whole"
        _pack(folder, whole, mark)
        whole.replace(path)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _pack(folder: Path, path: Path, mark: str) -> None:
    parts: dict[str, tuple[int, int, str, list[int]]] = {}
    with path.open("wb") as whole:
        whole.write(_MAGIC)
        for file in sorted(each for each in folder.rglob("*") if each.is_file() and each != path):
            whole.write(bytes(-whole.tell() % _ALIGNED))
            begin = whole.tell()
            with file.open("rb") as part:
                kind, shape = _array(part) if file.suffix == ".npy" else ("", [])
                shutil.copyfileobj(part, whole, 1 << 20)
            name = str(file.relative_to(folder).with_suffix(""))
            parts[name] = begin, whole.tell() - begin, kind, shape
            file.unlink()  # so that little is on disk twice
        listed = orjson.dumps({"mark": mark, "parts": parts})
        whole.write(listed + len(listed).to_bytes(_NUMBER, "little"))


def _array(part: BinaryIO) -> tuple[str, list[int]]:
    """The type and shape of an array; its data comes next."""
    assert np.lib.format.read_magic(part) == (1, 0)  # noqa: S101 - numpy's for plain types
    shape, _, kind = np.lib.format.read_array_header_1_0(part)
    return kind.str, list(shape)


def mark_of(path: Path) -> str | None:
    """The state of the data that an index was made from; None for other files. Raises OSError."""
    with path.open("rb") as whole:
        if whole.read(len(_MAGIC)) != _MAGIC:
            return None
    with suppress(ValueError):  # it is damaged
        return IndexFile(path).mark
    return None


class IndexFile:
    """The parts of an index by name."""

    def __init__(self, path: Path) -> None:
        self.path = path
        with path.open("rb") as whole:
            self._bytes = mmap(whole.fileno(), 0, access=ACCESS_READ)
        end = len(self._bytes) - _NUMBER
        begin = end - int.from_bytes(self._bytes[end:], "little")
        listed = orjson.loads(self._bytes[begin:end])
        self.mark: str = listed["mark"]
        self._parts: dict[str, tuple[int, int, str, list[int]]] = listed["parts"]

    def array(self, name: str) -> npt.NDArray[Any]:
        begin, _, kind, shape = self._parts[name]
        size = int(np.prod(shape))
        return np.frombuffer(self._bytes, np.dtype(kind), size, begin if size else 0).reshape(shape)

    def data(self, name: str) -> pa.Buffer:
        """The bytes of a part that is no array."""
        begin, length, *_ = self._parts[name]
        return pa.py_buffer(self._bytes).slice(begin, length)
