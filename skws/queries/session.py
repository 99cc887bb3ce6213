"""All queries of one stream: a micro-batch in, results of all of them out."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from skws.data.batch import RecordBatch
from skws.data.record import OnLate, Record, unheard
from skws.queries.changing import changed
from skws.queries.evaluator import Counts, Load, Operator
from skws.queries.keywords.kind import SHARED, KeywordKind, KeywordQueries
from skws.queries.kinds import kind_of
from skws.queries.order import Order, passed_over
from skws.queries.partitioning import WHOLE, Part
from skws.queries.results import in_order_of_time
from skws.queries.separate import SeparateQueries
from skws.queries.stream_state import Past, StreamState
from skws.results.model import LiveResult
from skws.spec.query import KEYWORDS, Standing
from skws.spec.stream import Stream
from skws_mesh.columnar.operators import OperatorCounts
from skws_schema.errors import UsageError, nearest
from skws_schema.evolution import SchemaChange
from skws_schema.memory import memory_checked
from skws_windows.window import Window

if TYPE_CHECKING:  # only who has a window expression loads what finds its windows
    from skws.queries.windowed.window_span import WindowSpan


class Session:
    """Answers queries of any kinds; ``share``: those results that belong to it.

    ``keywords``: False begins to hold live tuples with the first keyword query
    only: without one it would hold them for nothing. ``past`` gives
    the log, oldest first, to queries that are added in mid-stream.
    """

    def __init__(
        self,
        stream: Stream,
        share: Part = WHOLE,
        on_late: OnLate = unheard,
        *,
        keywords: bool = True,
        past: Past = tuple,
    ) -> None:
        self._state = StreamState(stream, share, Order(stream, on_late), past)
        self._standing: dict[str, Standing] = {}
        held = KeywordQueries(KeywordKind(), self._state)
        if keywords:
            held.begin()
        self.operators: dict[str, Operator] = {KEYWORDS: held}
        """By kind; those of which there was a query, and that of keywords."""

    @property
    def stream(self) -> Stream:
        """As it is read now."""
        return self._state.stream

    @property
    def position(self) -> int:
        """Of the next insertion in the stream."""
        return self._state.order.position

    @property
    def now(self) -> int:
        """How far ticks have come: microseconds, or those of a count window (``skws_windows.window``)."""
        return self._state.order.now

    @property
    def latest(self) -> int | None:
        """The latest event time."""
        return self._state.order.latest

    @property
    def waits(self) -> bool:
        """True if the end of the stream would give results, or let records go that wait for earlier ones."""
        return any(each.waits for each in self.operators.values())

    @property
    def keeps(self) -> set[Window]:
        """The windows that the log is kept for."""
        return {window for each in self.operators.values() for window in each.keeps}

    def load_tables(self, records: Sequence[Record]) -> list[LiveResult]:
        """Static tables, before the stream; gives what they alone lead to for the queries that are there.

        Those of queries that are added later come in their snapshots.
        """
        gone = self.stream.schema.evolution.removed_relations
        records = [record for record in records if record.relation not in gone]
        self._state.tables = [*self._state.tables, *records]
        return [result for each in self.operators.values() for result in each.load_tables(records)]

    def add(self, standing: Standing) -> list[LiveResult]:
        """Answer a query from now on; gives its results that are alive. Raises QueryError, UsageError."""
        if standing.name in self._standing:
            raise UsageError(f"there is a standing query {standing.name!r} already")
        found = self._operator(standing.kind).add(standing)
        self._standing[standing.name] = standing
        return found

    def remove(self, name: str) -> None:
        """Answer a query no longer. Raises UsageError if there is none of that name."""
        if name not in self._standing:
            raise UsageError(f"no standing query {name!r}{nearest(name, self._standing)}")
        standing = self._standing.pop(name)
        self._operator(standing.kind).remove(standing)

    def change_schema(self, text: str) -> list[LiveResult]:
        """Go on with the schema of a YAML text, which was checked (``check_change``).

        Gives retractions of results over what is gone, then what new joins
        make of the live tuples. Records refer to ``stream.schema``, in which
        relations keep their positions, before and after. Raises SchemaError.
        """
        state, before = self._state, self.stream
        state.stream = changed(before, text)
        change = SchemaChange(before.schema, self.stream.schema)
        state.order.pass_over(change.removed_relations)
        state.since |= dict.fromkeys(change.added[0], self.position)
        state.tables = [r for r in state.tables if r.relation not in change.removed_relations]
        found = {
            name: results
            for kind, each in self.operators.items()
            for name, results in each.change_schema(change, text, self._of_kind(kind)).items()
        }
        return [result for results in self._by_query(found) for result in results]

    def take(self, batch: RecordBatch, *, ended: bool = False) -> list[LiveResult]:
        """Work on a micro-batch, in any order; gives the results by time."""
        return list(self.process(batch, ended=ended))

    def process(self, batch: RecordBatch, *, ended: bool = False) -> Iterator[LiveResult]:
        """The same, giving the results of a single query, or of keywords alone, as they are found."""
        return self._processed(batch, ended=ended, replayed=False)

    def replay(self, batch: RecordBatch, *, ended: bool = False) -> None:
        """Take in a micro-batch of the log once more; what keeps its own state does not need it."""
        for _ in self._processed(batch, ended=ended, replayed=True):
            pass

    def count(self, batch: RecordBatch) -> int:
        """How many results a batch in order leads to. The only query is a pattern; none of them is formed."""
        (standing,) = self._standing.values()
        operator, order = self._operator(standing.kind), self._state.order
        assert isinstance(operator, SeparateQueries)  # noqa: S101 - patterns have evaluators
        arrived = order.in_order(order.accepted(batch))
        return operator.evaluators[standing.name].count(arrived) if len(arrived.batch) else 0

    def counts(self) -> Counts:
        """What came so far, and what its operators have made of it."""
        counts = replace(self._state.order.counts)
        for own in (counts for each in self.operators.values() for counts in each.counts()):
            counts.static = max(counts.static, own.static)
            counts.unmatched_deletions = max(counts.unmatched_deletions, own.unmatched_deletions)
            counts.excluded = max(counts.excluded, own.excluded)
            counts.kept = max(counts.kept, own.kept)
            counts.results += own.results
            counts.retractions += own.retractions
        return counts

    def seek(self, position: int, now: int) -> None:
        """The stream stands here: what led here is not told, or not all of it."""
        self._state.order.seek(position, now)
        for each in self.operators.values():
            each.seek()

    def snapshot(self) -> dict[str, bytes]:
        """The state of what cannot be made from the log: by query, and what keyword queries share."""
        return {name: state for each in self.operators.values() for name, state in each.snapshot().items()}

    def restore(self, states: Mapping[str, bytes]) -> None:
        """Inverse of ``snapshot``."""
        for kind, each in self.operators.items():
            each.restore(states, self._of_kind(kind))

    def stretches(self, name: str) -> list[WindowSpan]:
        """The windows, ended and open, that a query over a window expression has; none of other queries."""
        evaluators = (e for each in self.operators.values() if (e := getattr(each, "evaluators", None)))
        told = next((getattr(found[name], "stretches", None) for found in evaluators if name in found), None)
        return [] if told is None else list(told())

    def load(self) -> Load:
        """What all queries hold together."""
        return Load.together([each.load() for each in self.operators.values()])

    def waiting(self) -> OperatorCounts:
        """The operators of the keyword queries with the partial results that wait there."""
        return [count for each in self.operators.values() for count in each.waiting()]

    def probes(self) -> OperatorCounts:
        """The same operators, each with how often its partial results have looked for partners."""
        return [count for each in self.operators.values() for count in each.probes()]

    def adding_needs_past(self, kind: str) -> bool:
        """True if a query of a kind that is added now is told the log."""
        return kind not in self.operators or self.operators[kind].adding_needs_log

    @property
    def changing_needs_past(self) -> bool:
        """True if a query is told the log again when the schema changes."""
        return any(each.adding_needs_log and each.keeps for each in self.operators.values())

    def _operator(self, kind: str) -> Operator:
        if kind not in self.operators:
            self.operators[kind] = kind_of(kind).operator(self._state)
        return self.operators[kind]

    def _of_kind(self, kind: str) -> list[Standing]:
        return [standing for standing in self._standing.values() if standing.kind == kind]

    def _by_query(self, found: Mapping[str, Iterable[LiveResult]]) -> list[Iterable[LiveResult]]:
        """Results that keyword queries share first, then those of others in the order of their queries."""
        return [found[name] for name in (SHARED, *self._standing) if name in found]

    def _processed(self, batch: RecordBatch, *, ended: bool, replayed: bool) -> Iterator[LiveResult]:
        order = self._state.order
        accepted = order.accepted(passed_over(batch, self.stream.schema.evolution.removed_relations))
        arrived = order.in_order(accepted, ended=ended)
        operators = self.operators.values()
        taken = {
            name: results
            for each in operators
            for name, results in each.process(accepted, arrived, replayed=replayed).items()
        }
        parts = self._by_query(taken)
        if ended:
            finished = [each.finish(replayed=replayed) for each in operators]
            parts += self._by_query({name: part for found in finished for name, part in found.items()})
        if len(parts) == 1:
            yield from memory_checked(parts[0])
        else:
            yield from in_order_of_time([list(memory_checked(part)) for part in parts])
