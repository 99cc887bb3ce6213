"""A web server for posts, as its client sees it: it may be unavailable, refuse posts, or lose its answers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Final
from unittest.mock import patch

import orjson

from skws.sinks import webhook
from tests.sim.model import Line, check
from tests.sim.world import World

URL: Final = "http://hook/results"
MOST: Final = 2  # results in one post
ATTEMPTS: Final = 3
_BUSY: Final = 503
_WRONG: Final = 400
Part = tuple[int, int]
"""The number of a micro-batch, and that of one of its posts."""


class Answer:
    """Like ``http.client.HTTPResponse``."""

    length = 0

    def __init__(self, status: int) -> None:
        self.status = status
        self.reason = {_BUSY: "Service Unavailable", _WRONG: "Bad Request"}.get(status, "OK")

    def getheader(self, _name: str) -> str | None:
        return "2" if self.status == _BUSY else None

    def read(self) -> bytes:
        return b""


class Hook:
    """``accepted``: the content of each answered post by key, even if the answer was lost."""

    def __init__(self, world: World, *, fatal: bool) -> None:
        """``fatal``: the job ends if its results are refused."""
        self.world = world
        self._fatal = fatal
        self.accepted: dict[Part, bytes] = {}
        self._runs: set[str] = set()
        self._refusing = [0, _BUSY]  # the number of posts to refuse, and the status

    @contextmanager
    def installed(self) -> Iterator[None]:
        """A context in which posts arrive here, in the thread that sends them."""
        exchange = webhook._Exchange
        with (
            patch.object(webhook, "HTTPConnection", lambda *_, **__: self),
            patch.object(exchange, "start", exchange.run),
            patch.object(exchange, "join", lambda *_: None),
        ):
            yield

    def refuse(self, posts: int, draw: int) -> None:
        """Refuse the next few posts, temporarily or permanently."""
        self._refusing = [posts, _WRONG if draw % 3 == 0 else _BUSY]

    def relent(self) -> None:
        """Accept posts from now on."""
        self._refusing[0] = 0
        self.world.come_back()

    # --- like http.client.HTTPConnection ---------------------------------------------------------

    sock = None

    def request(self, _method: str, _path: str, body: bytes, headers: Mapping[str, str]) -> None:
        self.world.effect("ask", URL)
        if self.world.away:
            self.world.pass_time(500_000)
            self._note_rejection()
            raise ConnectionRefusedError("Connection refused")
        if self._refusing[0]:
            self._refusing[0] -= 1
            self.world.faults["refused"] += 1
            self._note_rejection()
            self._answer = Answer(self._refusing[1])
            return
        self._answer = Answer(200)
        self._accept(headers["Idempotency-Key"], body)

    def getresponse(self) -> Answer:
        if self.world.repeats():
            self._note_rejection()
            raise ConnectionResetError("Connection reset by peer")
        return self._answer

    def close(self) -> None:
        pass

    def _note_rejection(self) -> None:
        self.world.failed |= self._fatal

    def _accept(self, key: str, body: bytes) -> None:
        run, batch, part = key.rsplit("-", 2)
        self._runs.add(run)
        check(len(self._runs) == 1, "posts have keys of several runs", self._runs)
        position = int(batch), int(part)
        if position in self.accepted:
            check(self.accepted[position] == body, "two posts with one key differ", key)
            return
        check(
            position > max(self.accepted, default=(0, 0)),
            "a post is out of order:",
            key,
            "after",
            max(self.accepted, default=0),
        )
        self.accepted[position] = body

    # ---------------------------------------------------------------------------------------------

    def check(self, batches: Sequence[list[Line]], dead_letters: bytes) -> None:
        """Check that each result was posted or is a dead letter, in order.

        It may be both if the answer to its post was lost. As posts may be equal, several numbers of dead
        letters can precede a post.
        """
        unposted = [orjson.loads(line)["result"] for line in dead_letters.splitlines()]
        dead_letter_counts, posted_count = {0}, 0
        for number, lines in enumerate(batches, 1):
            for part, first in enumerate(range(0, len(lines), MOST)):
                results = [orjson.loads(line) for *_, line in lines[first : first + MOST]]
                body = self.accepted.get((number, part))
                counts_with_results = {
                    at + len(results)
                    for at in dead_letter_counts
                    if unposted[at : at + len(results)] == results
                }
                if body is None:
                    check(
                        bool(counts_with_results),
                        f"post {number}-{part} was neither accepted nor a dead letter",
                    )
                    dead_letter_counts = counts_with_results
                    continue
                posted_count += 1
                posted = orjson.loads(body)["results"]
                check(posted == results, f"post {number}-{part} has", posted, "and not", results)
                dead_letter_counts |= counts_with_results
        check(
            len(unposted) in dead_letter_counts,
            "there are dead letters of unknown results",
            unposted[max(dead_letter_counts) :],
        )
        later_posts = [position for position in self.accepted if position[0] > len(batches)]
        check(
            posted_count + len(later_posts) == len(self.accepted),
            "there are posts without results",
            sorted(self.accepted),
        )
