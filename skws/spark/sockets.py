"""The folder for sockets: their paths must be short, and folders for temporary files may have long paths."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Final

_LONGEST: Final = 104 - 1  # bytes of a path: Linux takes four more than other systems
_OWN: Final = 50  # bytes of the folders and the file inside, at most
_USUAL: Final = Path("/tmp")  # noqa: S108 - each folder in it is closed to others


def temporary_folder() -> Path:
    """The folder for temporary files if its paths are short enough for a socket, otherwise ``/tmp``."""
    folder = Path(tempfile.gettempdir())
    return folder if len(os.fsencode(folder)) + _OWN <= _LONGEST else _USUAL
