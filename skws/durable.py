"""Files that outlive their process, which grow by whole records or are replaced; and frames with checksums.

A frame is a line, ``CHECKSUM LENGTH TEXT``. The checksum includes the owner of the
text (a run and a file) and its offset in the file, so that a frame from another
file, or one that has moved, counts as damaged.
"""

from __future__ import annotations

import errno
import fcntl
import os
import re
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import pairwise
from pathlib import Path
from typing import Final
from zlib import crc32

from skws_schema.errors import SkwsError, StateError, UsageError

_CODE: Final = 8  # hexadecimal digits of a checksum
_LENGTH: Final = 20  # digits at most


def encode_frame(text: bytes, owner: str = "", offset: int = 0) -> bytes:
    """The frame of a text of ``owner``, at ``offset`` of its file."""
    return b"%08x %d %b\n" % (_checksum(text, owner, offset), len(text), text)


def decode_frame(frame: bytes, owner: str = "") -> bytes | None:
    """The text of a frame made by ``encode_frame``; None if it is damaged, or not a single frame."""
    first_frame = _frame_at(frame, 0, owner, 0)
    return first_frame[0] if first_frame is not None and first_frame[1] == len(frame) else None


def frames(data: bytes, owner: str = "", file_offset: int = 0) -> Iterator[tuple[bytes, int]]:
    """The texts of all frames up to the first damaged one, each with the offset of its end in ``data``.

    ``file_offset``: the offset of ``data`` in the file.
    """
    offset = 0
    while (frame := _frame_at(data, offset, owner, file_offset + offset)) is not None:
        yield frame
        offset = frame[1]


def all_frames(data: bytes, owner: str = "", file_offset: int = 0) -> tuple[list[bytes], int]:
    """The texts of ``frames``, and the end of the last one."""
    text_ends = list(frames(data, owner, file_offset))
    return [text for text, _ in text_ends], text_ends[-1][1] if text_ends else 0


def _frame_at(data: bytes, offset: int, owner: str, file_offset: int) -> tuple[bytes, int] | None:
    """The text of the frame at an offset in ``data``, and its end; ``file_offset``: the same in the file."""
    length_at = offset + _CODE + 1
    text_at = data.find(b" ", length_at, length_at + _LENGTH) + 1
    length = data[length_at : text_at - 1]
    if not text_at or not length.isdigit():
        return None
    end = text_at + int(length)
    text = data[text_at:end]
    valid = data[end : end + 1] == b"\n" and data[offset:length_at] == b"%08x " % _checksum(
        text, owner, file_offset
    )
    return (text, end + 1) if valid else None


def is_torn(data: bytes, offset: int, owner: str = "") -> bool:
    """True if the end of a file, from ``offset``, may be a frame that was not completely written.

    A kill leaves the first part of a frame; so does a loss of power, followed by zeros, or with zeros in
    place of whole blocks. Anything else was written and is damaged. ``data``: the whole file; none of its
    texts begins with a digit.
    """
    tail = data[offset:]
    bounds = [0, *range(-offset % _BLOCK or _BLOCK, len(tail), _BLOCK), len(tail)]
    blocks = (tail[begin:end] for begin, end in pairwise(bounds))
    if tail.endswith(b"\0") or not all(block.strip(b"\0") for block in blocks):
        return True
    head = _HEAD.match(tail)
    if head is None:
        return _PART_OF_HEAD.fullmatch(tail) is not None
    if len(tail) > head.end() + int(head[2]):
        return False
    # The length itself may be damaged.
    code, begin = _checksum(b"", owner, offset), head.end()
    while (end := tail.find(b"\n", begin)) >= 0:
        code = crc32(tail[begin:end], code)
        if head[1] == b"%08x" % code:
            return False
        code, begin = crc32(b"\n", code), end + 1
    return True


_BLOCK: Final = 4096
"""Bytes of a file that a file system writes to disk as a whole, or not at all."""
_HEAD: Final = re.compile(rb"([0-9a-f]{8}) (\d{1,20}) ")
_PART_OF_HEAD: Final = re.compile(rb"[0-9a-f]{0,8}|[0-9a-f]{8} \d{0,20}")


