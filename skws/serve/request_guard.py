"""Checks every request before its route: host, origin, token, sizes; adds headers to all answers.

A page of another site can make a browser send requests here, and can rebind its own name to this machine. So
the Host header must name this server, the origin of a request must be this server, and no other site may read
an answer (there are no CORS headers). Cookies are ignored.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections import Counter
from collections.abc import Callable, Coroutine
from hmac import compare_digest
from typing import Annotated, Any, Final, TypeAlias
from urllib.parse import unquote_to_bytes

from fastapi import HTTPException, Request, Response
from fastapi.routing import APIRoute
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, WithJsonSchema, model_validator
from pydantic_core import PydanticCustomError
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from skws.serve.error_answers import error_body
from skws.serve.saved import MOST_NAME, MOST_TEXT
from skws.serve.server_options import Access
from skws_schema.errors import nearest, not_utf8, shown

MOST_BODY: Final = 16 << 20
_BODY_SECONDS: Final = 30.0
_OPEN: Final = ("/", "/docs", "/healthz")
_ONE_PART: Final = re.compile("/[^/]+/")
_PAGE: Final = "/page/"
"""Addresses without data, which need no token."""
_HEADERS: Final = (
    (
        b"content-security-policy",
        b"default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:;"
        b" base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    ),
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"cross-origin-opener-policy", b"same-origin"),
)


class RefusedError(Exception):
    """A request that no route handles."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.message = message


class Guard:
    """Middleware around all routes. ``on_error`` is called with unexpected errors."""

    def __init__(self, app: ASGIApp, access: Access, on_error: Callable[[Exception], None]) -> None:
        self._app = app
        self._access = access
        self._on_error = on_error

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        has_started = False
        head = scope["method"] == "HEAD"

        async def send_checked(message: Message) -> None:
            nonlocal has_started
            if message["type"] == "http.response.start":
                has_started = True
                header_names = {name for name, _ in message["headers"]}
                missing_headers = [(name, value) for name, value in _HEADERS if name not in header_names]
                message = {**message, "headers": [*message["headers"], *missing_headers]}
            elif head:
                return
            await send(message)

        try:
            self._check(scope)
            scope = _without_slash(scope)
            body = await _whole_body(scope, receive)
            if head:  # like a GET that ends after its head, since an event stream would continue
                scope, body = {**scope, "method": "GET"}, _receive_disconnect
            await self._app(scope, body, send_checked)
        except RefusedError as error:
            await _answer(send_checked, error.status, error.message)
        except Exception as error:
            self._on_error(error)
            if not has_started:
                await _answer(send_checked, 500, f"unexpected {type(error).__name__}")
        if head:
            await send({"type": "http.response.body", "body": b"", "more_body": False})

    def _check(self, scope: Scope) -> None:
        """Raises RefusedError."""
        headers: dict[bytes, bytes] = dict(scope["headers"])
        hosts = [value for name, value in scope["headers"] if name == b"host"]
        host = hosts[0].decode("latin-1") if len(hosts) == 1 else ""
        if not self._access.knows(host):
            raise RefusedError(
                421, "the Host header does not name this server (skws serve --name adds names)"
            )
        origin = headers.get(b"origin")
        if origin is not None and origin.decode("latin-1").partition("://")[2] != host:
            raise RefusedError(403, "requests from pages of other origins are refused")
        site = headers.get(b"sec-fetch-site", b"none")
        if site not in {b"none", b"same-origin"} and headers.get(b"sec-fetch-mode") != b"navigate":
            raise RefusedError(403, "requests from pages of other sites are refused")
        for name in ("raw_path", "query_string"):
            try:
                unquote_to_bytes(scope[name].replace(b"+", b" ")).decode()
            except UnicodeDecodeError:
                raise RefusedError(
                    400, f"the address {scope[name].decode('latin-1')}: expected UTF-8"
                ) from None
        path = scope["path"]
        if self._access.token is not None and path not in _OPEN and not path.startswith(_PAGE):
            self._check_token(headers.get(b"authorization", b""))

    def _check_token(self, header: bytes) -> None:
        scheme, _, token = header.partition(b" ")
        if scheme.lower() != b"bearer" or not token.strip():
            raise RefusedError(
                401, "expected the header Authorization: Bearer TOKEN, with the token of this server"
            )
        if not compare_digest(token.strip(), (self._access.token or "").encode()):
            raise RefusedError(401, "This token is wrong.")


def _without_slash(scope: Scope) -> Scope:
    """The request without the slash after a one-part path; not for a PUT, whose name may be missing."""
    path: str = scope["path"]
    if scope["method"] == "PUT" or not _ONE_PART.fullmatch(path):
        return scope
    return {**scope, "path": path[:-1], "raw_path": scope["raw_path"].removesuffix(b"/")}


async def _receive_disconnect() -> Message:
    """The message by which a server says that the client has disconnected."""
    return {"type": "http.disconnect"}


