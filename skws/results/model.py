"""A result as users get it, and its JSON form, which consumers depend on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, TypeAlias

import orjson

Op: TypeAlias = Literal["+", "-"]
JsonRow: TypeAlias = dict[str, str | int | float | bool | None]


class TupleShown(Protocol):
    """What tuples of all results have, as in ``ResultTuple``."""

    @property
    def relation(self) -> str: ...
    @property
    def id(self) -> str: ...
    @property
    def keywords(self) -> tuple[str, ...]: ...
    @property
    def row(self) -> JsonRow: ...


class LiveResult(Protocol):
    """What results of standing queries of all kinds have, as in ``Result``."""

    @property
    def op(self) -> Op: ...
    @property
    def query(self) -> str: ...
    @property
    def id(self) -> str: ...
    @property
    def start(self) -> float | None: ...
    @property
    def end(self) -> float | None: ...
    @property
    def snapshot(self) -> bool: ...
    @property
    def tuples(self) -> Sequence[TupleShown]: ...

    def to_dict(self) -> dict[str, Any]:
        """The JSON form as plain objects."""

    def to_json(self) -> bytes: ...


@dataclass(frozen=True, slots=True)
class ResultTuple:
    """One tuple of a result. ``id`` names it in the stream; ``row`` maps attributes to JSON values."""

    relation: str
    id: str
    keywords: tuple[str, ...]
    row: JsonRow = field(hash=False)


@dataclass(frozen=True, slots=True)
class Result:
    """A minimal total joining network of tuples (``+``), or its retraction (``-``).

    ``start`` and ``end`` bound its lifespan in seconds since the epoch:
    ``start`` is None if all its tuples are static, ``end`` where it is not
    known. A retraction's ``end`` is the time of the deletion. Each join is
    (tuple on the join's left side, tuple on its right side, the join's name).
    ``snapshot``: it was there before the stream began.
    """

    op: Op
    query: str
    id: str
    start: float | None
    end: float | None
    network: str
    tuples: tuple[ResultTuple, ...]
    joins: tuple[tuple[int, int, str], ...]
    snapshot: bool = False

    def to_dict(self) -> dict[str, Any]:
        """The JSON form as plain objects."""
        shown: dict[str, Any] = {
            "op": self.op,
            "query": self.query,
            "id": self.id,
            "start": self.start,
            "end": self.end,
            "network": self.network,
            "tuples": [
                {"relation": t.relation, "id": t.id, "keywords": list(t.keywords), "row": t.row}
                for t in self.tuples
            ],
            "joins": [list(join) for join in self.joins],
        }
        if self.snapshot:
            shown["snapshot"] = True
        return shown

    def to_json(self) -> bytes:
        return orjson.dumps(self.to_dict())

    @classmethod
    def from_json(cls, line: bytes | str) -> Result:
        """Inverse of ``to_json``; for input that skws wrote itself."""
        shown = orjson.loads(line)
        shown["tuples"] = tuple(
            ResultTuple(t["relation"], t["id"], tuple(t["keywords"]), t["row"]) for t in shown["tuples"]
        )
        shown["joins"] = tuple((left, right, name) for left, right, name in shown["joins"])
        return cls(**shown)
