"""Digests: the results of a saved search, collected and given together at the end of each interval.

Intervals begin at multiples of their length since the epoch, in UTC, so a day ends at midnight. One whose
end passed while no process ran is given at the start of the next.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import orjson

MOST: Final = 1_000
"""Results that a digest lists; it counts the others."""


@dataclass(slots=True)
class Digest:
    """An open digest. ``due``: when it ends, in microseconds since the epoch. ``more``: results left out."""

    every: int
    due: int
    items: list[bytes] = field(default_factory=list)
    more: int = 0


class Digests:
    """The open digests by the name of their search."""

    def __init__(self) -> None:
        self._open: dict[str, Digest] = {}

    def __contains__(self, name: str) -> bool:
        return name in self._open

    def begin(self, name: str, every: int, now: int) -> None:
        """Collect for a search from now on."""
        self._open[name] = Digest(every, _end(every, now))

    def remove(self, name: str) -> None:
        self._open.pop(name, None)

    def collect(self, name: str, data: bytes) -> None:
        digest = self._open[name]
        if len(digest.items) < MOST:
            digest.items.append(data)
        else:
            digest.more += 1

    def due(self, now: int) -> list[tuple[str, bytes]]:
        """The digests whose interval has ended, if they hold anything: name and JSON, for ``given``."""
        found = []
        for name, digest in self._open.items():
            if now < digest.due:
                continue
            if digest.items:
                found.append((name, _text(digest, _end(digest.every, now))))
            else:
                digest.due = _end(digest.every, now)
        return found

    def given(self, name: str, due: int) -> None:
        """The digest of a search was given; the next one ends at ``due``."""
        digest = self._open.get(name)
        if digest is not None:
            digest.items, digest.more, digest.due = [], 0, due

    def state(self) -> dict[str, Any]:
        """All open digests, as JSON."""
        return {
            name: {
                "every": digest.every,
                "due": digest.due,
                "items": [item.decode() for item in digest.items],
                "more": digest.more,
            }
            for name, digest in self._open.items()
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Inverse of ``state``."""
        self._open = {
            name: Digest(one["every"], one["due"], [item.encode() for item in one["items"]], one["more"])
            for name, one in state.items()
        }


def _end(every: int, now: int) -> int:
    return (now // every + 1) * every


def _text(digest: Digest, following: int) -> bytes:
    begun = digest.due - digest.every
    head = orjson.dumps({"from": begun, "due": digest.due, "next": following, "more": digest.more})
    return head[:-1] + b',"results":[' + b",".join(digest.items) + b"]}"
