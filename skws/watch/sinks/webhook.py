"""Results posted to a web hook or program, tried again until taken, or put into a file of dead letters."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

import orjson

from skws.results.model import LiveResult
from skws.watch.sinks.appended import AppendedFile
from skws.watch.sinks.base import NONE, Run, SinkError
from skws.watch.sinks.http import Outcome
from skws.watch.sinks.marks import Marks
from skws.wording import counted

_FIRST_PAUSE: Final = 0.5
_LONGEST_PAUSE: Final = 30.0
_ALL: Final = 1 << 31  # more parts than a batch has


@dataclass(frozen=True, slots=True)
class Delivery:
    """``attempts``: how often a request is tried; ``most``: results in one.

    ``letters``: the file for what was not taken, None to fail instead.
    """

    attempts: int = 8
    most: int = 100
    letters: Path | None = None


class Receiver(Protocol):
    """Whoever takes posts: a web address, a program. ``shown`` has no password in it."""

    @property
    def shown(self) -> str: ...

    def post(self, body: bytes, key: str) -> Outcome:
        """One attempt; ``key`` is the same each time."""

    def close(self) -> None: ...


class WebhookSink:
    """Posts ``{"run", "batch", "part", "results"}``; ``Idempotency-Key`` is the same each time it is tried.

    What a broken run was just posting is posted once more, with the same key.
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
        """A part is posted, or among the letters: what is behind their length now is cut off at a start."""
        length = {} if self._letters is None else {"letters": self._letters.sync()}
        self._marks.keep(batch, durable=durable, part=part, **length)
        self._done = batch, part

    def _post(self, batch: int, part: int, results: Sequence[LiveResult]) -> None:
        told = [result.to_dict() for result in results]
        body = orjson.dumps({"run": self._run.id, "batch": batch, "part": part, "results": told})
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
