"""A kind of query for tests that keeps its own state: it tells of every n-th tuple of the stream."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import pytest

from skws.data.record import Record
from skws.queries import kinds
from skws.queries.evaluator import Counting, Evaluator, Load, OrderedBatch
from skws.queries.partitioning import Part
from skws.queries.patterns import PatternResult
from skws.queries.separate import SeparateKind
from skws.spec.query import Standing
from skws.spec.stream import Stream
from skws_schema.errors import UsageError
from skws_windows.window import Window


class Counted(Counting):
    """What it holds cannot be made from the log: how many tuples there were, and the sum of their times."""

    keeps = None

    def __init__(self, text: str) -> None:
        self._text = text
        self._every = int(text)
        self._seen = self._sum = 0

    def load_tables(self, records: Sequence[Record]) -> None:
        """Counts the stream alone."""

    def begin(self, past: Iterable[OrderedBatch]) -> Iterable[PatternResult]:
        return ()

    def take(self, arrived: OrderedBatch) -> Iterable[PatternResult]:
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

    def end(self) -> Iterable[PatternResult]:
        return ()

    def take_over(self, former: Evaluator) -> Iterable[PatternResult]:
        self.restore(former.snapshot())
        return ()

    def load(self) -> Load:
        return Load()

    def snapshot(self) -> bytes:
        return f"{self._seen} {self._sum}".encode()

    def restore(self, state: bytes) -> None:
        self._seen, self._sum = map(int, state.split())


class CountedKind(SeparateKind):
    def check(self, standing: Standing, stream: Stream) -> str:
        if not standing.query.isdecimal():
            raise UsageError(f"{standing.query}: expected a number")
        return ""

    def window(self, standing: Standing, stream: Stream) -> Window:
        return stream.window

    def check_change(self, standing: Standing, before: Stream, after: Stream) -> None:
        """It counts what there is."""

    def evaluator(self, standing: Standing, stream: Stream, share: Part) -> Counted | None:
        return Counted(standing.query) if share.owns(standing.name) else None


def counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the kind known."""
    monkeypatch.setitem(kinds.KINDS, "counted", CountedKind)
