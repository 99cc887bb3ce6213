"""The app in a browser: a server that checks every request for its page and its socket.

A page of any site can reach servers on this machine, by their addresses or by a name of its own that it
rebinds to them. So the Host header must name this server, a socket must come from this server's page (its
Origin), and both need the token that only the printed address contains. The token is in the path of the
socket and in no cookie, since a browser sends cookies to every port of a host.
"""

from __future__ import annotations

import logging
import re
import sys
from hmac import compare_digest
from secrets import token_urlsafe
from socket import gethostname
from typing import Any, Final
from urllib.parse import urlsplit

import aiohttp_jinja2
from aiohttp import web
from aiohttp.typedefs import Handler
from textual_serve import server as serving
from textual_serve.app_service import AppService
from textual_serve.server import Server

from skws.hosts import LOOPBACK, asks_for
from skws.sinks.text import visible

_ANY: Final = frozenset({"0.0.0.0", "::", ""})  # noqa: S104 - compared, not bound here
_HEADERS: Final = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": "frame-ancestors 'none'",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}
_FONT: Final = re.compile(r"<link[^>]*fonts\.googleapis\.com[^>]*>")
_REFUSED: Final = "Not allowed: open the whole address that skws printed, in a browser of its own.\n"


class _AwaitedService(AppService):
    """An app whose process has ended when it is stopped.

    Else the server may end first, and asyncio prints a traceback about the process that it was to watch.
    """

    async def stop(self) -> None:
        await super().stop()
        if self._process is not None:
            await self._process.wait()


serving.AppService = _AwaitedService  # type: ignore[attr-defined]  # the server takes it by this name


class GuardedServer(Server):
    """Serves a command to clients with the token. ``address``: the address to open, with the token."""

    def __init__(self, command: str, host: str, port: int) -> None:
        super().__init__(command, host=host, port=port, title="skws")
        self.token = token_urlsafe(32)
        self._names = {*LOOPBACK, gethostname().lower() if host in _ANY else host.lower()}

    @property
    def address(self) -> str:
        host = gethostname() if self.host in _ANY else self.host
        return f"http://{f'[{host}]' if ':' in host else host}:{self.port}/?token={self.token}"

    def initialize_logging(self) -> None:
        """Log only errors, a line each; requests contain the token and are not logged."""
        handler = logging.StreamHandler(sys.stderr)
        handler.setFormatter(_OneLine())
        for name in ("textual-serve", "aiohttp.server"):
            logger = logging.getLogger(name)
            logger.addHandler(handler)
            logger.setLevel(logging.WARNING)
            logger.propagate = False

    async def on_startup(self, app: web.Application) -> None:  # noqa: ARG002 - the name is given
        """Do not print the command: the address of its source may contain a password."""
        print(f"Serving on {self.address}\nCtrl+C quits", flush=True)

    async def handle_index(self, request: web.Request) -> web.Response:
        size = request.query.get("fontsize", "")
        context: dict[str, Any] = {
            "font_size": int(size) if size.isdecimal() and len(size) < 4 else 16,
            "app_websocket_url": f"ws://{request.host}/ws/{self.token}",
            "config": {"static": {"url": "/static/"}},
            "application": {"name": self.title},
        }
        page = aiohttp_jinja2.render_template("app_index.html", request, context)
        # The page of textual-serve loads a font from another site, and has no title.
        page.text = _FONT.sub("", page.text or "").replace("</head>", f"<title>{self.title}</title></head>")
        return page

    async def _make_app(self) -> web.Application:
        app = await super()._make_app()
        app.router.add_get("/ws/{token}", self.handle_websocket)
        app.middlewares.append(self._guard)
        return app

    @web.middleware
    async def _guard(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        if not self._may(request):
            return web.Response(status=403, text=_REFUSED, headers=_HEADERS)
        response = await handler(request)
        if not response.prepared:
            response.headers.update(_HEADERS)
        return response

    def _may(self, request: web.Request) -> bool:
        if not asks_for(request.headers.get("Host"), self._names | _reached(request, self.host)):
            return False
        if request.path.startswith("/ws"):
            return _same_origin(request) and self._knows(request.match_info.get("token", ""))
        if request.path == "/":
            return self._knows(request.query.get("token", ""))
        return True  # files of the page; a download has a key that cannot be guessed

    def _knows(self, token: str) -> bool:
        return compare_digest(token.encode(errors="replace"), self.token.encode())


def _reached(request: web.Request, host: str) -> set[str]:
    """The address that a request came to, for a server on all of them: no name can be rebound to it."""
    if host not in _ANY or request.transport is None:
        return set()
    return {str(request.transport.get_extra_info("sockname")[0]).removeprefix("::ffff:")}


def _same_origin(request: web.Request) -> bool:
    """True if a page of this server opens the socket, as browsers state in every such request."""
    try:
        origin = urlsplit(request.headers.get("Origin", ""))
    except ValueError:
        return False
    host = request.headers.get("Host", "")
    return origin.scheme in {"http", "https"} and origin.netloc.lower() == host.lower()


class _OneLine(logging.Formatter):
    """No traceback on the terminal."""

    def format(self, record: logging.LogRecord) -> str:
        error = record.exc_info[1] if record.exc_info else None
        why = f": {type(error).__name__}" if error is not None else ""
        return visible(f"skws: {record.getMessage()}{why}")
