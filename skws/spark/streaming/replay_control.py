"""How the driver holds the source's process in: paused or not, and how fast a replay goes.

A small file beside the commands says it, replaced as a whole; the reader
looks at it before every micro-batch.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

import orjson

from skws.durable.files import PRIVATE, replaced

_FILE: Final = "replay_control.json"


@dataclass(frozen=True, slots=True)
class ReplayControl:
    """``speed``: None for the one that the run was started with."""

    paused: bool = False
    speed: float | None = None

    def put(self, folder: Path) -> None:
        """From now on."""
        replaced(folder / _FILE, orjson.dumps(asdict(self)), mode=PRIVATE)

    @classmethod
    def of(cls, folder: Path) -> ReplayControl:
        """As they are now."""
        try:
            return cls(**orjson.loads((folder / _FILE).read_bytes()))
        except FileNotFoundError:
            return cls()
