"""Whether JSON lines are in order of time, found out without parsing them.

Then a replay can be searched while it is read, in the memory of one window;
otherwise all of it must be read, and sorted, before the first result.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import IO, Any

import numpy as np
import numpy.typing as npt

from skws.replay.files import opened
from skws.replay.splits import Split

BLOCK = 4 << 20
# An escaped quote inside a text does not match: the backslash stands between.
_TIME = re.compile(rb'"time"\s*:\s*("[^"\\]*"|-?[0-9.eE+-]+)')


def in_order(splits: Sequence[Split]) -> bool:
    """True if each line holds one time, and times do not decrease; False where that is not plain.

    Times are all numbers, or all texts of one form that sort as they pass.
    Splits are in order of arrival.
    """
    last: npt.NDArray[Any] | None = None
    for path in dict.fromkeys(split.path for split in splits):
        with opened(path) as file:
            for lines in _blocks(file):
                found = _TIME.findall(lines)
                if len(found) != lines.count(b"\n") + (not lines.endswith(b"\n")):
                    return False
                times = _sortable(found)
                if times is None or (last is not None and (last.dtype != times.dtype or last[0] > times[0])):
                    return False
                if (times[1:] < times[:-1]).any():
                    return False
                last = times[-1:]
    return True


def _blocks(file: IO[bytes]) -> Iterator[bytes]:
    """Blocks of whole lines."""
    rest = b""
    while read := file.read(BLOCK):
        block = rest + read
        end = block.rfind(b"\n") + 1
        rest = block[end:]
        if end:
            yield block[:end]
    if rest:
        yield rest


def _sortable(found: list[bytes]) -> npt.NDArray[Any] | None:
    """Times as an array whose order is that of time, or None."""
    texts = np.array(found)
    if not found[0].startswith(b'"'):
        try:
            return texts.astype(np.float64)
        except ValueError:
            return None
    lengths = np.char.str_len(texts)
    plain = bool((lengths == lengths[0]).all()) and all(text.endswith(b'Z"') for text in found)
    return texts if plain else None
