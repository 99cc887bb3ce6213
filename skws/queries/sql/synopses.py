"""What standing queries share that are answered by synopses: a state of constant size, whole on one shard."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import Any, Final

from skws.data.record import Record
from skws.queries.evaluator import Counting, Evaluator, Load, OrderedBatch, check_stays
from skws.queries.partitioning import Part
from skws.queries.separate import SeparateKind
from skws.results.model import LiveResult
from skws.spec.query import Standing
from skws.spec.stream import Stream
from skws_windows.window import Unbounded, Window


class StandingSynopses(Counting, ABC):
    """What the tuples of one time add is told when a later time has begun."""

    keeps: Final = None

    @abstractmethod
    def load_tables(self, records: Iterable[Record]) -> None:
        """The static tables, before the stream."""

    def begin(self, past: Iterable[OrderedBatch]) -> Iterable[LiveResult]:  # noqa: ARG002 - it is not remembered
        """It tells of what comes from now on."""
        return ()

    @abstractmethod
    def take(self, arrived: OrderedBatch) -> Iterable[LiveResult]:
        """Raises BadRecordsError for what the verdict excludes."""

    @property
    @abstractmethod
    def waits(self) -> bool: ...

    @abstractmethod
    def end(self) -> Iterable[LiveResult]:
        """What the last tuples add, as no more of their time will come."""

    def take_over(self, former: Evaluator) -> Iterable[LiveResult]:
        """With the state of the former."""
        self.restore(former.snapshot())
        return ()

    def load(self) -> Load:
        return Load(waiting=self._entries)

    def snapshot(self) -> bytes:
        return json.dumps(self._state(), separators=(",", ":")).encode()  # counters may have over 64 bits

    def restore(self, state: bytes) -> None:
        self._go_on(json.loads(state))

    @property
    @abstractmethod
    def _entries(self) -> int:
        """What is in the synopses."""

    @abstractmethod
    def _state(self) -> Any:
        """All that it holds besides tables, as JSON."""

    @abstractmethod
    def _go_on(self, state: Any) -> None:
        """Inverse of ``_state``."""


class SynopsesKind(SeparateKind):
    """A query is answered as a whole by one shard."""

    def window(self, standing: Standing, stream: Stream) -> Window:  # noqa: ARG002 - nothing expires
        return Unbounded()

    @abstractmethod
    def reads(self, standing: Standing, stream: Stream) -> Iterable[str]:
        """The relations that a query is over."""

    @abstractmethod
    def whole(self, standing: Standing, stream: Stream) -> StandingSynopses:
        """What answers it."""

    def check_change(self, standing: Standing, before: Stream, after: Stream) -> None:
        """Its state goes on: it is of relations that stay."""
        check_stays(self.reads(standing, after), before.schema, after.schema)

    def evaluator(self, standing: Standing, stream: Stream, share: Part) -> StandingSynopses | None:
        return self.whole(standing, stream) if share.whole or share.owns(standing.name) else None
