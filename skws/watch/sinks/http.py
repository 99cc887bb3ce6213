"""A web address that takes posts, over one connection that is kept."""

from __future__ import annotations

import base64
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from typing import Final
from urllib.parse import unquote, urlsplit

from schema.errors import UsageError
from skws import __version__
from skws.sources.redact import redacted

SECONDS: Final = 10.0
_MOST: Final = 1 << 16  # bytes of an answer
_REFUSED: Final = range(400, 500)
_AGAIN: Final = frozenset({408, 425, 429})


@dataclass(frozen=True, slots=True)
class Outcome:
    """``final``: trying again is of no use. ``after``: the seconds that the other side asks to wait."""

    taken: bool
    reason: str = ""
    final: bool = False
    after: float = 0.0


class Endpoint:
    """An ``http`` or ``https`` URL. Raises UsageError for what is none."""

    def __init__(self, url: str) -> None:
        self.shown = redacted(url)
        try:
            parts = urlsplit(url)
            port = parts.port
        except ValueError:
            raise UsageError(f"{self.shown}: cannot be understood (expected https://HOST/PATH)") from None
        if parts.scheme not in {"http", "https"} or not parts.hostname:
            raise UsageError(f"{self.shown}: cannot be understood (expected https://HOST/PATH)")
        kind = HTTPSConnection if parts.scheme == "https" else HTTPConnection
        self._connection = kind(parts.hostname, port, timeout=SECONDS)
        self._path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        self._headers = {"Content-Type": "application/json", "User-Agent": f"skws/{__version__}"}
        if parts.username is not None:
            pair = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
            self._headers["Authorization"] = "Basic " + base64.b64encode(pair.encode()).decode()

    def post(self, body: bytes, key: str) -> Outcome:
        """One attempt; redirections are not followed."""
        try:
            self._connection.request("POST", self._path, body, {**self._headers, "Idempotency-Key": key})
            answer = self._connection.getresponse()
            if answer.length is None or answer.length > _MOST:
                self._connection.close()  # its status is all that counts; the rest may never end
            else:
                answer.read()
        except (OSError, HTTPException) as error:
            self._connection.close()
            return Outcome(taken=False, reason=str(error) or type(error).__name__)
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

    def close(self) -> None:
        self._connection.close()