async def _whole_body(scope: Scope, receive: Receive) -> Receive:
    """A receiver with the whole body, which is read within limits. Raises RefusedError."""
    length = dict(scope["headers"]).get(b"content-length", b"0")
    if not length.isdigit() or int(length) > MOST_BODY:
        raise RefusedError(413, f"the body is too large: expected at most {MOST_BODY:,} bytes")
    chunks: list[bytes] = []
    size = 0
    try:
        async with asyncio.timeout(_BODY_SECONDS):
            while True:
                message = await receive()
                if message["type"] == "http.disconnect":
                    break
                chunks.append(message.get("body", b""))
                size += len(chunks[-1])
                if size > MOST_BODY:
                    raise RefusedError(413, f"the body is too large: expected at most {MOST_BODY:,} bytes")
                if not message.get("more_body", False):
                    break
    except TimeoutError:
        raise RefusedError(408, f"the body did not arrive within {_BODY_SECONDS:g} seconds") from None
    body: Message | None = {"type": "http.request", "body": b"".join(chunks), "more_body": False}

    async def receive_body() -> Message:
        nonlocal body
        if body is None:
            return await receive()
        message, body = body, None
        return message

    return receive_body


async def _answer(send: Send, status: int, text: str) -> None:
    body = error_body(text)
    headers: list[tuple[bytes, bytes]] = [
        (b"content-type", b"application/json"),
        (b"content-length", str(len(body)).encode()),
    ]
    if status == 401:
        headers.append((b"www-authenticate", b"Bearer"))
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


MOST_RESULTS: Final = 1_000
MOST_COMPLETIONS: Final = 50
MOST_ANSWER: Final = 32 << 20
"""The most bytes of the results of a search."""
MOST_SECONDS: Final = 30.0
MOST_SIZE: Final = 12
"""The most tuples of a result, since the number of candidate networks grows quickly with it."""
MOST_AT_ONCE: Final = 100_000
_NAME: Final[dict[str, Any]] = {
    "type": "string",
    "minLength": 1,
    "maxLength": MOST_NAME,
    "pattern": "^[^/]+$",
}
SavedName: TypeAlias = Annotated[str, WithJsonSchema(_NAME)]


def _as_integer(value: Any) -> Any:
    """A whole float as an integer, since JSON does not distinguish 8.0 from 8."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


Limit: TypeAlias = Annotated[int, Field(ge=1, le=MOST_RESULTS), BeforeValidator(_as_integer)]
Completions: TypeAlias = Annotated[int, Field(ge=1, le=MOST_COMPLETIONS), BeforeValidator(_as_integer)]
Size: TypeAlias = Annotated[int, Field(ge=1, le=MOST_SIZE), BeforeValidator(_as_integer)]
SavedSize: TypeAlias = Annotated[
    int, Field(ge=1, json_schema_extra={"maximum": MOST_SIZE}), BeforeValidator(_as_integer)
]
"""At most MOST_SIZE, or the server's own size, which a restart writes into its saved searches."""
Top: TypeAlias = Annotated[int, Field(ge=1), BeforeValidator(_as_integer)]


def _text_or_texts(value: Any) -> Any:
    """Checks both forms, and reports one fault."""
    texts = value if isinstance(value, list) else [value]
    if all(isinstance(text, str) for text in texts):
        return value
    fault = f"expected a text or an array of texts, got {shown(value)}"
    raise PydanticCustomError("texts", "{fault}", {"fault": fault})


Texts: TypeAlias = Annotated[str | list[str], BeforeValidator(_text_or_texts)]


def _described_saved(schema: dict[str, Any]) -> None:
    schema["oneOf"] = [{"required": [name]} for name in ("query", "pattern", "sql")]
    schema["example"] = {"query": "ada lamp", "owner": "ann", "every": "1 day"}


def _described_many(schema: dict[str, Any]) -> None:
    schema["properties"]["queries"]["propertyNames"] = _NAME
    schema["example"] = {"queries": {"lamps": {"query": "ada lamp"}, "oil": {"query": "oil lamp", "top": 3}}}


