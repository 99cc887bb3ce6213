"""Where the UI keeps its files, after the XDG base directories."""

from __future__ import annotations

import os
from pathlib import Path


def state_folder() -> Path:
    """For sessions and history."""
    return _folder("XDG_STATE_HOME", Path(".local") / "state")


def config_folder() -> Path:
    """For the keymap."""
    return _folder("XDG_CONFIG_HOME", Path(".config"))


def _folder(variable: str, default: Path) -> Path:
    given = os.environ.get(variable, "")
    base = Path(given) if os.path.isabs(given) else Path.home() / default
    return base / "skws"
