"""What every request passes before a route sees it: host, origin, token, sizes; headers for all answers.

A page of another site can make a browser send requests here, and rebind its own name to this machine. So the
Host header must name this server, the origin of a request must be this server, and no answer may be read
from elsewhere (there are no CORS headers). Nothing is taken from cookies.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from hmac import compare_digest
from typing import Final
from urllib.parse import unquote_to_bytes

import orjson
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from skws.hosts import LOOPBACK, address_of, host_name

MOST_BODY: Final = 16 << 20
_BODY_SECONDS: Final = 30.0
_OPEN: Final = ("/", "/docs", "/healthz")
_PAGE: Final = "/page/"
"""What anyone may read, as it holds no data."""
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


@dataclass(frozen=True, slots=True)
class Access:
    """Who may ask. ``token``: None for everyone who reaches the server. ``names``: those of this server.

    ``addresses``: whether any address may stand in the Host header; a name could be rebound, an address not.
    """

    token: str | None = field(default=None, repr=False)
    names: frozenset[str] = LOOPBACK
    addresses: bool = False

    def knows(self, host: str) -> bool:
        """Whether a Host header names this server."""
        name = host_name(host)
        return name in self.names or (self.addresses and address_of(name) is not None)


class RefusedError(Exception):
    """A request that the routes do not see."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.message = message


class Guard:
    """Middleware around all routes. ``failed`` is told of errors that no route foresaw."""

    def __init__(self, app: ASGIApp, access: Access, failed: Callable[[Exception], None]) -> None:
        self._app = app
        self._access = access
        self._failed = failed

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        started = False

        async def sent(message: Message) -> None:
            nonlocal started
            if message["type"] == "http.response.start":
                started = True
                known = {name for name, _ in message["headers"]}
                more = [(name, value) for name, value in _HEADERS if name not in known]
                message = {**message, "headers": [*message["headers"], *more]}
            await send(message)

        try:
            self._check(scope)
            await self._app(scope, await _whole_body(scope, receive), sent)
        except RefusedError as error:
            await _answer(sent, error.status, error.message)
        except Exception as error:
            self._failed(error)
            if not started:
                await _answer(sent, 500, f"unexpected {type(error).__name__}")

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

    def _check_token(self, given: bytes) -> None:
        scheme, _, token = given.partition(b" ")
        expected = (self._access.token or "").encode()
        if scheme.lower() != b"bearer" or not compare_digest(token.strip(), expected):
            raise RefusedError(
                401, "expected the header Authorization: Bearer TOKEN, with the token of this server"
            )


async def _whole_body(scope: Scope, receive: Receive) -> Receive:
    """What gives the body at once, read within limits. Raises RefusedError."""
    length = dict(scope["headers"]).get(b"content-length", b"0")
    if not length.isdigit() or int(length) > MOST_BODY:
        raise RefusedError(413, f"the body is too large: expected at most {MOST_BODY:,} bytes")
    parts: list[bytes] = []
    size = 0
    try:
        async with asyncio.timeout(_BODY_SECONDS):
            while True:
                message = await receive()
                if message["type"] == "http.disconnect":
                    break
                parts.append(message.get("body", b""))
                size += len(parts[-1])
                if size > MOST_BODY:
                    raise RefusedError(413, f"the body is too large: expected at most {MOST_BODY:,} bytes")
                if not message.get("more_body", False):
                    break
    except TimeoutError:
        raise RefusedError(408, f"the body did not arrive within {_BODY_SECONDS:g} seconds") from None
    body: Message | None = {"type": "http.request", "body": b"".join(parts), "more_body": False}

    async def again() -> Message:
        nonlocal body
        if body is None:
            return await receive()
        given, body = body, None
        return given

    return again


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


def error_body(text: str) -> bytes:
    """The JSON of every error."""
    return orjson.dumps({"error": text})
