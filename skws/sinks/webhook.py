"""Results posted to a web hook or program, with retries; undelivered ones go to a file of dead letters."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

import orjson

from skws.results.model import LiveResult
from skws.sinks.base import NONE, Marks, Run, SinkError
from skws.sinks.files import AppendedFile
from skws.sinks.http import Outcome
from skws_schema.errors import UsageError
from skws_schema.plural import counted

_FIRST_PAUSE: Final = 0.5
_LONGEST_PAUSE: Final = 30.0
_ALL: Final = 1 << 31  # more parts than a batch has
PROGRAM_SECONDS: Final = 60.0
_SHOWN: Final = 200  # characters of a program's error output in a message


@dataclass(frozen=True, slots=True)
class Delivery:
    """``attempts`` of each request; ``most``: results in one.

    ``letters``: the file for undelivered results, None to fail instead.
    """

    attempts: int = 8
    most: int = 100
    letters: Path | None = None


class Receiver(Protocol):
    """Takes posts: a web address or a program. ``shown`` has no password in it."""

    @property
    def shown(self) -> str: ...

    def post(self, body: bytes, key: str) -> Outcome:
        """One attempt; ``key`` is the same each time."""

    def close(self) -> None: ...


class WebhookSink:
    """Posts ``{"run", "batch", "part", "results"}``, with the same ``Idempotency-Key`` at each attempt.

    A post that a broken run did not finish is repeated with the same key.
    """

    every = 1.0

    def __init__(self, endpoint: Receiver, delivery: Delivery) -> None:
        self._endpoint = endpoint
        self._delivery = delivery
        self._letters: AppendedFile | None = None
        self._last = NONE

    @property
    def name(self) -> str:
        return self._endpoint.shown

    def open(self, run: Run) -> None:
        self._run = run
        self._marks = Marks(run, self.name)
        kept = self._marks.read()
        self._done: tuple[int, int] = kept.get("batch", NONE), kept.get("part", NONE)
        if self._delivery.letters is not None:
            self._letters = AppendedFile(self._delivery.letters, kept.get("letters"), run.tell)
            if kept.get("letters") != self._letters.size:
                self._mark(*self._done)

    def write(self, batch: int, results: Sequence[LiveResult]) -> None:
        most = self._delivery.most
        for part, first in enumerate(range(0, len(results), most)):
            if (batch, part) <= self._done:
                continue
            self._post(batch, part, results[first : first + most])
            self._mark(batch, part, durable=False)
        self._last = batch

    def flush(self) -> None:
        if (self._last, _ALL) > self._done:
            self._mark(self._last, _ALL)

    def close(self) -> None:
        self._endpoint.close()
        if self._letters is not None:
            self._letters.close()

    def _mark(self, batch: int, part: int, *, durable: bool = True) -> None:
        """Note that a part is posted, or in the dead letters: a start cuts them off after this length."""
        length = {} if self._letters is None else {"letters": self._letters.sync()}
        self._marks.keep(batch, durable=durable, part=part, **length)
        self._done = batch, part

    def _post(self, batch: int, part: int, results: Sequence[LiveResult]) -> None:
        shown = [result.to_dict() for result in results]
        body = orjson.dumps({"run": self._run.id, "batch": batch, "part": part, "results": shown})
        pause = _FIRST_PAUSE
        for attempt in range(1, self._delivery.attempts + 1):
            outcome = self._endpoint.post(body, f"{self._run.id}-{batch}-{part}")
            if outcome.taken:
                return
            if outcome.final or attempt == self._delivery.attempts:
                break
            self._run.tell(f"{self.name}: {outcome.reason}; trying again (attempt {attempt})")
            if not self._run.wait(max(pause, min(outcome.after, _LONGEST_PAUSE))):
                break
            pause = min(2 * pause, _LONGEST_PAUSE)
        self._give_up(results, outcome)

    def _give_up(self, results: Sequence[LiveResult], outcome: Outcome) -> None:
        if self._letters is None:
            raise SinkError(
                f"{self.name}: {outcome.reason}; {counted(len(results), 'result')} not delivered"
                " (add #letters=FILE to the address to put such into a file and go on)"
            )
        self._run.tell(f"{self.name}: {outcome.reason}; {counted(len(results), 'result')} put aside")
        letters = ({"reason": outcome.reason, "result": result.to_dict()} for result in results)
        self._letters.write(b"".join(orjson.dumps(letter) + b"\n" for letter in letters))


class Program:
    """A program that is started for each post, with JSON on its standard input.

    Its command line is split as by a shell, but no shell runs it. Raises UsageError if it cannot be split.

    Exit code 0 takes a post; anything else, or more than a minute, does not.
    The environment has ``SKWS_KEY``, the same each time a post is tried.
    """

    def __init__(self, text: str) -> None:
        try:
            self._words = shlex.split(text)
        except ValueError as error:
            raise UsageError(f"command {text!r}: {error}") from None
        if not self._words:
            raise UsageError("command: expected a program and its arguments")
        self.shown = f"command:{self._words[0]}"

    def post(self, body: bytes, key: str) -> Outcome:
        """One attempt."""
        environment = {**os.environ, "SKWS_KEY": key}
        try:
            # A session of its own: its children end with it, and Ctrl-C does not reach it.
            process = subprocess.Popen(  # noqa: S603 - the user's own command; results are its input alone
                self._words,
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                env=environment,
                start_new_session=True,
            )
        except OSError as error:
            return Outcome(taken=False, reason=error.strerror or str(error), final=True)
        with process:
            try:
                _, errors = process.communicate(body, timeout=PROGRAM_SECONDS)
            except subprocess.TimeoutExpired:
                return Outcome(taken=False, reason=f"did not end within {PROGRAM_SECONDS:g} s")
            finally:
                if process.poll() is None:
                    os.killpg(process.pid, signal.SIGKILL)
        if not process.returncode:
            return Outcome(taken=True)
        said = errors.decode(errors="replace").strip()[-_SHOWN:]
        return Outcome(taken=False, reason=f"ended with {process.returncode}" + (f": {said}" if said else ""))

    def close(self) -> None:
        """Nothing is kept open."""
