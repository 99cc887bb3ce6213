"""Unexpected errors: a line for the user, the traceback in a file."""

from __future__ import annotations

import os
import time
from collections import deque
from pathlib import Path
from threading import Lock
from traceback import format_exception
from typing import Final

from skws.sinks.text import visible
from skws_schema.errors import SkwsError
from skws_tui.services.user_files import state_folder

ADVICE: Final = "try again, or another query"
_AGAIN: Final = 10.0
"""Seconds before the same line is reported again."""
_MOST: Final = 500
"""Faults in that time that end the app."""
_LARGEST: Final = 1_000_000
"""Bytes of the file before it is overwritten."""


def faults_file() -> Path:
    return state_folder() / "tui-faults.log"


def fault_line(error: BaseException, path: Path | None = None, advice: str = ADVICE) -> str:
    """The message for an error. One that is no SkwsError goes to the file with its traceback."""
    if isinstance(error, SkwsError):
        return str(error)
    path = path or faults_file()
    line = " ".join(f"unexpected {type(error).__name__}: {error}".split())
    where = f"details in {path}" if _written(error, path) else f"details cannot be written to {path}"
    return "; ".join(part for part in (visible(line), advice, where) if part)


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
    """Faults of one app, from any thread; ``caught`` counts them. Repetitions are not reported."""

    def __init__(self, path: Path | None = None) -> None:
        self.path = path or faults_file()
        self.caught = 0
        self.last = ""
        self._reported: dict[str, float] = {}
        self._times: deque[float] = deque(maxlen=_MOST)
        self._lock = Lock()

    def line(self, error: BaseException) -> str:
        """The message for an error; empty if it was reported a moment ago."""
        now, error_text = time.monotonic(), f"{type(error).__name__}: {error}"
        with self._lock:
            self.caught += 1
            self._times.append(now)
            self._reported = {text: at for text, at in self._reported.items() if now - at < _AGAIN}
            if error_text in self._reported:
                return ""
            self._reported[error_text] = now
            self.last = fault_line(error, self.path)
        return self.last

    @property
    def too_many(self) -> bool:
        """True if they come so fast that nothing else is done."""
        return len(self._times) == _MOST and self._times[-1] - self._times[0] < _AGAIN