def _checksum(text: bytes, owner: str, offset: int) -> int:
    return crc32(text, crc32(b"%b %d" % (owner.encode(), offset)))


@contextmanager
def explained(problem: str, kind: type[SkwsError] = StateError) -> Iterator[None]:
    """Turn failures of the file system inside into errors for the user: ``problem``, and the reason."""
    try:
        yield
    except OSError as error:
        raise kind(f"{problem}: {error.strerror}") from None


class GrowingFile:
    """Appends whole pieces to ``path``, created with ``mode``. Raises OSError.

    A piece cut off by a full disk or an interrupt is removed at once if that is
    possible. The file is broken then: it takes no more pieces, and ``sync``
    fails, so that no length is recorded that includes half a piece.
    ``anew``: truncate the file first. ``shared``: other processes append to it too.
    """

    def __init__(self, path: Path, *, mode: int = 0o666, anew: bool = False, shared: bool = False) -> None:
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | (os.O_TRUNC if anew else 0)
        self.path = path
        self._handle = os.open(path, flags, mode)
        self._regular = stat.S_ISREG(os.fstat(self._handle).st_mode)
        self._shared = shared
        self._locked = False
        self._broken = False
        self._synced = True
        self._name_synced = False  # True if the entry of the file in its folder is durable
        self._closed = False

    @property
    def size(self) -> int:
        """The size in bytes; 0 for a pipe or device."""
        return os.fstat(self._handle).st_size

    def is_current(self) -> bool:
        """False if another file has taken its path, or none is there."""
        try:
            return os.path.samestat(os.fstat(self._handle), self.path.stat())
        except FileNotFoundError:
            return False

    @property
    def regular(self) -> bool:
        """False for a pipe or device, which keeps nothing."""
        return self._regular

    def append(self, piece: bytes) -> None:
        """Append all of ``piece``, or break the file. Readers see it at once."""
        self._check()
        with self.exclusive_access():
            size = self.size
            self._broken, self._synced = True, False
            try:
                write_all(self._handle, piece)
            except BaseException:
                with suppress(OSError):
                    self.truncate(size)
                raise
        self._broken = False

    def truncate(self, length: int) -> None:
        """Truncate a regular file to ``length``."""
        if self._regular:
            os.ftruncate(self._handle, length)
            self._synced = False

    def sync(self) -> int:
        """Make the file and all its pieces durable, even if power is lost; returns the size."""
        self._check()
        if self._regular and not (self._synced and self._name_synced):
            self._broken = True  # after a failed sync, the next one would not report the loss
            os.fdatasync(self._handle)
            if not self._name_synced:
                sync_folder(self.path.parent)
            self._broken = False
        self._synced = self._name_synced = True
        return self.size

    def close(self) -> None:
        """Close the file; further calls have no effect."""
        if not self._closed:
            self._closed = True
            os.close(self._handle)

    def _check(self) -> None:
        if self._broken:
            raise OSError(errno.EIO, "an earlier write to it was interrupted")

    @contextmanager
    def exclusive_access(self) -> Iterator[None]:
        """Keep other processes of skws from appending to a ``shared`` file; may be nested."""
        if not (self._shared and self._regular) or self._locked:
            yield
            return
        fcntl.flock(self._handle, fcntl.LOCK_EX)
        self._locked = True
        try:
            yield
        finally:
            self._locked = False
            fcntl.flock(self._handle, fcntl.LOCK_UN)


def write_all(handle: int, data: bytes) -> None:
    """Write all of ``data``, in several parts if the system takes only some. Raises OSError."""
    view = memoryview(data)
    while view:
        view = view[os.write(handle, view) :]


CACHE: Final = "SKWS_CACHE"
PRIVATE: Final = 0o600
"""The mode of files with data: only their owner may read them."""
_PRIVATE_FOLDER: Final = 0o700
_ADVICE: Final = "start with a new --checkpoint, or put back a copy of the whole folder"


