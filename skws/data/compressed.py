"""Long blobs compressed, records and results: Spark copies them some ten times, and writes what is left.

By Arrow's zstd, which takes less time than what is saved in any two of the
copies. A short one stays as it is, so that who only has such, in a stream at
some hundred records a second, never waits until Arrow is loaded.
"""

from __future__ import annotations

from functools import cache
from struct import Struct
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import pyarrow as pa

_LONG: Final = 64 << 10  # bytes
_MARK: Final = b"\0"  # nothing that is compressed begins with it
_LENGTH: Final = Struct("<Q")
_LEVEL: Final = 1  # on rows of words: a third of the bytes; the next ones take longer for a tenth less


def compressed(text: bytes) -> bytes:
    """What does not begin with 0."""
    if len(text) < _LONG:
        return text
    return b"".join((_MARK, _LENGTH.pack(len(text)), _codec().compress(text, asbytes=True)))


def expanded(blob: bytes) -> bytes:
    """Inverse of ``compressed``."""
    if not blob.startswith(_MARK):
        return blob
    (length,) = _LENGTH.unpack_from(blob, len(_MARK))
    text: bytes = _codec().decompress(memoryview(blob)[len(_MARK) + _LENGTH.size :], length, asbytes=True)
    return text


@cache
def _codec() -> pa.Codec:
    import pyarrow as pa  # noqa: PLC0415 - a server goes without it as long as it can

    return pa.Codec("zstd", compression_level=_LEVEL)
