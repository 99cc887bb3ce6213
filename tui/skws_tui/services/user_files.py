"""The user's files, in the XDG base directories: sessions by schema, keymap, log of faults; and exports."""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Collection, Sequence
from hashlib import sha256
from io import BytesIO
from pathlib import Path
from threading import Lock
from traceback import format_exception
from typing import Final

import msgspec

from skws.durable import explained, replace_file, user_folder
from skws.results.result import Result
from skws.sinks.base import destination, further_columns
from skws.sinks.formats import Writer, plain_encoder
from skws.sinks.text import visible
from skws.spec.enums import OutputFormat
from skws_schema.errors import SchemaError, SkwsError, UsageError, nearest, shown
from skws_schema.yaml.located import locate

_HISTORY: Final = 200
_VERSION: Final = 1
ADVICE: Final = "try again, or another query"
_AGAIN: Final = 10.0
"""The time before the same line is reported again, in seconds."""
_MOST: Final = 500
"""The number of faults in that time that ends the app."""
_LARGEST: Final = 1_000_000
"""The size in bytes at which the file is overwritten."""


def state_folder() -> Path:
    """The folder for sessions and logs."""
    return user_folder("XDG_STATE_HOME", ".local/state")


class SavedSession(msgspec.Struct):
    """The state that is kept for a schema between runs. ``history``: queries in order of use, latest last.

    ``saved``: queries that the user saved. ``trees``: results are listed as whole
    trees. ``selected``: the query that is shown, empty for all.
    """

    queries: list[str] = []
    history: list[str] = []
    saved: list[str] = []
    theme: str = ""
    trees: bool = False
    selected: str = ""
    version: int = _VERSION

    def remember(self, name: str) -> None:
        """Put a query at the end of the history, once."""
        self.history = [*(query for query in self.history if query != name), name][-_HISTORY:]

    def toggle_saved(self, name: str) -> bool:
        """Save a query, or remove it from the saved ones; True if it is saved now."""
        if name in self.saved:
            self.saved.remove(name)
            return False
        self.saved.append(name)
        return True


def session_file(schema: Path, folder: Path | None = None) -> Path:
    """The file for the session of a schema file."""
    name = sha256(str(schema.resolve()).encode()).hexdigest()[:16]
    return (folder or state_folder()) / f"session-{name}.json"


def load_session(path: Path) -> SavedSession:
    """The saved session; a new one if the file is missing or unreadable."""
    try:
        session = msgspec.json.decode(path.read_bytes(), type=SavedSession)
    except (OSError, msgspec.MsgspecError):
        return SavedSession()
    return session if session.version == _VERSION else SavedSession()


def save_session(session: SavedSession, path: Path) -> None:
    """Store the session. Raises StateError if it cannot be written."""
    with explained(f"{path.parent}: cannot keep the session"):
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    replace_file(path, msgspec.json.format(msgspec.json.encode(session)) + b"\n")


def keymap_file() -> Path:
    return user_folder("XDG_CONFIG_HOME", ".config") / "keys.yaml"


def load_keymap(path: Path, actions: Collection[str], retired: Collection[str] = ()) -> dict[str, str]:
    """Keys by action, several of them separated by commas; empty if there is no file.

    ``retired``: former actions, whose lines are ignored. Raises SchemaError with every problem: unknown
    actions, values that are not keys.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return {}
    except (OSError, UnicodeDecodeError) as error:
        raise SchemaError(f"{path}: cannot be read as a keymap: {error}") from None
    document = locate(text, str(path))
    keymap = document.data if isinstance(document.data, dict) else {}
    if document.data is not None and not isinstance(document.data, dict):
        document.report((1, 1), "expected lines like 'remove-query: x'")
    keymap = {action: keys for action, keys in keymap.items() if action not in retired}
    for action, keys in keymap.items():
        if action not in actions:
            document.report(
                document.key_place((action,)), f"no action {shown(action)}{nearest(action, actions)}"
            )
        elif not isinstance(keys, str) or not all(key.strip() for key in keys.split(",")):
            document.report(
                document.value_place((action,)),
                f"{action}: expected a key like ctrl+r or comma, or several: x,delete",
            )
    if document.problems:
        raise SchemaError(sorted(document.problems, key=lambda p: (p.line, p.column)))
    return {action: ",".join(key.strip() for key in str(keys).split(",")) for action, keys in keymap.items()}


def faults_file() -> Path:
    return state_folder() / "tui-faults.log"


def fault_line(error: BaseException, path: Path | None = None, advice: str = ADVICE) -> str:
    """The message for an error.

    An error that is not a SkwsError is written to the file with its traceback.
    """
    if isinstance(error, SkwsError):
        return str(error)
    path = path or faults_file()
    line = " ".join(f"unexpected {type(error).__name__}: {error}".split())
    location = f"details in {path}" if _write_fault(error, path) else f"details cannot be written to {path}"
    return "; ".join(part for part in (visible(line), advice, location) if part)


def _write_fault(error: BaseException, path: Path) -> bool:
    lines = "".join(format_exception(error)).splitlines()
    stamp = time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime())
    text = "\n".join([f"{stamp} UTC", *map(visible, lines), "", ""])
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        mode_flag = os.O_APPEND if path.exists() and path.stat().st_size < _LARGEST else os.O_TRUNC
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | mode_flag, 0o600)
        with os.fdopen(handle, "a", encoding="utf-8", errors="backslashreplace") as file:
            file.write(text)
    except OSError:
        return False
    return True


class Faults:
    """The faults of one app, from any thread; ``caught`` counts them. Repetitions are not reported."""

    def __init__(self) -> None:
        self.path = faults_file()
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
            self._reported = {
                text: reported_at
                for text, reported_at in self._reported.items()
                if now - reported_at < _AGAIN
            }
            if error_text in self._reported:
                return ""
            self._reported[error_text] = now
            self.last = fault_line(error, self.path)
        return self.last

    @property
    def too_many(self) -> bool:
        """True if faults come so fast that the app does nothing else."""
        return len(self._times) == _MOST and self._times[-1] - self._times[0] < _AGAIN


FORMATS: Final = {
    ".jsonl": OutputFormat.JSONL,
    ".csv": OutputFormat.CSV,
    ".parquet": OutputFormat.PARQUET,
}


def export(results: Sequence[Result], path: Path) -> None:
    """Write results in the given order, in the format of the file name's suffix.

    Raises UsageError for another suffix, and for results of patterns in formats other than JSON; OutputError.
    """
    if path.suffix not in FORMATS:
        raise UsageError(f"{path}: expected a name that ends in {', '.join(FORMATS)}")
    if not all(result.network for result in results) and path.suffix != ".jsonl":
        raise UsageError(f"{path}: results of patterns are exported as .jsonl")
    with destination(path, BytesIO()) as out:
        writer = Writer(plain_encoder(FORMATS[path.suffix], further_columns(results)), out)
        for result in results:
            writer.write(result)
        writer.finish()
