"""The last batch that a sink has for good, and what it must know of it, in the run's folder."""

from __future__ import annotations

from hashlib import blake2b
from pathlib import Path
from typing import Any

import orjson

from skws.watch.atomic import kept, replaced

NONE = -1


class Marks:
    """What the sink of one address keeps; without a folder, nothing."""

    def __init__(self, folder: Path | None, address: str) -> None:
        name = blake2b(address.encode(), digest_size=8).hexdigest()
        self._path = None if folder is None else folder / f"{name}.json"

    def read(self) -> dict[str, Any]:
        """What was kept last; empty if nothing was. Raises StateError."""
        return {} if self._path is None else kept(self._path) or {}

    def keep(self, batch: int, *, durable: bool = True, **more: Any) -> None:
        """Raises StateError."""
        if self._path is not None:
            replaced(self._path, orjson.dumps({"batch": batch, **more}), durable=durable)
