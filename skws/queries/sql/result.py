"""Results of SQL and of selected patterns, and their JSON form, which consumers depend on."""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import blake2b
from typing import Any, NamedTuple

import orjson

from skws.results.model import JsonRow, Op, ResultTuple, dumped
from skws_bounds.normal_form import Domain, Union
from skws_bounds.run import Output
from skws_schema.instants import iso


class Added(NamedTuple):
    """A row added by the tuples of one time: microseconds, values, and the number of times."""

    time: int
    values: Output
    times: int


def shown_row(union: Union, values: Output) -> JsonRow:
    """A row by names of columns; time stamps are ISO 8601 in UTC."""
    query = union.queries[0]
    shown = (
        iso(value) if term.domain is Domain.TIMESTAMP and value is not None else value
        for term, value in zip(query.output, values, strict=True)
    )
    return dict(zip(query.names, shown, strict=True))


@dataclass(frozen=True, slots=True)
class SqlResult:
    """A row added ``count`` times by the tuples of one time, ``start``, in seconds; it stands for a tuple."""

    query: str
    id: str
    start: float
    count: int
    tuples: tuple[ResultTuple, ...]
    op: Op = "+"
    end: None = None
    snapshot: bool = False

    @classmethod
    def of(cls, query: str, start: float, row: JsonRow, count: int) -> SqlResult:
        """Equal rows of one time are one result."""
        text = orjson.dumps([query, start, row])
        tuple_id = blake2b(text, digest_size=12).hexdigest()
        return cls(query, tuple_id, start, count, _row(tuple_id, row))

    def to_dict(self) -> dict[str, Any]:
        """The JSON form as plain objects."""
        (shown,) = self.tuples
        return {
            "op": self.op,
            "query": self.query,
            "id": self.id,
            "start": self.start,
            "end": self.end,
            "count": self.count,
            "tuples": [{"relation": shown.relation, "id": shown.id, "keywords": [], "row": shown.row}],
        }

    def to_json(self) -> bytes:
        return dumped(self.to_dict())

    @classmethod
    def from_dict(cls, shown: dict[str, Any]) -> SqlResult:
        """Inverse of ``to_dict``."""
        tuples = _row(shown["id"], shown["tuples"][0]["row"])
        return cls(shown["query"], shown["id"], shown["start"], shown["count"], tuples)


def _row(id: str, row: JsonRow) -> tuple[ResultTuple, ...]:  # noqa: A002 - of the result
    return (ResultTuple.given("row", id, (), row),)
