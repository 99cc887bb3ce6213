r"""Rows of PostgreSQL's COPY in text format: values divided by tabs, ``\N`` for NULL, backslash escapes.

The texts of values are those of the types' output functions, the same that
logical replication sends; a cast to text gives others (``true`` for ``t``).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

_ESCAPE: Final = re.compile(rb"\\([0-7]{1,3}|x[0-9A-Fa-f]{1,2}|.)", re.S)
_LETTERS: Final = {b"b": b"\b", b"f": b"\f", b"n": b"\n", b"r": b"\r", b"t": b"\t", b"v": b"\v"}


class CopiedRows:
    """Takes what COPY writes, in pieces of any size; gives whole rows."""

    def __init__(self) -> None:
        self._rest = b""

    def rows(self, piece: bytes) -> Iterator[bytes]:
        lines = (self._rest + piece).split(b"\n")
        self._rest = lines.pop()
        return iter(lines)


def values(row: bytes) -> list[bytes | None]:
    """The values of a row without its line end; None for NULL."""
    return [None if text == rb"\N" else _plain(text) for text in row.split(b"\t")]


def _plain(text: bytes) -> bytes:
    return _ESCAPE.sub(_unescaped, text) if b"\\" in text else text


def _unescaped(found: re.Match[bytes]) -> bytes:
    code = found[1]
    if code in _LETTERS:
        return _LETTERS[code]
    if code[:1] == b"x" and len(code) > 1:
        return bytes([int(code[1:], 16)])
    return bytes([int(code, 8) & 255]) if code.isdigit() else code
