"""Paths as people read them."""

from __future__ import annotations

import os
from pathlib import Path


def from_here(path: str | Path) -> str:
    """A path in the working directory without that directory; any other as it is."""
    try:
        return str(Path(path).relative_to(Path.cwd()))
    except (ValueError, OSError):  # elsewhere, or the working directory is gone
        return os.fspath(path)
