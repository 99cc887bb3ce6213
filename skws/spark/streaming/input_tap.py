"""What the source's process has read, left in the run's folder for an onlooker of the driver.

The stream goes by inside the job, whose source is a process beside the driver.
If the driver asks, that process leaves a copy of the records of each micro-batch;
the driver takes it when the micro-batch's results are delivered.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

from skws.data.batch import RecordBatch
from skws.data.packing import unpacked
from skws.durable.files import PRIVATE, private_folder, replaced

MOST: Final = 256
"""Micro-batches that wait for the driver; of more, the oldest go."""


class InputTap:
    """A folder in that of the run, with a file for each micro-batch, named by its number."""

    def __init__(self, run: Path) -> None:
        self._folder = run / "copies"
        self._taken: int | None = None
        self.missed = False
        """Micro-batches went before the driver had them."""

    def ask(self) -> None:
        """By the driver, before the job starts."""
        private_folder(self._folder)

    @property
    def asked(self) -> bool:
        """True if the driver looks on."""
        return self._folder.is_dir()

    def leave(self, number: int, records: bytes) -> None:
        """By the source, if it was asked. ``records``: packed."""
        if not self.asked:
            return
        waiting = self._waiting()
        for path in waiting[: max(0, len(waiting) - MOST + 1)]:
            path.unlink(missing_ok=True)
        replaced(self._folder / f"{number:012d}", records, mode=PRIVATE)

    def take(self, up_to: int) -> Iterator[RecordBatch]:
        """By the driver: the records of micro-batches up to a number, each once."""
        for path in self._waiting():
            if int(path.name) > up_to:
                return
            with suppress(FileNotFoundError):  # the source let it go
                records = path.read_bytes()
                path.unlink()
                number = int(path.name)
                self.missed = self.missed or number != (self._taken or number - 1) + 1
                self._taken = number
                yield unpacked(records)

    def _waiting(self) -> list[Path]:
        return sorted(path for path in self._folder.glob("*") if path.name.isdecimal())
