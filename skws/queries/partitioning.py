"""How the work of a live search is divided. Each result belongs to one shard; tuples go to all of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final
from zlib import crc32

import orjson

from skws_schema.model import Row


class Partitioning(StrEnum):
    """How shards divide keyword queries: results by root tuple, or whole queries."""

    ROOTS = "roots"
    QUERIES = "queries"


@dataclass(frozen=True, slots=True)
class Part:
    """What belongs to shard ``number`` of ``shards``."""

    number: int
    shards: int
    spread: Partitioning

    @property
    def whole(self) -> bool:
        """True if all is its own."""
        return self.shards == 1

    @property
    def first(self) -> bool:
        """One shard alone counts what all of them see."""
        return self.number == 0

    def accepts(self, key: Any) -> bool:
        """Whether results that have some value in common, of JSON, are its own."""
        return self.shards == 1 or crc32(orjson.dumps(key)) % self.shards == self.number

    def accepts_root(self) -> Callable[[Row], bool] | None:
        """Which root tuples are its own; None for all."""
        return None if self.shards == 1 or self.spread is Partitioning.QUERIES else self.accepts

    def owns(self, name: str) -> bool:
        """Whether the query of a name, whole, is its own."""
        return crc32(name.encode()) % self.shards == self.number

    def answers(self, text: str) -> bool:
        """Whether it takes part in answering the keyword queries of a text, which share their results."""
        return self.spread is Partitioning.ROOTS or self.owns(text)


WHOLE: Final = Part(0, 1, Partitioning.ROOTS)
