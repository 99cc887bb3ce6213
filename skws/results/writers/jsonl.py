"""Results as JSON lines: the shape that consumers depend on."""

from __future__ import annotations

from skws.results.model import LiveResult
from skws.results.writers.base import Writer
from skws.results.writers.destination import Destination


class JsonLinesWriter(Writer):
    """One result a line."""

    def __init__(self, opened: Destination) -> None:
        self._opened = opened

    def write(self, result: LiveResult) -> None:
        self._opened.write(result.to_json() + b"\n")
