"""How shards divide the results of a session. Each result belongs to one shard."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final
from zlib import crc32

import orjson

from skws_schema.model import Row


class Partitioning(StrEnum):
    """How shards divide keyword queries: results by root tuple, whole queries, or tuples by a key.

    By a key (``skws.queries.keys``), a shard reads only its own tuples; else all shards read all of them.
    """

    ROOTS = "roots"
    QUERIES = "queries"
    KEYS = "keys"


@dataclass(frozen=True, slots=True)
class Part:
    """The results of shard ``number`` among ``shards``."""

    number: int
    shards: int
    spread: Partitioning

    @property
    def whole(self) -> bool:
        """True if there is one shard."""
        return self.shards == 1

    @property
    def first(self) -> bool:
        """True for the shard that counts what all shards see."""
        return self.number == 0

    @property
    def alone(self) -> bool:
        """True if no other shard reads its tuples, apart from those of tables."""
        return self.shards == 1 or self.spread is Partitioning.KEYS

    def accepts(self, key: Any) -> bool:
        """Whether results with a common value, which is JSON, belong to the part."""
        return self.shards == 1 or crc32(orjson.dumps(key)) % self.shards == self.number

    def accepts_root(self) -> Callable[[Row], bool] | None:
        """True for the root tuples that belong to the part; None for all."""
        return self.accepts if self.shards > 1 and self.spread is Partitioning.ROOTS else None

    def owns(self, name: str) -> bool:
        """Whether the whole query of a name belongs to the part."""
        return crc32(name.encode()) % self.shards == self.number

    def answers(self, text: str) -> bool:
        """Whether the part has results of the keyword queries of a text."""
        return self.spread is not Partitioning.QUERIES or self.owns(text)


WHOLE: Final = Part(0, 1, Partitioning.ROOTS)
