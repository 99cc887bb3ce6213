"""A result of a pattern, and its JSON form, which consumers depend on."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import orjson

from skws.results.model import JsonRow


@dataclass(frozen=True, slots=True)
class PatternTuple:
    """One tuple of a result: what it stands for in the pattern, and its position in the stream (from 0)."""

    relation: str
    id: str
    keywords: tuple[str, ...]
    labels: tuple[str, ...]
    position: int
    row: JsonRow = field(hash=False)


@dataclass(frozen=True, slots=True)
class PatternResult:
    """Tuples that satisfy a pattern together, in order of their positions.

    ``start``: when the last of them came, in seconds since the epoch; ``end``:
    when the first of them leaves the window, None where that is not known.
    """

    query: str
    id: str
    start: float
    end: float | None
    tuples: tuple[PatternTuple, ...]

    def to_dict(self) -> dict[str, Any]:
        """The JSON form as plain objects."""
        return {
            "op": "+",
            "query": self.query,
            "id": self.id,
            "start": self.start,
            "end": self.end,
            "tuples": [
                {
                    "relation": t.relation,
                    "id": t.id,
                    "keywords": list(t.keywords),
                    "labels": list(t.labels),
                    "position": t.position,
                    "row": t.row,
                }
                for t in self.tuples
            ],
        }

    def to_json(self) -> bytes:
        return orjson.dumps(self.to_dict())
