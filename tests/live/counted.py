"""A kind of query for tests that keeps its own state: it tells of every n-th tuple of the stream."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import pytest

from schema.errors import UsageError
from skws.live import kinds
from skws.live.evaluator import Arrived, Evaluator, Load
from skws.live.share import Share
from skws.live.standing import Standing
from skws.live.stream import Stream
from skws.pattern_search import PatternResult
from skws.records import Record


class Counted:
    """What it holds cannot be made from the log: how many tuples there were, and the sum of their times."""

    keeps = None

    def __init__(self, text: str) -> None:
        self._text = text
        self._every = int(text)
        self._seen = self._sum = 0

    def load_tables(self, records: Sequence[Record]) -> None:
        """Counts the stream alone."""

    def begin(self, past: Iterable[Arrived]) -> Iterable[PatternResult]:
        return ()

    def take(self, arrived: Arrived) -> Iterable[PatternResult]:
        position = arrived.position
        for record in arrived.batch.records():
            if record.delete:
                continue
            self._seen += 1
            self._sum += record.time
            if self._seen % self._every == 0:
                identity = f"{self._seen}:{self._sum}:{position}"
                yield PatternResult(self._text, identity, record.time / 1_000_000, None, ())
            position += 1

    waits = False

    def succeed(self, former: Evaluator) -> Iterable[PatternResult]:
        self.restore(former.snapshot())
        return ()

    def load(self) -> Load:
        return Load()

    def snapshot(self) -> bytes:
        return f"{self._seen} {self._sum}".encode()

    def restore(self, state: bytes) -> None:
        self._seen, self._sum = map(int, state.split())


class CountedKind:
    def check(self, standing: Standing, stream: Stream) -> None:
        if not standing.query.isdecimal():
            raise UsageError(f"{standing.query}: expected a number")

    def check_change(self, standing: Standing, before: Stream, after: Stream) -> None:
        """It counts what there is."""

    def evaluator(self, standing: Standing, stream: Stream, share: Share) -> Counted | None:
        return Counted(standing.query) if share.owns(standing.name) else None


def counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the kind known."""
    monkeypatch.setitem(kinds.KINDS, "counted", CountedKind)
