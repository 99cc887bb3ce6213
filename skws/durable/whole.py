"""Small files that others read: whole at any moment, the old one or the new one."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Final

import orjson

from schema.errors import StateError
from skws.durable.frames import checked, unchecked
from skws.durable.growing import written

PRIVATE: Final = 0o600
"""The mode of files that hold data: for their owner alone."""
_PRIVATE_FOLDER: Final = 0o700
_ADVICE: Final = "start with a new --checkpoint, or put back a copy of the whole folder"


def replaced(path: Path, data: bytes, *, durable: bool = False, mode: int = 0o666) -> None:
    """Put ``data`` in the place of ``path``; ``durable``: also after a loss of power. Raises StateError."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
        try:
            _write(temporary, data, mode, durable=durable)
            temporary.replace(path)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
        if durable:
            synced(path.parent)
    except OSError as error:
        raise StateError(f"{path}: cannot write: {error.strerror}") from None


def _write(path: Path, data: bytes, mode: int, *, durable: bool) -> None:
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode)
    try:
        written(handle, data)
        if durable:
            os.fsync(handle)
    finally:
        os.close(handle)


def read(path: Path) -> bytes:
    """What a file of a checkpoint holds. Raises StateError, also if it is not there."""
    try:
        return path.read_bytes()
    except FileNotFoundError:
        raise missing(path) from None
    except OSError as error:
        raise StateError(f"{path}: cannot read: {error.strerror}") from None


def keep(path: Path, told: Any, of: str, *, durable: bool = True) -> None:
    """Put JSON into a private file as a frame, which belongs to ``of``. Raises StateError."""
    replaced(path, checked(orjson.dumps(told), of), durable=durable, mode=PRIVATE)


def kept(path: Path, of: str) -> Any:
    """Inverse of ``keep``. Raises StateError if the file is missing or damaged."""
    text = unchecked(read(path), of)
    if text is None:
        raise damaged(path)
    return orjson.loads(text)


def damaged(path: Path, where: str = "") -> StateError:
    """What ``path`` holds is not what was written there."""
    return StateError(f"{path}: damaged{where}: the run cannot go on from it ({_ADVICE})")


def missing(path: Path | str) -> StateError:
    """What a run has written at ``path`` is gone."""
    return StateError(f"{path}: missing: the run cannot go on without it ({_ADVICE})")


def outdated(path: Path) -> StateError:
    """What ``path`` holds was written before what other files know of it."""
    return damaged(path, " (older than the rest of the checkpoint)")


def private_folder(path: Path) -> None:
    """Make a folder for its owner alone, unless it is there. Raises OSError."""
    path.mkdir(mode=_PRIVATE_FOLDER, parents=True, exist_ok=True)


def synced(folder: Path) -> None:
    """What was made, renamed or removed in ``folder`` is so for good. Raises OSError."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
