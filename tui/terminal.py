"""The terminal kept for the app alone: what other programs write to stderr goes elsewhere meanwhile."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tui.services.folders import state_folder


@contextmanager
def stderr_kept(path: Path | None = None) -> Iterator[Path]:
    """Inside, file descriptor 2 is a file, which is given; Textual draws on what it was before.

    Java writes to the descriptor, over whatever stands on the terminal.
    """
    path = path or state_folder() / "spark.log"
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    terminal = os.dup(2)
    before, before_own = sys.__stderr__, sys.stderr
    with path.open("wb") as file, os.fdopen(terminal, "w", encoding="utf-8", closefd=False) as drawn:
        os.dup2(file.fileno(), 2)
        sys.__stderr__ = drawn  # type: ignore[misc]  # what Textual's driver draws on
        sys.stderr = drawn
        try:
            yield path
        finally:
            drawn.flush()
            sys.__stderr__ = before  # type: ignore[misc]
            sys.stderr = before_own
            os.dup2(terminal, 2)
            os.close(terminal)
