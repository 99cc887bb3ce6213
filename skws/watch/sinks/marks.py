"""The last batch that a sink has for good, and what it must know of it, in the run's folder."""

from __future__ import annotations

from hashlib import blake2b
from typing import Any

from skws.durable.whole import keep, kept, missing, outdated
from skws.watch.sinks.base import NONE, Run


class Marks:
    """What the sink of one address keeps; in a run without a folder, nothing. Raises StateError."""

    def __init__(self, run: Run, address: str) -> None:
        self._run = run
        self._name = f"{blake2b(address.encode(), digest_size=8).hexdigest()}.json"
        self._path = None if run.folder is None else run.folder / self._name
        self._of = f"{run.id}/{self._name}"

    def read(self) -> dict[str, Any]:
        """What was kept last; empty if nothing was."""
        if self._path is None:
            return {}
        if not self._path.exists():
            if self._name in self._run.least:
                raise missing(self._path)
            return {}
        found: dict[str, Any] = kept(self._path, self._of)
        if found["batch"] < self._run.least.get(self._name, NONE):
            raise outdated(self._path)
        self._run.hold(found["batch"])
        return found

    def keep(self, batch: int, *, durable: bool = True, **more: Any) -> None:
        if self._path is not None:
            keep(self._path, {"batch": batch, **more}, self._of, durable=durable)
            self._run.least[self._name] = batch
