"""Small files that others read: whole at any moment, the old one or the new one."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import orjson

from schema.errors import SkwsError


class StateError(SkwsError):
    """What a run keeps cannot be written or read."""


def replaced(path: Path, data: bytes, *, durable: bool = False) -> None:
    """Put ``data`` in the place of ``path``; ``durable``: also after a loss of power. Raises StateError."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
        with temporary.open("wb") as file:
            file.write(data)
            if durable:
                file.flush()
                os.fsync(file.fileno())
        temporary.replace(path)
        if durable:
            synced(path.parent)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise StateError(f"{path}: cannot write: {error.strerror}") from None


def kept(path: Path) -> Any:
    """The JSON that ``replaced`` put there, None if there is nothing. Raises StateError."""
    try:
        return orjson.loads(path.read_bytes())
    except FileNotFoundError:
        return None
    except orjson.JSONDecodeError:
        raise damaged(path) from None
    except OSError as error:
        raise StateError(f"{path}: cannot read: {error.strerror}") from None


def damaged(path: Path, where: str = "") -> StateError:
    """What ``path`` holds is not what was written there."""
    return StateError(f"{path}: damaged{where}: the run cannot go on from it")


def synced(folder: Path) -> None:
    """What was made, renamed or removed in ``folder`` is so for good."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
