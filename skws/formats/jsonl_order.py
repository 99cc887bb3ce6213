"""The check that JSON lines are in order of time.

A replay that is in order of time is searched while it is read, in the memory
of one window; any other is read whole, and sorted, before the first result. So
the file is read twice: a result cannot be taken back when the last line turns
out to be the earliest. The check takes a tenth of the time of a search.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import IO, Any, Final, Literal, TypeAlias

import msgspec
import numpy as np
import numpy.typing as npt
import orjson

from skws.data.values import EXACT, MalformedError, timestamp
from skws.formats import jsonl
from skws.formats.debezium import is_change
from skws.formats.files import BOM, Split, opened
from skws.formats.jsonl_columns import TIME, UNDECODABLE, one_a_line

ORDER_BLOCK = 1 << 18
# A quoted `time` inside a text does not match: its quote is escaped by a backslash.
_TIME_FIELD = re.compile(rb'"time"\s*:\s*("[^"\\]*"|-?[0-9.eE+-]+)')


_Decoders: TypeAlias = tuple[tuple[Any, Any], ...]


def _decoders(*others: tuple[str, Any, Any]) -> _Decoders:
    """Decoders of lines with a time as a number of seconds, or as a text; each with the type of an array."""
    kinds = ((float, np.float64), (str, np.str_))
    structs = (msgspec.defstruct("Line", [("time", kind), *others], gc=False) for kind, _ in kinds)
    return tuple((msgspec.json.Decoder(line), array) for line, (_, array) in zip(structs, kinds, strict=True))


_ANY: Final = _decoders()
# Lines without the fields of deletions and of change events.
_INSERTIONS: Final = _decoders(
    ("op", Literal["+"], "+"),
    *((name, None, None) for name in ("payload", "key", "value", "before", "after")),
)

_OTHERS: Final = (b"\\", b'"op"', b'"payload"', b'"key"')
"""Without these bytes lines are no deletions and no change events, and there is less to decode."""


def in_order(splits: Sequence[Split]) -> bool:
    """True if each line holds one time, and times do not decrease; False if that is not certain.

    Times are all numbers, or all texts of one form whose order is that of time.
    Splits are in order of arrival.
    """
    last: npt.NDArray[Any] | None = None
    for path in dict.fromkeys(split.path for split in splits):
        with opened(path) as file:
            while lines := _whole_lines(file, ORDER_BLOCK):
                times = _times(lines)
                if times is None or (last is not None and (last.dtype != times.dtype or last[0] > times[0])):
                    return False
                if (times[1:] < times[:-1]).any():
                    return False
                last = times[-1:]
    return True


def _whole_lines(file: IO[bytes], size: int) -> bytes:
    """The lines that begin within the next ``size`` bytes; empty at the end."""
    block = file.read(size)
    return block if block.endswith(b"\n") else block + file.readline()


def _times(lines: bytes) -> npt.NDArray[Any] | None:
    """Times as an array whose order is that of time, or None."""
    times = _decoded(lines, _ANY)
    if times is not None:
        return times if times.dtype == np.float64 or _sortable(times) else None
    count = lines.count(b"\n") + (not lines.endswith(b"\n"))
    # Lines that are not valid records can be in order of time, too.
    texts = [text.decode("ascii", "replace") for text in _TIME_FIELD.findall(lines)]
    if len(texts) != count:
        return None
    if not texts[0].startswith('"'):
        try:
            return np.array(texts).astype(np.float64)
        except ValueError:
            return None
    times = np.array([text.strip('"') for text in texts])
    return times if _sortable(times) else None


def _decoded(lines: bytes, decoders: _Decoders) -> npt.NDArray[Any] | None:
    """The times as they are written; None if lines are not one object each, or times not of one kind."""
    count = one_a_line(lines)
    for decoder, kind in decoders if count else ():
        try:
            found = list(map(TIME, decoder.decode_lines(lines)))
        except UNDECODABLE:
            continue
        if len(found) == count:
            return np.array(found, dtype=kind)
    return None


def _sortable(texts: npt.NDArray[np.str_]) -> bool:
    """Whether the order of the texts is that of their times."""
    lengths = np.char.str_len(texts)
    return bool((lengths == lengths[0]).all()) and bool(np.char.endswith(texts, "Z").all())


@dataclass(frozen=True, slots=True)
class TimedBlock:
    """Whole lines, from byte ``start`` to before ``end``: insertions in order of time, and bad lines.

    ``first`` and ``last``: times in microseconds, None if no line is a record. ``size``: how many records
    there are at most.
    """

    start: int
    end: int
    first: int | None
    last: int | None
    size: int


class _UnsureError(Exception):
    """A line may be a deletion or a change event, or times are out of order."""


def timed_blocks(split: Split) -> list[TimedBlock] | None:
    """The lines that begin in a split; None unless they certainly hold insertions in order of time.

    Lines that are no records are passed over. Raises SourceError.
    """
    found: list[TimedBlock] = []
    with opened(split.path) as file:
        offset = jsonl.skip_to(file, split.start)
        while offset < split.end and (lines := _whole_lines(file, min(ORDER_BLOCK, split.end - offset))):
            end = offset + len(lines)
            try:
                first, last, size = _insertion_times(lines.removeprefix(BOM) if offset == 0 else lines)
            except _UnsureError:
                return None
            found.append(TimedBlock(offset, end, first, last, size))
            offset = end
    return found if _follow(found) else None


def _follow(blocks: Sequence[TimedBlock]) -> bool:
    timed = [block for block in blocks if block.first is not None]
    return all(a.last <= b.first for a, b in pairwise(timed))  # type: ignore[operator]  # both are known


def _insertion_times(lines: bytes) -> tuple[int | None, int | None, int]:
    """The first and the last time in microseconds, and the number of times. Raises _UnsureError."""
    times = _decoded(lines, _INSERTIONS if any(mark in lines for mark in _OTHERS) else _ANY)
    if times is None or not (times.dtype == np.float64 or _sortable(times)):
        known = [time for line in lines.split(b"\n") if (time := _insertion_time(line)) is not None]
        times = np.array(known, dtype=np.int64)
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


def _insertion_time(line: bytes) -> int | None:
    """The time of a line in microseconds; None if the line is certainly no record. Raises _UnsureError."""
    try:
        item = orjson.loads(line)
    except ValueError:
        return None
    if type(item) is not dict:
        return None
    if is_change(item) or item.get("op") not in (None, "+"):
        raise _UnsureError
    try:
        return timestamp(item.get("time"))
    except MalformedError:
        return None
