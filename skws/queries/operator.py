"""Plans of queries, and the operators that answer them in a session.

Each kind of query is a subclass of ``QueryPlan``, which checks queries and assigns them to groups. Each group
has an ``Operator``. All keyword queries form one group; queries over the same windows form one; each query of
another kind has its own group, with an ``Evaluator``.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import TYPE_CHECKING, Final, Self, TypeAlias

import numpy as np

from skws.data.batch import NO_RECORDS, LongBatch, RecordBatch
from skws.keywords.plan import Plan
from skws.queries.evaluator import Counts, Evaluator, Load, OrderedBatch, matches
from skws.queries.keywords.updates import Begin
from skws.queries.order import Order, passed_over
from skws.queries.partitioning.parts import Part
from skws.results.result import Result
from skws.spec.query_spec import Query, Stream
from skws_mesh.backend import OperatorUse
from skws_purging.retention import LogPart, Retention
from skws_schema.budgets import memory_checked
from skws_schema.errors import UsageError
from skws_schema.evolution import SchemaChange, nameable
from skws_schema.model import Schema
from skws_schema.yaml.load import parse_schema
from skws_windows.window import CountWindow, TimeWindow, Unbounded, Window

if TYPE_CHECKING:
    from skws.queries.keywords.diagnosis import EmptyResult
    from skws.queries.keywords.present_rows import PresentRows
    from skws.queries.keywords.searching import Searched
    from skws.queries.windowed.stream_windows import WindowSpan
    from skws.store.live_store import LiveRecords


@dataclass(frozen=True, slots=True)
class LoggedBatch:
    """A micro-batch of the log. ``position``, ``now`` and ``final``: those of the stream before it.

    ``recent``: if the batch holds the live tuples in place of all earlier batches, the original micro-batches
    that readers with shorter windows need; the last one is empty and has the stream's state after them.
    """

    position: int
    now: int
    batch: RecordBatch
    final: int | None = None
    recent: Sequence[LoggedBatch] = ()


Begins: TypeAlias = Mapping[str, Sequence[Begin]]
"""The begins of updated results, by the name of their query, or SHARED; a log keeps them."""

Past = Callable[[], Iterable[LoggedBatch]]
"""Returns the log, oldest first.

