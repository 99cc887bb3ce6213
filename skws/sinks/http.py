"""A web address that takes posts, over one kept-alive connection."""

from __future__ import annotations

import base64
from contextlib import suppress
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection
from socket import SHUT_RDWR, socket
from threading import Thread
from typing import Final
from urllib.parse import unquote, urlsplit

from skws import __version__
from skws.sources.feed import redacted
from skws_schema.errors import UsageError

SECONDS: Final = 10.0
_MOST: Final = 1 << 16  # bytes of an answer
_REFUSED: Final = range(400, 500)
_AGAIN: Final = frozenset({408, 425, 429})


@dataclass(frozen=True, slots=True)
class Outcome:
    """``final``: a retry cannot help. ``after``: the seconds to wait that the server asks for."""

    taken: bool
    reason: str = ""
    final: bool = False
    after: float = 0.0


class Endpoint:
    """An ``http`` or ``https`` URL. Raises UsageError for any other."""

    def __init__(self, url: str) -> None:
        self.shown = redacted(url)
        try:
            parts = urlsplit(url)
            port = parts.port
        except ValueError:
            raise UsageError(f"{self.shown}: cannot be understood (expected https://HOST/PATH)") from None
        if parts.scheme not in {"http", "https"} or not parts.hostname:
            raise UsageError(f"{self.shown}: cannot be understood (expected https://HOST/PATH)")
        self._address = HTTPSConnection if parts.scheme == "https" else HTTPConnection, parts.hostname, port
        self._connection = self._connected()
        self._path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        self._headers = {"Content-Type": "application/json", "User-Agent": f"skws/{__version__}"}
        if parts.username is not None:
            pair = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
            self._headers["Authorization"] = "Basic " + base64.b64encode(pair.encode()).decode()

    def post(self, body: bytes, key: str) -> Outcome:
        """One attempt, of SECONDS at most; redirections are not followed."""
        exchange = _Exchange(self._connection, self._path, body, {**self._headers, "Idempotency-Key": key})
        exchange.start()
        exchange.join(SECONDS)
        outcome = exchange.outcome  # read first: severed headers look as if they had ended
        if exchange.is_alive():
            exchange.sever()
            self._connection = self._connected()
        return outcome or Outcome(taken=False, reason=f"no answer within {SECONDS:g} seconds")

    def close(self) -> None:
        self._connection.close()

    def _connected(self) -> HTTPConnection:
        kind, host, port = self._address
        return kind(host, port, timeout=SECONDS)


class _Exchange(Thread):
    """A request and its answer in a thread, so that the caller can stop waiting.

    A socket's time-out is not enough: it applies to each piece of an answer and each address of a name.
    """

    def __init__(self, connection: HTTPConnection, path: str, body: bytes, headers: dict[str, str]) -> None:
        super().__init__(daemon=True)
        self.outcome: Outcome | None = None
        self._connection = connection
        self._request = path, body, headers

    def run(self) -> None:
        path, body, headers = self._request
        try:
            self._connection.request("POST", path, body, headers)
            answer = self._connection.getresponse()
        except (OSError, HTTPException, ValueError) as error:
            self._connection.close()
            self.outcome = Outcome(taken=False, reason=str(error) or type(error).__name__)
            return
        self.outcome = _outcome(answer)
        try:
            if answer.length is None or answer.length > _MOST:
                self._connection.close()  # only its status matters; the rest may never end
            else:
                answer.read()
        except (OSError, HTTPException, ValueError):
            self._connection.close()

    def sever(self) -> None:
        """End the exchange soon."""
        opened = self._connection.sock
        if opened is not None:
            with suppress(OSError):  # it may have ended by itself
                # Not the method of a TLS socket: it discards the object that another thread reads with.
                socket.shutdown(opened, SHUT_RDWR)


def _outcome(answer: HTTPResponse) -> Outcome:
    if answer.status // 100 == 2:
        return Outcome(taken=True)
    final = answer.status not in _AGAIN and (answer.status in _REFUSED or answer.status < 400)
    after = answer.getheader("Retry-After") or ""
    return Outcome(
        taken=False,
        reason=f"answered {answer.status} {answer.reason}",
        final=final,
        after=float(after) if after.isdecimal() else 0.0,
    )
