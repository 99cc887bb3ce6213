"""Checks whether JSON lines are in order of time.

A replay in order of time is searched while it is read, with one window in memory.
Any other replay is read as a whole, and sorted, before the first result. Results
cannot be taken back if the last line turns out to be the earliest, so the check
reads the whole file beforehand. It takes a tenth of the time of a search.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import IO, Any, Final, Literal, TypeAlias

import msgspec
import numpy as np
import numpy.typing as npt
import orjson

from skws.data.value_conversion import EARLIEST, EXACT, MalformedError, timestamp
from skws.formats import jsonl
from skws.formats.debezium import is_change
from skws.formats.files import BOM, Split, opened
from skws.formats.jsonl import TIME, UNDECODABLE, one_a_line

ORDER_BLOCK = 1 << 18


_Decoders: TypeAlias = tuple[tuple[Any, Any], ...]


def _decoders(*fields: tuple[str, Any, Any]) -> _Decoders:
    """Decoders of lines with a time as a number of seconds, or as a text; each with the type of its array."""
    kinds = ((float, np.float64), (str, np.str_))
    structs = (msgspec.defstruct("Line", [("time", kind), *fields], gc=False) for kind, _ in kinds)
    return tuple((msgspec.json.Decoder(line), array) for line, (_, array) in zip(structs, kinds, strict=True))


_ANY: Final = _decoders()
# Lines without the fields of deletions and of change events.
_INSERTIONS: Final = _decoders(
    ("op", Literal["+"], "+"),
    *((name, None, None) for name in ("payload", "key", "value", "before", "after")),
)

_CHANGE_MARKS: Final = (b"\\", b'"op"', b'"payload"', b'"key"')
"""Lines without these bytes are neither deletions nor change events, and need less decoding."""


def in_order(splits: Sequence[Split], block: int = ORDER_BLOCK) -> bool:
    """True if the times of records do not decrease; False if that is uncertain. Raises SourceError.

    Splits are in order of arrival, and are read in blocks of whole lines of about ``block`` bytes.
    """
    latest = EARLIEST
    for path in dict.fromkeys(split.path for split in splits):
        with opened(path) as file:
            lines = _whole_lines(file, block).removeprefix(BOM)
            while lines:
                try:
                    first, last, _ = _times(lines, insertions=False)
                except _UnsureError:
                    return False
                if first is not None and last is not None:
                    if first < latest:
                        return False
                    latest = last
                lines = _whole_lines(file, block)
    return True


def _whole_lines(file: IO[bytes], size: int) -> bytes:
    """The lines that begin within the next ``size`` bytes; empty at the end."""
    block = file.read(size)
    return block if block.endswith(b"\n") else block + file.readline()


def _decode_times(lines: bytes, decoders: _Decoders) -> npt.NDArray[Any] | None:
    """The times as written; None if some line is not one object, or the times are of several types."""
    count = one_a_line(lines)
    for decoder, array_type in decoders if count else ():
        try:
            times = list(map(TIME, decoder.decode_lines(lines)))
        except UNDECODABLE:
            continue
        if len(times) == count:
            return np.array(times, dtype=array_type)
    return None


def _sortable(texts: npt.NDArray[np.str_]) -> bool:
    """True if the texts have the order of their times: they end in Z, and differ only in their digits."""
    characters = texts.view(np.uint32).reshape(len(texts), -1)
    same = (characters == characters[0]).all(axis=0)
    digits = ((characters >= ord("0")) & (characters <= ord("9"))).all(axis=0)
    return bool((same | digits).all()) and bool(texts[0].endswith("Z"))


@dataclass(frozen=True, slots=True)
class TimedBlock:
    """Whole lines, from byte ``start`` to before ``end``: insertions in order of time, and bad lines.

    ``first`` and ``last``: times in microseconds, None if no line is a record. ``size``: an upper bound of
    the number of records.
    """

    start: int
    end: int
    first: int | None
    last: int | None
    size: int


class _UnsureError(Exception):
    """A line may be a deletion or a change event, or times are out of order."""


def timed_blocks(split: Split) -> list[TimedBlock] | None:
    """The lines that begin in a split; None unless they are certainly insertions in order of time.

    Lines that are not records are skipped. Raises SourceError.
    """
    blocks: list[TimedBlock] = []
    with opened(split.path) as file:
        offset = jsonl.skip_to(file, split.start)
        while offset < split.end and (lines := _whole_lines(file, min(ORDER_BLOCK, split.end - offset))):
            end = offset + len(lines)
            try:
                text = lines.removeprefix(BOM) if offset == 0 else lines
                first, last, size = _times(text, insertions=True)
            except _UnsureError:
                return None
            blocks.append(TimedBlock(offset, end, first, last, size))
            offset = end
    return blocks if _are_in_order(blocks) else None


def _are_in_order(blocks: Sequence[TimedBlock]) -> bool:
    nonempty = [block for block in blocks if block.first is not None]
    return all(a.last <= b.first for a, b in pairwise(nonempty))  # type: ignore[operator]  # both are known


def _times(lines: bytes, *, insertions: bool) -> tuple[int | None, int | None, int]:
    """The first and the last time in microseconds, and the number of times. Raises _UnsureError.

    ``insertions``: deletions raise it as well.
    """
    check_fields = insertions and any(mark in lines for mark in _CHANGE_MARKS)
    times = _decode_times(lines, _INSERTIONS if check_fields else _ANY)
    if times is None or not (times.dtype == np.float64 or _sortable(times)):
        line_times = (_time(line, insertions) for line in lines.split(b"\n"))
        times = np.array([time for time in line_times if time is not None], dtype=np.int64)
    if (times[1:] < times[:-1]).any():
        raise _UnsureError
    if not len(times):
        return None, None, 0
    try:
        first, last = (int(t) if times.dtype == np.int64 else timestamp(t.item()) for t in times[[0, -1]])
    except MalformedError:
        raise _UnsureError from None
    if not -EXACT < first <= last < EXACT:  # beyond, a number of seconds as a double is not exact
        raise _UnsureError
    return first, last, len(times)


def _time(line: bytes, insertion: bool) -> int | None:
    """The time of a line in microseconds; None if it is certainly not a record. Raises _UnsureError."""
    try:
        item = orjson.loads(line)
    except ValueError:
        return None
    if type(item) is not dict:
        return None
    if is_change(item) or (insertion and item.get("op") not in (None, "+")):
        raise _UnsureError
    try:
        return timestamp(item.get("time"))
    except MalformedError:
        return None