The log reaches two windows back; older rows may be equal to rows in it. A query that
begins with the log assumes that a deletion ends the oldest equal row that it has
read; the deletion may have ended an older one.
"""


@dataclass(slots=True)
class StreamState:
    """``share``: the results that belong to the session. ``tables``: rows of static relations so far.

    ``since``: for relations added by a change of the schema, the position from which their records count.
    ``expected``: the states that the replay of the log leads to, by query. ``live``: the operator that holds
    the live tuples, if there is one. ``counted_from``: before this position the log has only tuples that were
    alive then, so positions in that part only give the order. ``past_lives``: the part of the log that was
    replaced by its live tuples, if readers that need the original log have read these instead; else None.
    """

    stream: Stream
    share: Part
    order: Order
    past: Past
    tables: Sequence[RecordBatch] = ()
    since: dict[int, int] = field(default_factory=dict)
    expected: Mapping[str, bytes] = field(default_factory=dict)
    live: LiveOperator | None = None
    counted_from: int = 0
    past_lives: LogPart | None = None

    @property
    def time(self) -> int:
        """The latest event time, as far as known."""
        if self.order.latest is not None or self.stream.by_count:
            return self.order.latest or 0
        return max(self.order.now, 0)

    def logged_in_order(self, window: Window | None) -> Iterator[OrderedBatch]:
        """The log in order, in the form that evaluators with a window read."""
        past = self.past()
        if window is not None and is_shorter(window, self.stream.window):
            past = chain.from_iterable(self.batches_for(logged, window) for logged in past)
        yield from self.in_order(past)

    def batches_for(self, logged: LoggedBatch, window: Window) -> Sequence[LoggedBatch]:
        """The batches that a reader with a shorter window reads from a part of the log.

        If the part holds live tuples in place of earlier batches, these are the recent original batches. If
        they do not reach back two windows, the tuples that were alive before them come first; then the log
        must not be replaced again until two of the windows are over.
        """
        recent = logged.recent
        if not record_count(recent):
            return (logged,)
        if isinstance(window, TimeWindow):  # a window of tuples cannot use their positions
            first, end = recent[0], recent[-1]
            settled_time = (end.now if end.final is None else end.final) - self.stream.lateness
            if not Retention((window,)).is_obsolete(
                LogPart(first.now, first.position), settled_time, end.position
            ):
                live_tuples = records_without(logged.batch, recent)
                self.past_lives = LogPart(logged.batch.latest, end.position)
                position = first.position - live_tuples.insertions
                return (replace(logged, position=position, batch=live_tuples, recent=()), *recent)
        return recent

    def in_order(self, past: Iterable[LoggedBatch]) -> Iterator[OrderedBatch]:
        """The batches of a log, in order."""
        order = Order(self.stream)
        for accepted in self.accepted_batches(order, past):
            arrived = order.in_order(accepted)
            if len(arrived.batch):
                yield arrived
        if self.order.final is not None:
            order.settle(self.order.final)
            arrived = order.in_order(NO_RECORDS)
            if len(arrived.batch):
                yield arrived

    def accepted_batches(self, order: Order, past: Iterable[LoggedBatch]) -> Iterator[RecordBatch]:
        """The batches of a log under the current schema, as ``order`` accepts them."""
        removed_relations = self.stream.schema.evolution.removed_relations
        for number, logged in enumerate(past):
            order.seek(order.position if number else logged.position, logged.now)
            if logged.final is not None:
                order.settle(logged.final)
                yield order.accepted(NO_RECORDS)  # releases records that waited for it, before the batch
            later_relations = {relation for relation, since in self.since.items() if order.position < since}
            yield order.accepted(passed_over(logged.batch, removed_relations | later_relations))
            if logged.recent:  # the live tuples do not say how far the stream had come
                order.seek(order.position, logged.recent[-1].now)


def is_shorter(window: Window, other: Window) -> bool:
    """True if a window holds only part of the tuples of another, which is a time window or unbounded."""
    if isinstance(other, Unbounded):
        return isinstance(window, TimeWindow | CountWindow)
    return isinstance(other, TimeWindow) and isinstance(window, TimeWindow) and window.length < other.length


def record_count(past: Iterable[LoggedBatch]) -> int:
    """The number of records in a log."""
    return sum(len(one.batch) for one in past)


def changed(stream: Stream, text: str) -> Stream:
    """The stream with the schema in a YAML text. Raises SchemaError."""
    after = SchemaChange.between(stream.schema, parse_schema(text, default_name=stream.schema.name)).after
    return replace(stream, schema=after)


def records_without(batch: RecordBatch, logged: Iterable[LoggedBatch]) -> RecordBatch:
    """The records of a batch minus those in parts of the log, as multisets."""
    parts = [logged_batch.batch for logged_batch in logged if len(logged_batch.batch)]
    remaining = Counter(record for part in parts for record in part.records())
    since = min(int(part.time.min()) for part in parts)
    remains = np.ones(len(batch), dtype=bool)
    candidate_rows = np.flatnonzero(batch.time >= since)
    for row, record in zip(candidate_rows.tolist(), batch.take(candidate_rows).records(), strict=True):
        if remaining[record] > 0:
            remaining[record] -= 1
            remains[row] = False
    return batch.take(np.flatnonzero(remains))


Key: TypeAlias = tuple[str, Hashable]
"""The key of an operator: the kind of its queries, and their group."""


def exhaust(groups: Mapping[str, Iterable[Result]]) -> None:
    """Compute all results of some groups and discard them."""
    for results in groups.values():
        for _ in memory_checked(results):
            pass


NOTHING_LIVES: Final = "there are no live tuples to search: no keyword query has begun"

SHARED: Final = ""
"""The name of results and state that the queries of a group share; no query has this name."""


class Operator(ABC):
    """Answers the queries of one group. Results are keyed by the name of their query."""

    stays = False
    """True if the operator is kept when it has no queries."""

    @property
    def in_order(self) -> bool:
        """True if it takes records once no earlier one can come; else at once, and corrects its results."""
        return True

    @property
    def adding_needs_log(self) -> bool:
        """True if a query that is added now reads the log."""
        return True

    @property
    def keeps(self) -> Window | None:
        """The window for which the log is kept; None if the operator is not rebuilt from it."""
        return None

    @property
    def waits(self) -> bool:
        """True if the end of the stream would produce results, or release records that wait for others."""
        return False

    @abstractmethod
    def load_tables(self, batches: Sequence[RecordBatch]) -> list[Result]:
        """Load static tables, before the stream; returns the results of their rows alone."""

    @abstractmethod
    def add(self, plans: Sequence[QueryPlan]) -> list[Result]:
        """Answer queries from now on; returns their results that are alive. Raises UsageError."""

    @abstractmethod
    def remove(self, name: str) -> None:
        """Stop answering a query."""

    def alive(self, name: str) -> list[Result] | None:  # noqa: ARG002
        """The results of a query that are alive now, as a snapshot; None if only the log can give them."""
        return None

    @abstractmethod
    def process(self, arrived: OrderedBatch) -> dict[str, Iterable[Result]]:
        """Process the next records, at least one: in order or at once, as ``in_order`` says."""

    def replay(self, arrived: OrderedBatch) -> None:
        """As ``process``, but discards the results; ``expect_begins`` is called next."""
        exhaust(self.process(arrived))

    def why_nothing(self, plan: QueryPlan) -> EmptyResult | None:  # noqa: ARG002
        """Why a keyword query has no results among the live tuples; None for other kinds."""
        return None

    def advance(self, now: int) -> dict[str, Iterable[Result]]:  # noqa: ARG002
        """Advance to a time (inclusive) without records; returns the changes to results."""
        return {}

    def finish(self) -> dict[str, Iterable[Result]]:
        """The results that were held back until the stream ended."""
        return {}

    def count(self, arrived: OrderedBatch) -> int:
        """The number of results of the next records in order."""
        results_by_query = self.process(arrived)
        return sum(matches(result) for results in results_by_query.values() for result in results)

    def untouched_by(self, change: SchemaChange, plans: Sequence[QueryPlan]) -> bool:  # noqa: ARG002
        """True if it reads nothing that changes. ``plans``: its queries over the new schema."""
        return False

    def take_over(self, former: Self) -> dict[str, list[Result]]:  # noqa: ARG002 - few results outlive a change
        """Replace an operator of the same queries over the former schema; returns the changes to results."""
        return {}

    def seek(self) -> None:  # noqa: B027 - most operators find the position in their records
        """Called when the stream moves to another position without processing the records before it."""

    def snapshot(self) -> dict[str, bytes]:
        """The states, by query, that cannot be rebuilt from the log."""
        return {}

    def expect(self) -> None:  # noqa: B027 - few operators begin before the log is replayed
        """Called before the log is replayed, up to the expected state."""

    def restore(self, states: Mapping[str, bytes], plans: Sequence[QueryPlan]) -> None:
        """Answer queries from their states on; the operator has no others and has processed nothing."""
        raise NotImplementedError("rebuilt from the log")

    def begins(self) -> dict[str, list[Begin]]:
        """The begins of results that were updated since the last call."""
        return {}

    def all_begins(self) -> dict[str, list[Begin]]:
        """The begins of all live results that were updated."""
        return {}

    def expect_begins(self, begins: Begins) -> None:  # noqa: B027 - few results are updated
        """Apply the logged begins of results that the last processed records updated."""

    @property
    def lasts(self) -> bool:
        """True if the state can be rebuilt from the live tuples alone."""
        return False

    def rebuild(self, past: Sequence[LoggedBatch]) -> None:
        """Start over from ``past``; called in a replay of a log that has live tuples in place of it."""
        raise NotImplementedError("it keeps its own state, or lasts")

    @property
    def living(self) -> int:
        """The number of live tuples that ``live_records`` would return; 0 if it returns None."""
        return 0

    def live_records(self) -> LiveRecords | None:
        """Records that rebuild the present state; None if the operator needs its whole window."""
        return None

    @abstractmethod
    def load(self) -> Load:
        """The load, for metrics."""

    def counts(self) -> list[Counts]:
        return []

    def window_spans(self) -> list[WindowSpan]:
        """The windows of an expression: the latest to end, and the open ones."""
        return []

    def used(self, name: str | None) -> list[OperatorUse]:  # noqa: ARG002
        """The operators of a mesh that one query, or any query, has used."""
        return []


class LiveOperator(Operator):
    """Holds the live tuples of the stream, and searches them."""

    stays = True

    @abstractmethod
    def take_up(self, log: LongBatch) -> LongBatch:
        """Load live tuples from the ``live_records`` in a log; returns the records still to process."""

    @abstractmethod
    def change_schema(self, change: SchemaChange, text: str) -> dict[str, list[Result]]:
        """Switch to another schema, whose YAML is ``text``; returns the changes to results."""

    @abstractmethod
    def begin(self) -> None:
        """Hold live tuples from the start of the stream, whether or not there is a query."""

    @abstractmethod
    def make_space(self, tuples: int) -> None:
        """Make space for tuples that come soon, as when a log is replayed."""

    @abstractmethod
    def living_tuples(self) -> list[Result]:
        """The tuples of the stream that are alive, in order of time, each as a result of one tuple."""

    @abstractmethod
    def prepare_searches(self, most: int) -> bool:
        """Index the words of at most ``most`` live tuples; returns True if there are more."""

    @abstractmethod
    def completions(self, start: str, most: int) -> list[tuple[str, int]]:
        """Words of live tuples that begin with a text. Raises TimeLimitError."""

    @abstractmethod
    def present(self, since: int | None) -> PresentRows | None:
        """The live rows, without those before an event time; None before any are held."""

    @abstractmethod
    def search(self, plan: QueryPlan, most: int) -> Searched:
        """The best results among the live tuples. Raises UsageError, TimeLimitError."""


class QueryPlan(ABC):
    """A query that was checked and bound to a stream. It is made once, when the query is read.

    Each kind of query has a subclass. Its constructor raises QueryError, PatternError, UsageError if the
    query cannot be answered over the stream.
    """

    def __init__(self, query: Query, stream: Stream) -> None:
        self.query = query
        self.stream = stream

    @property
    @abstractmethod
    def window(self) -> Window:
        """The window that applies to the query."""

    @property
    def reads(self) -> frozenset[int] | None:
        """The positions of the relations that it reads; None if it may read any."""
        return None

    @property
    def warning(self) -> str:
        """A warning about windows that may pile up; empty if none can."""
        return ""

    @property
    def notes(self) -> tuple[str, ...]:
        """Parts of the query that are ignored, or read otherwise than its author may expect: a line each."""
        return ()

    @property
    def search(self) -> Plan | None:
        """The plan of a keyword search; None for other kinds."""
        return None

    @abstractmethod
    def check_change(self, before: Stream) -> None:
        """Raises SkwsError with the reason if a query over ``before`` cannot continue with this plan."""

    @abstractmethod
    def group(self, state: StreamState) -> Hashable | None:
        """The group: queries of equal groups share an operator. None if the session owns no result of it."""

    @abstractmethod
    def operator(self, state: StreamState) -> Operator:
        """A new operator for the group of the query."""

    def over(self, stream: Stream) -> Self:
        """The plan of the same query over another stream. Raises the errors of the constructor."""
        return type(self)(self.query, stream)


class SeparatePlan(QueryPlan):
    """The plan of a query that has its own evaluator."""

    def owns(self, part: Part) -> bool:
        """True if results of the query belong to a part; by default one part owns the whole query."""
        return part.owns(self.query.name)

    @abstractmethod
    def evaluator(self, state: StreamState) -> Evaluator:
        """A new evaluator, which has read nothing."""

    def group(self, state: StreamState) -> Hashable | None:
        return self.query.name if self.owns(state.share) else None

    def operator(self, state: StreamState) -> Operator:
        return EvaluatorOperator(self, state)


class EvaluatorOperator(Operator):
    """Answers one query with an evaluator."""

    def __init__(self, plan: SeparatePlan, state: StreamState) -> None:
        self._plan = plan
        self._state = state
        self.evaluator = self._new()

    @property
    def _name(self) -> str:
        return self._plan.query.name

    @property
    def keeps(self) -> Window | None:
        return self.evaluator.keeps

    @property
    def waits(self) -> bool:
        return self._state.order.waits or self.evaluator.waits

    def load_tables(self, batches: Sequence[RecordBatch]) -> list[Result]:
        self.evaluator.load_tables(batches)
        return list(self.evaluator.begin(()))

    def add(self, plans: Sequence[QueryPlan]) -> list[Result]:  # noqa: ARG002 - it is known
        return list(memory_checked(self.evaluator.begin(self._past())))

    def remove(self, name: str) -> None:
        """Does nothing: the operator is dropped with its query."""

    def process(self, arrived: OrderedBatch) -> dict[str, Iterable[Result]]:
        return {self._name: self.evaluator.take(self._without_uncounted(arrived))}

    def finish(self) -> dict[str, Iterable[Result]]:
        return {self._name: self.evaluator.end()}

    def count(self, arrived: OrderedBatch) -> int:
        return self.evaluator.count(self._without_uncounted(arrived))

    def rebuild(self, past: Sequence[LoggedBatch]) -> None:
        self.evaluator = self._new()
        for _ in self.evaluator.begin(map(self._without_uncounted, self._state.in_order(past))):
            pass

    def untouched_by(self, change: SchemaChange, plans: Sequence[QueryPlan]) -> bool:
        reads = self._plan.reads
        if reads is None or any(plan.reads != reads for plan in plans):
            return False
        return not reads & (change.removed_relations | change.added[0])

    def _past(self) -> Iterator[OrderedBatch]:
        return map(self._without_uncounted, self._state.logged_in_order(self.keeps))

    def _without_uncounted(self, arrived: OrderedBatch) -> OrderedBatch:
        """The records that the evaluator reads: a window of tuples skips those before ``counted_from``."""
        return arrived.since(self._state.counted_from) if isinstance(self.keeps, CountWindow) else arrived

    def snapshot(self) -> dict[str, bytes]:
        return {self._name: self.evaluator.snapshot()} if self.keeps is None else {}

    def restore(self, states: Mapping[str, bytes], plans: Sequence[QueryPlan]) -> None:  # noqa: ARG002
        self.evaluator.restore(states[self._name])

    def load(self) -> Load:
        return self.evaluator.load()

    def counts(self) -> list[Counts]:
        return [self.evaluator.counts]

    def _new(self) -> Evaluator:
        evaluator = self._plan.evaluator(self._state)
        evaluator.load_tables(self._state.tables)
        return evaluator


def check_stays(reads: Iterable[str], before: Schema, after: Schema) -> None:
    """Raises UsageError if a relation that a query reads by name has become another one."""
    former_index, present_index = nameable(before).index, nameable(after).index
    for name in reads:
        if name in former_index and former_index[name] != present_index[name]:
            raise UsageError(f"it reads {name}, which changes: its state would be lost")
