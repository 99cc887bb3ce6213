"""Posts results to a web address or a program, with retries; undelivered ones go to a dead letter file."""

from __future__ import annotations

import base64
import errno
import os
import shlex
import signal
import subprocess
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection
from pathlib import Path
from socket import SHUT_RDWR, socket
from string import punctuation
from tempfile import TemporaryFile
from threading import Thread
from typing import Final, Protocol
from urllib.parse import quote, unquote, urlsplit

import orjson

from skws import __version__
from skws.results.result import LiveResult
from skws.sinks.base import NONE, PostingSink, SinkError, SinkProgress, SinkRun, digest
from skws.sinks.file_sinks import AppendedFile
from skws.sources.feed import redacted
from skws_schema.errors import UsageError, quantity, shown

_FIRST_PAUSE: Final = 0.5
_LONGEST_PAUSE: Final = 30.0
_ALL_PARTS: Final = 1 << 31  # more parts than a batch has
PROGRAM_SECONDS: Final = 60.0
_SCARCE: Final = {errno.EAGAIN, errno.ENOMEM, errno.EMFILE, errno.ENFILE, errno.ENOSPC}
"""Errors of a machine that has no memory, files or space left for another process, which may pass."""
_EXCERPT: Final = 200  # characters of a program's error output in a message
_PIECE: Final = 1 << 16  # bytes of it that are read at once
_LAST_SECONDS: Final = 1.0
"""How long the last error output of a program that has ended is waited for."""
SECONDS: Final = 10.0
_MOST: Final = 1 << 16  # bytes of an answer
_REFUSED_CODES: Final = range(400, 500)
_RETRY_CODES: Final = frozenset({408, 425, 429})


@dataclass(frozen=True, slots=True)
class PostOutcome:
    """``final``: a retry cannot help. ``after``: the seconds to wait, as requested by the server."""

    accepted: bool
    reason: str = ""
    final: bool = False
    after: float = 0.0


@dataclass(frozen=True, slots=True)
class Delivery:
    """The limits of posts. ``attempts``: the most attempts of a request. ``most``: the most results in it.

    ``dead_letters``: the file for undelivered results; None to fail instead.
    """

    attempts: int = 8
    most: int = 100
    dead_letters: Path | None = None


class Receiver(Protocol):
    """Receives posts: a web address or a program.

    ``shown`` contains no password. ``identity`` distinguishes all receivers, also by the hidden parts.
    """

    @property
    def shown(self) -> str: ...

    @property
    def identity(self) -> str: ...

    def post(self, body: bytes, key: str) -> PostOutcome:
        """Make one attempt; ``key`` is the same each time."""

    def close(self) -> None: ...


