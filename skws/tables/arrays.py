"""Arrays of an index: a file each, memory-mapped when read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt


def save(folder: Path, name: str, values: npt.NDArray[Any]) -> None:
    """Write an array whole."""
    np.save(_file(folder, name), values)


def written(folder: Path, name: str, size: int, kind: type[np.generic]) -> npt.NDArray[Any]:
    """A new array of zeros on disk, to be filled in any order."""
    if not size:  # nothing can be mapped
        save(folder, name, np.empty(0, dtype=kind))
        return np.empty(0, dtype=kind)
    return np.lib.format.open_memmap(_file(folder, name), mode="w+", dtype=kind, shape=(size,))


def load(folder: Path, name: str) -> npt.NDArray[Any]:
    found: npt.NDArray[Any] = np.load(_file(folder, name), mmap_mode="r")
    return found


def _file(folder: Path, name: str) -> Path:
    return folder / f"{name}.npy"
