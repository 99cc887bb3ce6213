"""Results of patterns and their JSON form, which consumers depend on."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import orjson

from skws.results.model import JsonRow, Op


@dataclass(frozen=True)
class PatternTuple:
    """A tuple of a result. ``labels``: its variables in the pattern; ``position``: in the stream, from 0.

    ``identity``: its part in the ids of results.
    """

    relation: str
    id: str
    keywords: tuple[str, ...]
    labels: tuple[str, ...]
    position: int
    row: JsonRow = field(hash=False)
    identity: str = field(repr=False, compare=False)

    def to_dict(self) -> dict[str, Any]:
        """The JSON form as plain objects."""
        return {
            "relation": self.relation,
            "id": self.id,
            "keywords": list(self.keywords),
            "labels": list(self.labels),
            "position": self.position,
            "row": self.row,
        }

    @cached_property
    def json(self) -> orjson.Fragment:
        """The JSON form as text, made once: a tuple is in many results."""
        return orjson.Fragment(orjson.dumps(self.to_dict()))


@dataclass(frozen=True, slots=True)
class PatternResult:
    """Tuples that satisfy a pattern together, in order of their positions.

    ``start``: the time of the last tuple, in seconds since the epoch. ``end``:
    when the first tuple leaves the window; None if not known. ``snapshot``:
    the result was there before the pattern. ``held_back``: as in ``Result``.
    """

    name: str
    query: str
    id: str
    start: float
    end: float | None
    tuples: tuple[PatternTuple, ...]
    snapshot: bool = False
    held_back: int = 0

    @property
    def op(self) -> Op:
        """Results of patterns are never retracted."""
        return "+"

    def to_dict(self) -> dict[str, Any]:
        """The JSON form as plain objects."""
        return self._with([member.to_dict() for member in self.tuples])

    @classmethod
    def from_dict(cls, shown: dict[str, Any]) -> PatternResult:
        """Inverse of ``to_dict``, but for ``identity``."""
        tuples = tuple(
            PatternTuple(
                one["relation"],
                one["id"],
                tuple(one["keywords"]),
                tuple(one["labels"]),
                one["position"],
                one["row"],
                "",
            )
            for one in shown["tuples"]
        )
        made = cls(shown["name"], shown["query"], shown["id"], shown["start"], shown["end"], tuples)
        return replace(made, snapshot=shown.get("snapshot", False), held_back=shown.get("held_back", 0))

    def to_json(self) -> bytes:
        return orjson.dumps(self._with([member.json for member in self.tuples]))

    def _with(self, tuples: list[Any]) -> dict[str, Any]:
        shown = {
            "op": self.op,
            "name": self.name,
            "query": self.query,
            "id": self.id,
            "start": self.start,
            "end": self.end,
            "tuples": tuples,
        }
        if self.snapshot:
            shown["snapshot"] = True
        if self.held_back:
            shown["held_back"] = self.held_back
        return shown