def replace_file(path: Path, data: bytes, *, durable: bool = False, mode: int = 0o666) -> None:
    """Replace the content of ``path``; ``durable``: it survives a loss of power. Raises StateError."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.partial")
    with explained(f"{path}: cannot write"):
        try:
            _write(temporary, data, mode, durable=durable)
            temporary.replace(path)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
        if durable:
            sync_folder(path.parent)


def _write(path: Path, data: bytes, mode: int, *, durable: bool) -> None:
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode)
    try:
        write_all(handle, data)
        if durable:
            os.fsync(handle)
    finally:
        os.close(handle)


def read_file(path: Path) -> bytes:
    """The content of a file of a checkpoint. Raises StateError, also if it is missing."""
    with explained(f"{path}: cannot read"):
        try:
            return path.read_bytes()
        except FileNotFoundError:
            raise missing(path) from None


def remove_file(path: Path) -> None:
    """Remove a file if it exists. Raises StateError."""
    with explained(f"{path}: cannot remove"):
        path.unlink(missing_ok=True)


def remove_partial_files(folder: Path) -> None:
    """Remove the temporary files of a killed process in a folder, whichever component wrote them."""
    for path in folder.rglob(".*.partial"):
        with suppress(OSError):
            path.unlink()


def damaged(path: Path | str, location: str = "") -> StateError:
    """The error for a file whose content is not what was written."""
    return StateError(f"{path}: damaged{location}: the run cannot continue from it ({_ADVICE})")


def missing(path: Path | str) -> StateError:
    """The error for a file that is missing."""
    return StateError(f"{path}: missing: the run cannot continue without it ({_ADVICE})")


def private_folder(path: Path) -> None:
    """Create a folder for its owner alone, unless it exists. Raises OSError."""
    path.mkdir(mode=_PRIVATE_FOLDER, parents=True, exist_ok=True)


def lock_folder(folder: Path, refusal: str, kind: type[SkwsError] = StateError) -> int:
    """Lock a folder by a file in it, until the handle that is returned is closed or the process ends.

    Raises UsageError (``refusal``) if it is locked; ``kind`` if it cannot be.
    """
    with explained(f"{folder}: cannot be locked", kind):
        handle = os.open(folder / "lock", os.O_RDWR | os.O_CREAT, PRIVATE)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(handle)
            raise UsageError(refusal) from None
        except BaseException:
            os.close(handle)
            raise
    return handle


def checkpoint_folder(path: Path) -> None:
    """As ``private_folder``, within a checkpoint. Raises StateError."""
    with explained(f"{path}: cannot be created"):
        private_folder(path)


def user_folder(variable: str, default: str) -> Path:
    """The folder of skws in a base directory of the user: that of ``variable``, or ``default`` in the home.

    The XDG specification ignores a relative path in a variable. Raises StateError if there is no home.
    """
    folder = os.environ.get(variable, "")
    if os.path.isabs(folder):
        return Path(folder) / "skws"
    try:
        return Path.home() / default / "skws"
    except RuntimeError:  # a container may run as a user without an entry in /etc/passwd
        raise StateError(f"there is no home directory: set HOME, or {variable} to a folder") from None


def cache_folder(kind: str) -> Path:
    """The folder for one kind of files that can be rebuilt: in ``SKWS_CACHE``, or in the user's cache.

    Raises StateError if there is neither.
    """
    configured = os.environ.get(CACHE)
    return (Path(configured).absolute() if configured else user_folder("XDG_CACHE_HOME", ".cache")) / kind


def sync_folder(folder: Path) -> None:
    """Make creations, renames and removals in ``folder`` durable. Raises OSError."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def as_unicode(text: str) -> str:
    """A text for JSON and databases; a path may have bytes that are not UTF-8, which are escaped."""
    return text.encode(errors="backslashreplace").decode()


_PIECE: Final = 1 << 20


def file_digest(path: Path) -> dict[str, int]:
    """The length and checksum of a large file, as JSON. Raises OSError."""
    code, length = 0, 0
    with path.open("rb") as file:
        while piece := file.read(_PIECE):
            code, length = crc32(piece, code), length + len(piece)
    return {"bytes": length, "crc32": code}
