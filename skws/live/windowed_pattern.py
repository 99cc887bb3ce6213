"""A pattern over the windows of an expression, as a standing query: it keeps its own state."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

import orjson

from schema.evolve import nameable
from skws.live.evaluator import Arrived, Evaluator, Load
from skws.live.stream import Stream
from skws.pattern_search import PatternQuery, PatternResult
from skws.records import Record
from skws.windowing.pattern import WindowedPattern
from windows.window import ExpressionWindow


class StandingWindowedPattern:
    """Windows begin with the first record that comes after the query."""

    keeps: Final = None

    def __init__(self, query: PatternQuery, stream: Stream, window: ExpressionWindow) -> None:
        self._made_of = query, nameable(stream.schema), window
        self._pattern = WindowedPattern(*self._made_of)
        self._begun = False

    def load_tables(self, records: Sequence[Record]) -> None:
        """Takes no tables."""

    def begin(self, past: Iterable[Arrived]) -> Iterable[PatternResult]:  # noqa: ARG002 - protocol
        """Nothing: what windows held is over when they end."""
        return ()

    def take(self, arrived: Arrived) -> Iterable[PatternResult]:
        if not self._begun:
            self._pattern.begin_at(arrived.position)
            self._begun = True
        return self._pattern.process(arrived.batch)

    def end(self) -> Iterable[PatternResult]:
        """Windows that are open are not told."""
        return ()

    def succeed(self, former: Evaluator) -> Iterable[PatternResult]:
        """With the state of the former."""
        self.restore(former.snapshot())
        return ()

    def load(self) -> Load:
        return Load(self._pattern.live_tuples, self._pattern.runs, self._pattern.waiting)

    def snapshot(self) -> bytes:
        return orjson.dumps(self._pattern.state() if self._begun else None)

    def restore(self, state: bytes) -> None:
        held = orjson.loads(state)
        self._pattern = WindowedPattern(*self._made_of)
        self._begun = held is not None
        if held is not None:
            self._pattern.restore(held)