class WebhookSink(PostingSink):
    """Posts ``{"run", "batch", "part", "results"}``, with the same ``Idempotency-Key`` at each attempt.

    A post that an interrupted run did not finish is repeated with the same key.
    """

    def __init__(self, endpoint: Receiver, delivery: Delivery) -> None:
        super().__init__()
        self._endpoint = endpoint
        self.place = endpoint.identity  # keys of posts distinguish batches, not sinks
        self._delivery = delivery
        self._dead_letters: AppendedFile | None = None

    @property
    def name(self) -> str:
        return self._endpoint.shown

    def _opened(self, run: SinkRun) -> int:
        self._progress = SinkProgress(run, self._endpoint.identity)
        progress = self._progress.read()
        self._last_posted: tuple[int, int] = progress.get("batch", NONE), progress.get("part", NONE)
        # The parts of repeated batches must be those of the earlier process, whose address may have another.
        self._most: int | None = progress.get("most")
        if self._delivery.dead_letters is not None:
            self._dead_letters = AppendedFile(
                self._delivery.dead_letters, progress.get("letters", {}), run.tell
            )
            if progress.get("letters", {}).get("bytes") != self._dead_letters.start:
                self._mark(*self._last_posted)
        batch, part = self._last_posted
        return batch if part in {NONE, _ALL_PARTS} else batch - 1

    def _put(self, batch: int, results: Sequence[LiveResult]) -> None:
        most = self._most if self._run.repeating and self._most is not None else self._delivery.most
        if most != self._most:
            self._most = most
            self._mark(batch - 1, _ALL_PARTS)  # before the first post of such parts, which may be repeated
        for part, start in enumerate(range(0, len(results), most)):
            if (batch, part) > self._last_posted:
                part_results = results[start : start + most]
                self._post(batch, part, part_results, self._undelivered(part_results))
                self._mark(batch, part)

    def _keep(self, batch: int) -> None:
        self._mark(batch, _ALL_PARTS)

    def close(self) -> None:
        self._endpoint.close()
        if self._dead_letters is not None:
            self._dead_letters.close()

    def _mark(self, batch: int, part: int) -> None:
        """Record that a part is posted or in the dead letters, and the end of the dead letters."""
        mark = {} if self._dead_letters is None else {"letters": self._dead_letters.mark()}
        self._progress.keep(batch, part=part, most=self._most, **mark)
        self._last_posted = batch, part

    def _undelivered(self, results: Sequence[LiveResult]) -> list[LiveResult]:
        """The ``results`` that an interrupted run has already written to the dead letters."""
        if self._dead_letters is None or not self._run.repeating:
            return []
        by_letter = {_letter(result): result for result in results}
        missing_lines = set(self._dead_letters.take_up(list(by_letter), _REASON))
        return [result for line, result in by_letter.items() if line not in missing_lines]

    def _post(
        self, batch: int, part: int, results: Sequence[LiveResult], put_aside: Sequence[LiveResult]
    ) -> None:
        head = orjson.dumps({"run": self._run.id, "batch": batch, "part": part})
        body = head[:-1] + b',"results":[' + b",".join(result.to_json() for result in results) + b"]}"
        pause = _FIRST_PAUSE
        for attempt in range(1, self._delivery.attempts + 1):
            outcome = self._endpoint.post(body, f"{self._run.id}-{batch}-{part}")
            if outcome.accepted:
                if put_aside:
                    notice = f"{quantity(len(put_aside), 'result')} in {self._delivery.dead_letters}"
                    self._run.tell(f"{self.name}: posted after all: {notice}")
                return
            if outcome.final or attempt == self._delivery.attempts:
                break
            self._run.tell(f"{self.name}: {outcome.reason}; trying again (attempt {attempt})")
            if not self._run.wait(max(pause, min(outcome.after, _LONGEST_PAUSE))):
                break
            pause = min(2 * pause, _LONGEST_PAUSE)
        self._give_up([result for result in results if result not in put_aside], outcome)

    def _give_up(self, results: Sequence[LiveResult], outcome: PostOutcome) -> None:
        if self._dead_letters is None:
            raise SinkError(
                f"{self.name}: {outcome.reason}; {quantity(len(results), 'result')} not delivered"
                " (add #letters=FILE to the address to write such results to a file and continue)"
            )
        notice = f"{quantity(len(results), 'result')} written to {self._delivery.dead_letters}"
        self._run.tell(f"{self.name}: {outcome.reason}; {notice}")
        reason = orjson.dumps(outcome.reason) + b"}\n"
        self._dead_letters.write(b"".join(_letter(result) + reason for result in results))


_REASON: Final = b',"reason":'


def _letter(result: LiveResult) -> bytes:
    """A dead letter up to its reason."""
    return b'{"result":%b%b' % (result.to_json(), _REASON)


class Endpoint:
    """An ``http`` or ``https`` URL; an attempt takes ``seconds`` at most. Raises UsageError otherwise."""

    def __init__(self, url: str, seconds: float = SECONDS) -> None:
        self.shown = redacted(url)
        self.identity = f"{self.shown} {digest(url)}"
        self._seconds = seconds
        try:
            parts = urlsplit(url)
            port = parts.port
        except ValueError:
            raise UsageError(f"{self.shown}: not a valid address (expected https://HOST/PATH)") from None
        if parts.scheme not in {"http", "https"} or not parts.hostname:
            raise UsageError(f"{self.shown}: not a valid address (expected https://HOST/PATH)")
        self._address = HTTPSConnection if parts.scheme == "https" else HTTPConnection, parts.hostname, port
        self._connection = self._new_connection()
        path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        self._path = quote(path, safe=punctuation)  # the rest may be blanks, and letters beyond ASCII
        self._headers = {"Content-Type": "application/json", "User-Agent": f"skws/{__version__}"}
        if parts.username is not None:
            pair = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
            self._headers["Authorization"] = "Basic " + base64.b64encode(pair.encode()).decode()

    def post(self, body: bytes, key: str) -> PostOutcome:
        """Make one attempt; redirections are not followed."""
        exchange = _Exchange(self._connection, self._path, body, {**self._headers, "Idempotency-Key": key})
        exchange.start()
        exchange.join(self._seconds)
        outcome = exchange.outcome  # read first: headers that are cut off look complete
        if exchange.is_alive():
            exchange.sever()
            self._connection = self._new_connection()
        return outcome or PostOutcome(accepted=False, reason=f"no answer within {self._seconds:g} seconds")

    def close(self) -> None:
        self._connection.close()

    def _new_connection(self) -> HTTPConnection:
        kind, host, port = self._address
        return kind(host, port, timeout=self._seconds)


