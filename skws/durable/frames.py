"""What is kept, with its length and a checksum: the format of all files of a checkpoint.

A frame is a line, ``CHECKSUM LENGTH TEXT``. Its checksum is also over what the
text belongs to (a run and a file), so that a frame from elsewhere is damage, too.
"""

from __future__ import annotations

from collections.abc import Iterator
from zlib import crc32

_CODE = 8  # hexadecimal digits of a checksum


def checked(text: bytes, of: str = "") -> bytes:
    """The frame of a text, which belongs to ``of``."""
    return b"%08x %d %b\n" % (_checksum(text, of), len(text), text)


def unchecked(frame: bytes, of: str = "") -> bytes | None:
    """The text of a frame that ``checked`` made; None if it is damaged, or more than one."""
    found = _first(frame, 0, of)
    return found[0] if found is not None and found[1] == len(frame) else None


def frames(data: bytes, of: str = "") -> Iterator[tuple[bytes, int]]:
    """The texts of all whole frames up to the first that is damaged, and where each frame ends."""
    at = 0
    while (found := _first(data, at, of)) is not None:
        yield found
        at = found[1]


def all_frames(data: bytes, of: str = "") -> tuple[list[bytes], int]:
    """The texts of ``frames``, and where the last one ends."""
    found = list(frames(data, of))
    return [text for text, _ in found], found[-1][1] if found else 0


def _first(data: bytes, at: int, of: str) -> tuple[bytes, int] | None:
    """The text of the frame at a place, and its end."""
    length_at = at + _CODE + 1
    text_at = data.find(b" ", length_at, length_at + 20) + 1
    length = data[length_at : text_at - 1]
    if not text_at or not length.isdigit():
        return None
    end = text_at + int(length)
    text = data[text_at:end]
    whole = data[end : end + 1] == b"\n" and data[at:length_at] == b"%08x " % _checksum(text, of)
    return (text, end + 1) if whole else None


def _checksum(text: bytes, of: str) -> int:
    return crc32(text, crc32(of.encode()))
