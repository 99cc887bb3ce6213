"""What outlives the app, by schema: standing queries and their history, the theme, the tour."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

import orjson

from schema.errors import StateError
from skws.durable.whole import replaced
from tui.services.folders import state_folder

_HISTORY: Final = 200
_VERSION: Final = 1


@dataclass(slots=True)
class Session:
    """One schema's. ``history``: queries asked for, oldest first. ``saved``: those that the user keeps.

    ``detail``: whole rows are shown beside the results; ``selected``: of which query, empty for all.
    """

    queries: list[str] = field(default_factory=list)
    history: list[str] = field(default_factory=list)
    saved: list[str] = field(default_factory=list)
    theme: str = ""
    detail: bool = False
    selected: str = ""
    toured: bool = False

    def asked(self, text: str) -> None:
        """A query was asked for; the latest comes last, none twice."""
        self.history = [*(known for known in self.history if known != text), text][-_HISTORY:]

    def toggle_saved(self, text: str) -> bool:
        """Keep a query, or keep it no longer; gives whether it is kept."""
        if text in self.saved:
            self.saved.remove(text)
            return False
        self.saved.append(text)
        return True


def session_file(schema: Path, folder: Path | None = None) -> Path:
    """Where the session of a schema file is kept."""
    name = sha256(str(schema.resolve()).encode()).hexdigest()[:16]
    return (folder or state_folder()) / f"session-{name}.json"


def load_session(path: Path) -> Session:
    """The session that was saved; a new one if there is none, or none that can be read."""
    try:
        told = orjson.loads(path.read_bytes())
    except (OSError, ValueError):
        return Session()
    if not isinstance(told, dict) or told.get("version") != _VERSION:
        return Session()
    return Session(
        _texts(told.get("queries")),
        _texts(told.get("history")),
        _texts(told.get("saved")),
        str(told.get("theme", "")),
        told.get("detail") is True,
        str(told.get("selected", "")),
        told.get("toured") is True,
    )


def save_session(session: Session, path: Path) -> None:
    """Raises StateError if it cannot be written."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    except OSError as error:
        raise StateError(f"{path.parent}: cannot keep the session: {error.strerror}") from None
    told = {"version": _VERSION, **asdict(session)}
    replaced(path, orjson.dumps(told, option=orjson.OPT_INDENT_2) + b"\n")


def _texts(told: Any) -> list[str]:
    return [text for text in told if isinstance(text, str) and text] if isinstance(told, list) else []
