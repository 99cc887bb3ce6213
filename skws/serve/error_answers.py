"""Answers to failed requests: JSON with a message that names the field and the expected value."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import orjson
from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic import BaseModel
from starlette.exceptions import HTTPException
from starlette.routing import Match

from skws_schema.budgets import TimeLimitError
from skws_schema.errors import MemoryBudgetError, NotReadyError, SkwsError, UsageError, shown

FAULTS: Final = {
    400: "The request cannot be understood.",
    401: "The token of the server is missing.",
    403: "The request comes from a page of another origin.",
    404: "Nothing has this name.",
    408: "The body did not arrive in time.",
    409: "The request conflicts with the current state.",
    413: "The body is too large.",
    415: "The body is not JSON.",
    421: "The Host header names another server.",
    422: "A field is missing, unknown or out of range.",
    503: "The job is starting or ending, or too many requests wait.",
    504: "The request took too long.",
    507: "The memory budget (--memory) is used up.",
}
_MOST_FAULTS: Final = 5
"""The most faults of one request that a message lists."""
_EXPECTED: Final = {
    "bool": "true or false",
    "dict": "a JSON object",
    "finite_number": "a finite number",
    "float": "a number",
    "greater_than": "more than {gt:g}",
    "greater_than_equal": "{ge:,} or more",
    "int": "an integer",
    "less_than_equal": "at most {le:,}",
    "list": "a JSON array",
    "model": "a JSON object",
    "model_attributes": "a JSON object",
    "string": "a text",
    "string_too_long": "at most {max_length:,} characters",
    "string_too_short": "{min_length:,} character or more",
    "string_unicode": "Unicode text",
    "too_long": "at most {max_length:,}",
}
"""Expected values by the kind of a fault, without "_type" or "_parsing"."""


class Fault(BaseModel):
    """The form of every error."""

    error: str


class Json(JSONResponse):
    """JSON from bytes, or encoded by orjson."""

    def render(self, content: Any) -> bytes:
        return content if isinstance(content, bytes) else orjson.dumps(content)


def error_body(text: str) -> bytes:
    """The JSON of every error."""
    return orjson.dumps({"error": text})


def handle_errors(app: FastAPI) -> None:
    """Answer every error with JSON."""

    async def invalid(_: Request, error: Exception) -> Response:
        assert isinstance(error, RequestValidationError)  # noqa: S101 - it is registered for these
        return Json(error_body("; ".join(map(_in_words, error.errors()[:_MOST_FAULTS]))), 422)

    async def http(request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)  # noqa: S101 - as above
        headers, text = dict(error.headers or {}), str(error.detail)
        path = request.url.path
        if error.status_code == 404 and text == "Not Found":  # no route matches
            text = f"there is nothing at {path}; /docs describes all addresses"
        if error.status_code == 405:  # the header only has the methods of the first route
            routes = [route for route in app.routes if route.matches(request.scope)[0] is not Match.NONE]
            methods = {m for route in routes for m in getattr(route, "methods", ())}
            if "GET" in methods:
                methods.add("HEAD")  # the guard turns HEAD into GET
            headers["Allow"] = ", ".join(sorted(methods))
            text = f"{request.method} {path}: expected {headers['Allow'].replace(', ', ' or ')}"
        return Json(error_body(text), error.status_code, headers)

    async def skws_error(_: Request, error: Exception) -> Response:
        return Json(
            error_body(str(error)), _status(error), {"retry-after": "1"} if _status(error) == 503 else {}
        )

    async def unforeseen(_: Request, error: Exception) -> Response:
        return Json(error_body(f"unexpected {type(error).__name__}"), 500)  # the guard logs details

    app.add_exception_handler(Exception, unforeseen)
    app.add_exception_handler(RequestValidationError, invalid)
    app.add_exception_handler(HTTPException, http)
    app.add_exception_handler(SkwsError, skws_error)


def _status(error: Exception) -> int:
    if isinstance(error, NotReadyError):
        return 503
    if isinstance(error, TimeLimitError):
        return 504
    if isinstance(error, MemoryBudgetError):
        return 507
    return 400 if isinstance(error, UsageError) else 500


def _in_words(error: Mapping[str, Any]) -> str:
    """The message of pydantic's fault: the field, the expected value and the actual one."""
    field = ".".join(map(str, error["loc"][1:])) or "the body"
    kind = error["type"].removesuffix("_type").removesuffix("_parsing")
    if kind == "missing":
        return f"{field} is missing"
    if kind == "unknown_field":
        return error["msg"] if field == "the body" else f"{field}: {error['msg']}"
    if kind not in _EXPECTED:
        return f"{field}: {error['msg']}"
    value = error["input"]
    size = f"{len(value):,}" if kind in {"string_too_long", "too_long"} else _as_json(value)
    return f"{field}: expected {_EXPECTED[kind].format_map(error.get('ctx', {}))}, got {size}"


def _as_json(value: object) -> str:
    """A value as JSON."""
    return orjson.dumps(value).decode() if value is None or isinstance(value, bool) else shown(value)
