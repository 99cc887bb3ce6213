"""The operator of kinds that give each query an evaluator of its own."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence

from skws.data.batch import RecordBatch
from skws.data.record import Record
from skws.keywords.plan import Plan
from skws.queries.evaluator import Counts, Evaluator, Load, OrderedBatch
from skws.queries.partitioning import Part
from skws.queries.stream_state import StreamState
from skws.results.model import LiveResult
from skws.spec.query import Standing
from skws.spec.stream import Stream
from skws_mesh.columnar.operators import OperatorCounts
from skws_schema.evolution import SchemaChange
from skws_schema.memory import memory_checked
from skws_windows.window import Window


class SeparateQueries:
    """Evaluators of one kind by the names of their queries; of a query without a part here there is none."""

    adding_needs_log = True

    def __init__(self, kind: SeparateKind, state: StreamState) -> None:
        self.evaluators: dict[str, Evaluator] = {}
        self._kind = kind
        self._state = state

    @property
    def keeps(self) -> set[Window]:
        return {kept for each in self.evaluators.values() if (kept := each.keeps) is not None}

    @property
    def waits(self) -> bool:
        each_waits = any(each.waits for each in self.evaluators.values())
        return bool(self.evaluators) and (self._state.order.waits or each_waits)

    def load_tables(self, records: Sequence[Record]) -> list[LiveResult]:
        found: list[LiveResult] = []
        for evaluator in self.evaluators.values():
            evaluator.load_tables(records)
            found += evaluator.begin(())
        return found

    def add(self, standing: Standing) -> list[LiveResult]:
        evaluator = self._new(standing)
        if evaluator is None:
            return []
        found = list(memory_checked(evaluator.begin(self._state.logged_in_order())))
        self.evaluators[standing.name] = evaluator
        return found

    def remove(self, standing: Standing) -> None:
        self.evaluators.pop(standing.name, None)

    def process(
        self,
        accepted: RecordBatch,  # noqa: ARG002 - evaluators get the stream in order
        arrived: OrderedBatch,
        *,
        replayed: bool,
    ) -> dict[str, Iterable[LiveResult]]:
        if not len(arrived.batch):
            return {}
        return {name: each.take(arrived) for name, each in self._taking(replayed=replayed)}

    def finish(self, *, replayed: bool) -> dict[str, Iterable[LiveResult]]:
        return {name: each.end() for name, each in self._taking(replayed=replayed)}

    def change_schema(
        self,
        change: SchemaChange,  # noqa: ARG002 - evaluators are made anew
        text: str,  # noqa: ARG002
        standing: Iterable[Standing],
    ) -> dict[str, list[LiveResult]]:
        return {one.name: self._remade(one) for one in standing}

    def seek(self) -> None:
        """Evaluators find their place in what they are given."""

    def snapshot(self) -> dict[str, bytes]:
        return {name: each.snapshot() for name, each in self.evaluators.items() if each.keeps is None}

    def restore(self, states: Mapping[str, bytes], standing: Iterable[Standing]) -> None:  # noqa: ARG002
        for name, state in states.items():
            if name in self.evaluators:
                self.evaluators[name].restore(state)

    def load(self) -> Load:
        return Load.together([each.load() for each in self.evaluators.values()])

    def counts(self) -> list[Counts]:
        return [each.counts for each in self.evaluators.values()]

    def waiting(self) -> OperatorCounts:
        return []

    def probes(self) -> OperatorCounts:
        return []

    def _taking(self, *, replayed: bool) -> list[tuple[str, Evaluator]]:
        """What keeps its own state does not need to see the log again."""
        return [
            (name, each) for name, each in self.evaluators.items() if not replayed or each.keeps is not None
        ]

    def _remade(self, standing: Standing) -> list[LiveResult]:
        """Have a query go on with an evaluator made anew; what it has found before is not told again."""
        former = self.evaluators.pop(standing.name, None)
        evaluator = self._new(standing)
        if evaluator is None:
            return []
        self.evaluators[standing.name] = evaluator
        if evaluator.keeps is not None:
            for _ in evaluator.begin(self._state.logged_in_order()):
                pass
        return [] if former is None else list(evaluator.take_over(former))

    def _new(self, standing: Standing) -> Evaluator | None:
        evaluator = self._kind.evaluator(standing, self._state.stream, self._state.share)
        if evaluator is not None:
            evaluator.load_tables(self._state.tables)
        return evaluator


class SeparateKind(ABC):
    """A kind whose queries have evaluators of their own; one a session."""

    @abstractmethod
    def check(self, standing: Standing, stream: Stream) -> str:
        """As ``QueryKind``."""

    @abstractmethod
    def check_change(self, standing: Standing, before: Stream, after: Stream) -> None:
        """As ``QueryKind``."""

    @abstractmethod
    def window(self, standing: Standing, stream: Stream) -> Window:
        """As ``QueryKind``."""

    @abstractmethod
    def evaluator(self, standing: Standing, stream: Stream, share: Part) -> Evaluator | None:
        """For a query that was checked; None if nothing of it belongs to the share."""

    def plan(self, standing: Standing, stream: Stream) -> Plan | None:  # noqa: ARG002 - not of keywords
        return None

    def operator(self, state: StreamState) -> SeparateQueries:
        return SeparateQueries(self, state)