class _Body(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    @model_validator(mode="before")
    @classmethod
    def _of_known_fields(cls, value: Any) -> Any:
        model_fields = cls.model_fields
        unknown = [name for name in value if name not in model_fields] if isinstance(value, dict) else []
        if not unknown:
            return value
        name = unknown[0]
        alike = [field for field in model_fields if name and field.startswith(name.lower())][:1]
        hint = f"; did you mean {alike[0]}?" if alike else nearest(name, model_fields).replace("'", "")
        expected = hint or f"; expected: {', '.join(model_fields)}"
        raise PydanticCustomError("unknown_field", "{fault}", {"fault": f"unknown field {name}{expected}"})


class SearchBody(_Body):
    """A search among the live rows."""

    model_config = ConfigDict(json_schema_extra={"example": {"query": "ada lamp", "limit": 3}})
    query: str = Field(min_length=1, max_length=MOST_TEXT, description="Keywords, as in skws search.")
    limit: Limit = Field(20, description="The most results.")
    max_size: Size | None = Field(None, description="The most rows of a result.")
    rank: str = Field(
        "relevance",
        max_length=MOST_NAME,
        description="How results are scored: relevance, keywords, compact or recency.",
    )
    half_life: str | None = Field(None, max_length=MOST_NAME, description="Time in which freshness halves.")
    explain_score: bool = Field(False, description="Show the parts of each score.")
    time_limit: float = Field(5.0, gt=0, le=MOST_SECONDS, description="Seconds.")
    marks: bool = Field(False, description="Return the positions of keywords in texts.")


class CompleteBody(_Body):
    """A query as it is typed, up to the cursor."""

    model_config = ConfigDict(json_schema_extra={"example": {"query": "ada lam"}})
    query: str = Field(max_length=MOST_TEXT, description="Its last word is completed.")
    limit: Completions = Field(8, description="The most completions.")


class SavedBody(_Body):
    """A saved search: one of query, pattern and sql, and options as in a file of queries."""

    model_config = ConfigDict(json_schema_extra=_described_saved)
    query: str | None = Field(None, description="Keywords.")
    pattern: str | None = Field(None, description="A pattern, as in skws search --pattern.")
    sql: str | None = Field(None, description="SQL that needs only constant memory.")
    max_size: SavedSize | None = Field(None, description="The most rows of a result.")
    without: Texts | None = Field(None, description="Relations and joins to leave out.")
    rank: str | None = Field(None, description="The ranking of results.")
    half_life: str | None = Field(None, description="Time in which freshness halves.")
    explain_score: bool | None = Field(None, description="Show the parts of each score.")
    top: Top | None = Field(None, description="Only results that enter or leave the best.")
    group: bool | None = Field(None, description="With top: near-duplicates count as one.")
    append_only: bool | None = Field(None, description="With top: nothing is deleted.")
    window: str | None = Field(None, description="A window expression; with top, a window of its own.")
    owner: str = Field("", description="The owner of the search.")
    metadata: dict[str, Any] = Field(default_factory=dict, description="Returned with results.")
    every: str = Field("", description="Collect results and send them together, such as every '1 day'.")
    updates: bool = Field(False, description="True if digests include updates of results.")

    def request_fields(self) -> dict[str, Any]:
        """The fields that the request contains."""
        return self.model_dump(exclude_none=True, exclude_defaults=True)


class SavedBodies(_Body):
    """Saved searches by name."""

    model_config = ConfigDict(json_schema_extra=_described_many)
    queries: dict[str, SavedBody] = Field(max_length=MOST_AT_ONCE)


class StrictRoute(APIRoute):
    """A route that refuses unknown or duplicate parameters, and bodies that are not strict JSON."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        answer = super().get_route_handler()
        parameters = {parameter.alias for parameter in self.dependant.query_params}

        async def handle(request: Request) -> Response:
            for name, times in Counter(name for name, _ in request.query_params.multi_items()).items():
                if name not in parameters:
                    expected = ", ".join(sorted(parameters)) or "none"
                    raise HTTPException(422, f"{name}: unknown parameter; expected: {expected}")
                if times > 1:
                    raise HTTPException(422, f"{name}: the parameter occurs {times} times")
            kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
            if request.method in {"POST", "PUT"} and kind != "application/json":
                raise HTTPException(415, "expected a body of content type application/json")
            return await answer(_StrictRequest(request.scope, request.receive))

        return handle if self.include_in_schema else answer


class _StrictRequest(Request):
    """A request whose JSON has no duplicate keys and no invalid numbers."""

    async def json(self) -> Any:
        try:
            body = await self.body()
            text = body.decode(json.detect_encoding(body))
            return json.loads(text, object_pairs_hook=_unique, parse_constant=_no_json)
        except json.JSONDecodeError as error:
            column = min(error.pos + 1, len(text))
            reason = error.msg[0].lower() + error.msg[1:].replace("xpecting", "xpected")
            raise HTTPException(422, f"the body is not JSON: character {column:,}: {reason}") from None
        except UnicodeDecodeError as error:
            raise HTTPException(400, f"the body: {not_utf8(error)}") from None
        except RecursionError:
            raise HTTPException(422, "the body is nested too deeply") from None
        except ValueError:  # Python reads integers of up to 4,300 digits
            raise HTTPException(422, "the body: an integer has too many digits") from None


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    fields = dict(pairs)
    try:
        "".join(fields).encode()
    except UnicodeEncodeError:  # no answer could repeat it
        raise HTTPException(422, "the name of a field is not Unicode text") from None
    if len(fields) < len(pairs):
        name = next(name for name, times in Counter(name for name, _ in pairs).items() if times > 1)
        raise HTTPException(422, f"{name}: the field occurs twice")
    return fields


def _no_json(constant: str) -> Any:
    raise HTTPException(422, f"{constant} is not JSON")
