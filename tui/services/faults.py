"""What nobody expected to go wrong: a line for the user, and all of it in a file."""

from __future__ import annotations

import os
import time
from collections import deque
from pathlib import Path
from threading import Lock
from traceback import format_exception
from typing import Final

from schema.errors import SkwsError
from skws.results.writers.text import visible
from tui.services.folders import state_folder

ADVICE: Final = "try again, or another query"
_AGAIN: Final = 10.0
"""Seconds before the same line is told again."""
_MOST: Final = 500
"""Faults in that time after which the app cannot go on."""
_LARGEST: Final = 1_000_000
"""Bytes of the file before it is begun anew."""


def faults_file() -> Path:
    return state_folder() / "tui-faults.log"


def fault_line(error: BaseException, path: Path | None = None, advice: str = ADVICE) -> str:
    """What a user is told of an error. One that is no SkwsError is written to the file, with its trace."""
    if isinstance(error, SkwsError):
        return str(error)
    path = path or faults_file()
    told = " ".join(f"unexpected {type(error).__name__}: {error}".split())
    where = f"details in {path}" if _written(error, path) else f"details cannot be written to {path}"
    return "; ".join(part for part in (visible(told), advice, where) if part)


def _written(error: BaseException, path: Path) -> bool:
    lines = "".join(format_exception(error)).splitlines()
    stamp = time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime())
    text = "\n".join([f"{stamp} UTC", *map(visible, lines), "", ""])
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        kept = os.O_APPEND if path.exists() and path.stat().st_size < _LARGEST else os.O_TRUNC
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | kept, 0o600)
        with os.fdopen(handle, "a", encoding="utf-8", errors="backslashreplace") as file:
            file.write(text)
    except OSError:
        return False
    return True


class Faults:
    """Faults of one app, from any thread: the same one is told once in a while. ``caught`` counts all."""

    def __init__(self, path: Path | None = None) -> None:
        self.path = path or faults_file()
        self.caught = 0
        self.last = ""
        self._told: dict[str, float] = {}
        self._times: deque[float] = deque(maxlen=_MOST)
        self._lock = Lock()

    def told(self, error: BaseException) -> str:
        """The line to tell; empty if it was told a moment ago."""
        now, name = time.monotonic(), f"{type(error).__name__}: {error}"
        with self._lock:
            self.caught += 1
            self._times.append(now)
            self._told = {line: at for line, at in self._told.items() if now - at < _AGAIN}
            if name in self._told:
                return ""
            self._told[name] = now
            self.last = fault_line(error, self.path)
        return self.last

    @property
    def too_many(self) -> bool:
        """True if they come one after the other, so that nothing else is done."""
        return len(self._times) == _MOST and self._times[-1] - self._times[0] < _AGAIN
