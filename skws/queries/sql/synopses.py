"""Evaluators that hold synopses: a state of constant size, whole on one shard."""

from __future__ import annotations

import json
from abc import abstractmethod
from collections.abc import Iterable
from typing import Any

from skws.queries.evaluator import Evaluator, Load
from skws.queries.operator import SeparateKind, check_stays
from skws.spec.query import Query
from skws.spec.stream import Stream
from skws_windows.window import Unbounded, Window


class SynopsesEvaluator(Evaluator):
    """Gives results of the stream from the query on; the log is not read."""

    def load(self) -> Load:
        return Load(waiting=self._entries)

    def snapshot(self) -> bytes:
        return json.dumps(self._state(), separators=(",", ":")).encode()  # counters may exceed 64 bits

    def restore(self, state: bytes) -> None:
        self._go_on(json.loads(state))

    @property
    @abstractmethod
    def _entries(self) -> int:
        """The number of entries in the synopses."""

    @abstractmethod
    def _state(self) -> Any:
        """All that the evaluator holds besides tables, as JSON."""

    @abstractmethod
    def _go_on(self, state: Any) -> None:
        """Inverse of ``_state``."""


class SynopsesKind(SeparateKind):
    """Queries in constant memory over a stream without a window."""

    def window(self, query: Query, stream: Stream) -> Window:  # noqa: ARG002 - nothing expires
        return Unbounded()

    @abstractmethod
    def reads(self, query: Query, stream: Stream) -> Iterable[str]:
        """The relations that a query reads."""

    def check_change(self, query: Query, before: Stream, after: Stream) -> None:
        """The state goes on if all relations of the query stay."""
        check_stays(self.reads(query, after), before.schema, after.schema)