class _Exchange(Thread):
    """A request and its answer in a thread, so that the caller can stop waiting.

    A socket's time-out is not enough: it applies to each piece of an answer and each address of a name.
    """

    def __init__(self, connection: HTTPConnection, path: str, body: bytes, headers: dict[str, str]) -> None:
        super().__init__(daemon=True)
        self.outcome: PostOutcome | None = None
        self._connection = connection
        self._request = path, body, headers

    def run(self) -> None:
        path, body, headers = self._request
        try:
            self._connection.request("POST", path, body, headers)
            answer = self._connection.getresponse()
        except (OSError, HTTPException, ValueError) as error:
            self._connection.close()
            self.outcome = PostOutcome(accepted=False, reason=str(error) or type(error).__name__)
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
        """Shut the connection down, which ends the exchange."""
        sock = self._connection.sock
        if sock is not None:
            with suppress(OSError):  # it may have ended by itself
                # Not the method of a TLS socket, which discards the object from which another thread reads.
                socket.shutdown(sock, SHUT_RDWR)


def _outcome(answer: HTTPResponse) -> PostOutcome:
    if answer.status // 100 == 2:
        return PostOutcome(accepted=True)
    final = answer.status not in _RETRY_CODES and (answer.status in _REFUSED_CODES or answer.status < 400)
    after = answer.getheader("Retry-After") or ""
    return PostOutcome(
        accepted=False,
        reason=f"answered {answer.status} {answer.reason}",
        final=final,
        after=float(after) if after.isdecimal() else 0.0,
    )


class HookProgram:
    """A program that is started for each post, with JSON on its standard input.

    Its command line is split like a shell's, but runs without a shell. Raises UsageError if it cannot be
    split.

    A post is accepted if the program ends within ``seconds`` with exit code 0.
    The environment has ``SKWS_KEY``, the same for each attempt of a post.
    """

    def __init__(self, text: str, seconds: float = PROGRAM_SECONDS) -> None:
        self._seconds = seconds
        try:
            self._words = shlex.split(text)
        except ValueError as error:
            raise UsageError(f"command {shown(text)}: {error}") from None
        if not self._words:
            raise UsageError("command: expected a program and its arguments")
        self.shown = f"command:{self._words[0]}"
        self.identity = f"{self.shown} {digest(text)}"

    def post(self, body: bytes, key: str) -> PostOutcome:
        """Make one attempt."""
        environment = {**os.environ, "SKWS_KEY": key}
        try:
            with TemporaryFile() as file:  # a pipe would end early if this process were killed
                file.write(body)
                file.seek(0)
                # In a separate session, its children end with it, and Ctrl-C does not reach it.
                process = subprocess.Popen(  # noqa: S603 - the user's own command; results are its input alone
                    self._words,
                    stdin=file,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.PIPE,
                    env=environment,
                    start_new_session=True,
                )
        except OSError as error:
            final = error.errno not in _SCARCE
            return PostOutcome(accepted=False, reason=error.strerror or str(error), final=final)
        errors = _ErrorOutput(process)
        with process:
            try:
                errors.start()
                process.wait(self._seconds)
            except subprocess.TimeoutExpired:
                return PostOutcome(accepted=False, reason=f"did not end within {self._seconds:g} s")
            except RuntimeError as error:  # no thread is left
                return PostOutcome(accepted=False, reason=str(error))
            finally:
                if process.poll() is None:
                    os.killpg(process.pid, signal.SIGKILL)
        if not process.returncode:
            return PostOutcome(accepted=True)
        message = errors.end()
        return PostOutcome(
            accepted=False, reason=f"ended with {process.returncode}" + (f": {message}" if message else "")
        )

    def close(self) -> None:
        """Does nothing: no process runs between posts."""


class _ErrorOutput(Thread):
    """Reads the error output of a program in a thread, and remembers its end.

    A child that the program leaves behind may hold its error output open, and delays nothing.
    """

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        super().__init__(daemon=True)
        self._pipe, process.stderr = process.stderr, None
        self._text = b""

    def run(self) -> None:
        assert self._pipe is not None  # noqa: S101 - the program was started with it
        with self._pipe:
            while piece := os.read(self._pipe.fileno(), _PIECE):
                self._text = (self._text + piece)[-4 * _EXCERPT :]

    def end(self) -> str:
        """The last characters, once the program has ended."""
        self.join(_LAST_SECONDS)
        return self._text.decode(errors="replace").strip()[-_EXCERPT:]
