"""Frames with a length and a checksum: the format of all files of a checkpoint.

A frame is a line, ``CHECKSUM LENGTH TEXT``. The checksum includes the owner of the
text (a run and a file) and its offset in the file, so that a frame from another
file, or one that has moved, counts as damaged.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final
from zlib import crc32

_CODE: Final = 8  # hexadecimal digits of a checksum
_LENGTH: Final = 20  # digits at most


def checked(text: bytes, of: str = "", at: int = 0) -> bytes:
    """The frame of a text of the owner ``of``, at offset ``at`` of its file."""
    return b"%08x %d %b\n" % (_checksum(text, of, at), len(text), text)


def unchecked(frame: bytes, of: str = "") -> bytes | None:
    """The text of a frame made by ``checked``; None if it is damaged, or not a single frame."""
    found = _first(frame, 0, of, 0)
    return found[0] if found is not None and found[1] == len(frame) else None


def frames(data: bytes, of: str = "", at: int = 0) -> Iterator[tuple[bytes, int]]:
    """The texts of all frames up to the first damaged one, each with the offset of its end in ``data``.

    ``at``: the offset of ``data`` in the file.
    """
    place = 0
    while (found := _first(data, place, of, at + place)) is not None:
        yield found
        place = found[1]


def all_frames(data: bytes, of: str = "", at: int = 0) -> tuple[list[bytes], int]:
    """The texts of ``frames``, and the end of the last one."""
    found = list(frames(data, of, at))
    return [text for text, _ in found], found[-1][1] if found else 0


def _first(data: bytes, place: int, of: str, at: int) -> tuple[bytes, int] | None:
    """The text of the frame at a place of ``data``, which is offset ``at`` of the file; and its end."""
    length_at = place + _CODE + 1
    text_at = data.find(b" ", length_at, length_at + _LENGTH) + 1
    length = data[length_at : text_at - 1]
    if not text_at or not length.isdigit():
        return None
    end = text_at + int(length)
    text = data[text_at:end]
    whole = data[end : end + 1] == b"\n" and data[place:length_at] == b"%08x " % _checksum(text, of, at)
    return (text, end + 1) if whole else None


def _checksum(text: bytes, of: str, at: int) -> int:
    return crc32(text, crc32(b"%b %d" % (of.encode(), at)))
