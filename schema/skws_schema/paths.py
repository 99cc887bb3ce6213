"""Paths for messages."""

from __future__ import annotations

import os
from pathlib import Path


def from_here(path: str | Path) -> str:
    """A path relative to the working directory if it is inside, else unchanged."""
    try:
        return str(Path(path).relative_to(Path.cwd()))
    except (ValueError, OSError):  # outside, or the working directory has been removed
        return os.fspath(path)
