"""A clock moved by the test."""

from __future__ import annotations


class HandClock:
    """Stands still until it is moved."""

    def __init__(self) -> None:
        self.micros = 1_000

    def now(self) -> int:
        return self.micros

    def sleep(self, micros: int) -> None:
        self.micros += micros
