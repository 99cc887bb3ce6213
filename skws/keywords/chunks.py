"""What is known of chunks of text, remembered while there is room."""

from __future__ import annotations

from abc import abstractmethod
from typing import Final, Generic, TypeVar

from skws.keywords.analysis import MEMORABLE

_REMEMBERED: Final = 500_000  # chunks

Known = TypeVar("Known")


class ChunkMemory(dict[str, Known], Generic[Known]):
    """From chunks, parts of texts between white space; filled as they are met, emptied when too large."""

    @abstractmethod
    def look_up(self, chunk: str) -> Known:
        """What there is to know of a chunk that is met for the first time."""

    def __missing__(self, chunk: str) -> Known:
        found = self.look_up(chunk)
        if len(chunk) <= MEMORABLE:
            if len(self) >= _REMEMBERED:
                self.clear()
            self[chunk] = found
        return found
