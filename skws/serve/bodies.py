"""What requests bring: JSON and parameters. Unknown ones are refused: nothing that is typed is ignored."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Coroutine
from typing import Annotated, Any, Final, TypeAlias

from fastapi import HTTPException, Request, Response
from fastapi.routing import APIRoute
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, WithJsonSchema

from skws.serve.saved import MOST_NAME, MOST_TEXT

MOST_RESULTS: Final = 1_000
MOST_COMPLETIONS: Final = 50
MOST_ANSWER: Final = 32 << 20
"""Bytes of the results of a search."""
MOST_SECONDS: Final = 30.0
MOST_SIZE: Final = 12
"""Tuples of a result: the number of candidate networks grows quickly with it."""
MOST_AT_ONCE: Final = 100_000
_NAME: Final[dict[str, Any]] = {
    "type": "string",
    "minLength": 1,
    "maxLength": MOST_NAME,
    "pattern": "^[^/]+$",
}
SavedName: TypeAlias = Annotated[str, WithJsonSchema(_NAME)]


def _whole(given: Any) -> Any:
    """JSON does not tell 8.0 from 8."""
    return int(given) if isinstance(given, float) and given.is_integer() else given


Limit: TypeAlias = Annotated[int, Field(ge=1, le=MOST_RESULTS), BeforeValidator(_whole)]
Completions: TypeAlias = Annotated[int, Field(ge=1, le=MOST_COMPLETIONS), BeforeValidator(_whole)]
Size: TypeAlias = Annotated[int, Field(ge=1, le=MOST_SIZE), BeforeValidator(_whole)]
Top: TypeAlias = Annotated[int, Field(ge=1), BeforeValidator(_whole)]


def _described_saved(schema: dict[str, Any]) -> None:
    schema["oneOf"] = [{"required": [name]} for name in ("query", "pattern", "sql")]


def _described_many(schema: dict[str, Any]) -> None:
    schema["properties"]["queries"]["propertyNames"] = _NAME


class _Body(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


class Fault(BaseModel):
    """Every error."""

    error: str


class SearchBody(_Body):
    """A search among what is alive now."""

    query: str = Field(min_length=1, max_length=MOST_TEXT, description="Keywords, as in skws search.")
    limit: Limit = Field(20, description="The most results.")
    max_size: Size | None = Field(None, description="Most tuples of a result (T_max).")
    rank: str = Field("relevance", max_length=MOST_NAME, description="The ranking.")
    half_life: str | None = Field(None, max_length=MOST_NAME, description="Time in which freshness halves.")
    explain_score: bool = Field(False, description="Show the parts of each score.")
    time_limit: float = Field(5.0, gt=0, le=MOST_SECONDS, description="Seconds.")
    marks: bool = Field(False, description="Return the positions of keywords in texts.")


class CompleteBody(_Body):
    """A query as it is typed, up to the cursor."""

    query: str = Field(max_length=MOST_TEXT, description="Its last word is completed.")
    limit: Completions = Field(8, description="The most completions.")


class SavedBody(_Body):
    """A saved search: one of query, pattern and sql, and options as in a file of queries."""

    model_config = ConfigDict(json_schema_extra=_described_saved)
    query: str | None = Field(None, description="Keywords.")
    pattern: str | None = Field(None, description="A pattern, as in skws search --pattern.")
    sql: str | None = Field(None, description="SQL that needs only constant memory.")
    select: str | list[str] | None = Field(None, description="Attributes that matches of a pattern show.")
    max_size: Size | None = Field(None, description="Most tuples of a result (T_max).")
    without: str | list[str] | None = Field(None, description="Relations to leave out.")
    rank: str | None = Field(None, description="The ranking of results.")
    half_life: str | None = Field(None, description="Time in which freshness halves.")
    explain_score: bool | None = Field(None, description="Show the parts of each score.")
    top: Top | None = Field(None, description="Only results that enter or leave the best.")
    group: bool | None = Field(None, description="With top: near-duplicates count as one.")
    append_only: bool | None = Field(None, description="With top: nothing is deleted.")
    window: str | None = Field(None, description="A window expression; with top, a window of its own.")
    owner: str = Field("", description="Whose search it is.")
    metadata: dict[str, Any] = Field(default_factory=dict, description="Comes back with results.")
    every: str = Field("", description="Collect results and send them together, such as every '1 day'.")

    def told(self) -> dict[str, Any]:
        """What was given."""
        return self.model_dump(exclude_none=True, exclude_defaults=True)


class SavedBodies(_Body):
    """Saved searches by name."""

    model_config = ConfigDict(json_schema_extra=_described_many)
    queries: dict[str, SavedBody] = Field(max_length=MOST_AT_ONCE)


class StrictRoute(APIRoute):
    """A route that refuses unknown parameters, those that stand twice, and bodies that are no strict JSON."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        answer = super().get_route_handler()
        known = {each.alias for each in self.dependant.query_params}

        async def checked(request: Request) -> Response:
            for name, times in Counter(name for name, _ in request.query_params.multi_items()).items():
                if name not in known:
                    expected = ", ".join(sorted(known)) or "none"
                    raise HTTPException(422, f"{name}: no such parameter; expected: {expected}")
                if times > 1:
                    raise HTTPException(422, f"{name}: the parameter stands {times} times")
            kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
            if request.method in {"POST", "PUT"} and kind != "application/json":
                raise HTTPException(415, "expected a body of content type application/json")
            return await answer(_StrictRequest(request.scope, request.receive))

        return checked if self.include_in_schema else answer


class _StrictRequest(Request):
    """One whose JSON names each key once, and has no numbers that JSON has not."""

    async def json(self) -> Any:
        return json.loads(await self.body(), object_pairs_hook=_unique, parse_constant=_no_json)


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        name = next(name for name, times in Counter(name for name, _ in pairs).items() if times > 1)
        raise HTTPException(422, f"{name}: the field stands twice")
    return found


def _no_json(constant: str) -> Any:
    raise HTTPException(422, f"{constant} is no JSON")
