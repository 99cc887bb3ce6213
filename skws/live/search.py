"""All standing queries of one stream: a micro-batch in, results of all of them out."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from mesh.columnar.table import OperatorCounts
from purging.memory import watched
from schema.errors import UsageError, nearest
from schema.evolve import SchemaChange
from schema.load import parse_schema
from skws.batches import RecordBatch
from skws.bounded.engine import BoundedEngine
from skws.engine.columnar import ColumnarEngine
from skws.live.changing import changed
from skws.live.evaluator import Arrived, Evaluator, Kind, Load
from skws.live.kinds import keyword_plan, kind_of
from skws.live.order import Order, counting, passed_over
from skws.live.results import in_order_of_time
from skws.live.share import WHOLE, Share
from skws.live.standing import KEYWORDS, Standing
from skws.live.stream import Stream
from skws.records import OnLate, Record, unheard
from skws.results.model import LiveResult
from windows.window import Window

if TYPE_CHECKING:  # only who has a window expression loads what finds its windows
    from skws.windowing.timeline import Stretch


@dataclass(frozen=True, slots=True)
class Told:
    """A micro-batch of the log. ``position`` and ``now``: where the stream stood before it."""

    position: int
    now: int
    batch: RecordBatch


_SHARED: Final = ""
"""The name of the state that keyword queries share; no query has it."""
Past = Callable[[], Iterable[Told]]


class LiveSearch:
    """Answers standing queries; ``share``: those results that belong to it.

    ``keywords``: False makes the columnar engine with the first keyword query
    only: without one it would hold the live tuples for nothing. ``past`` gives
    the log, oldest first, to queries that are added in mid-stream.
    """

    def __init__(
        self,
        stream: Stream,
        share: Share = WHOLE,
        on_late: OnLate = unheard,
        *,
        keywords: bool = True,
        past: Past = tuple,
    ) -> None:
        self.stream = stream
        self._share = share
        self._past = past
        self._order = Order(stream, on_late)
        self._tables: Sequence[Record] = ()
        self._standing: dict[str, Standing] = {}
        self._engine = self._new_engine() if keywords else None
        self._evaluators: dict[str, Evaluator] = {}
        self._kinds: dict[str, Kind] = {}  # evaluators of a kind may share what they hold
        # From which position on a relation counts that came, or came back, with a change of the schema.
        self._since: dict[int, int] = {}

    @property
    def position(self) -> int:
        """Of the next insertion in the stream."""
        return self._order.position

    @property
    def now(self) -> int:
        """How far ticks have come: microseconds, or those of a count window (``windows.window``)."""
        return self._order.now

    @property
    def latest(self) -> int | None:
        """The latest event time."""
        return self._order.latest

    @property
    def waits(self) -> bool:
        """True if the end of the stream would give results, or let records go that wait for earlier ones."""
        evaluators = self._evaluators.values()
        return bool(evaluators) and (self._order.waits or any(each.waits for each in evaluators))

    @property
    def keeps(self) -> set[Window]:
        """The windows that the log is kept for."""
        own = {self.stream.window} if self._engine is not None and not self.stream.bounded else set()
        return own.union(kept for each in self._evaluators.values() if (kept := each.keeps) is not None)

    def load_tables(self, records: Sequence[Record]) -> None:
        """Static tables, before the stream; their results come in the snapshots of queries."""
        gone = self.stream.schema.evolution.removed_relations
        records = [record for record in records if record.relation not in gone]
        self._tables = [*self._tables, *records]
        if self._engine is not None:
            _exhaust(self._engine.load_tables(records))
        for evaluator in self._evaluators.values():
            evaluator.load_tables(records)

    def add(self, standing: Standing) -> list[LiveResult]:
        """Answer a query from now on; gives its results that are alive. Raises QueryError, UsageError."""
        if standing.name in self._standing:
            raise UsageError(f"there is a standing query {standing.name!r} already")
        found = self._add_keywords(standing) if standing.kind == KEYWORDS else self._add_evaluator(standing)
        self._standing[standing.name] = standing
        return found

    def remove(self, name: str) -> None:
        """Answer a query no longer. Raises UsageError if there is none of that name."""
        if name not in self._standing:
            raise UsageError(f"no standing query {name!r}{nearest(name, self._standing)}")
        standing = self._standing.pop(name)
        if standing.kind == KEYWORDS and self._engine is not None and self._share.answers(standing.query):
            self._engine.remove(name)
        self._evaluators.pop(name, None)

    def change_schema(self, text: str) -> list[LiveResult]:
        """Go on with the schema of a YAML text, which was checked (``check_change``).

        Gives retractions of results over what is gone, then what new joins
        make of the live tuples. Records refer to ``stream.schema``, in which
        relations keep their positions, before and after. Raises SchemaError.
        """
        before, self.stream = self.stream, changed(self.stream, text)
        change = SchemaChange(before.schema, self.stream.schema)
        self._order.pass_over(change.removed_relations)
        self._since |= dict.fromkeys(change.added[0], self.position)
        self._tables = [r for r in self._tables if r.relation not in change.removed_relations]
        given = parse_schema(text, default_name=before.schema.name)
        found: list[list[LiveResult]] = []
        if self._engine is not None:
            found.append(list(self._engine.change_schema(given, self._time(), moves=False)))
        others = [each for each in self._standing.values() if each.kind != KEYWORDS]
        found += [self._change_evaluator(standing) for standing in others]
        return [result for part in found for result in part]

    def _change_evaluator(self, standing: Standing) -> list[LiveResult]:
        """Have a query go on with an evaluator made anew. What it has found before is told."""
        former = self._evaluators.pop(standing.name, None)
        evaluator = self._new_evaluator(standing)
        if evaluator is None:
            return []
        self._evaluators[standing.name] = evaluator
        if evaluator.keeps is not None:
            _exhaust(evaluator.begin(self._past_in_order()))
        return [] if former is None else list(evaluator.succeed(former))

    def take(self, batch: RecordBatch, *, ended: bool = False) -> list[LiveResult]:
        """Work on a micro-batch, in any order; gives the results by time."""
        return self._taken(batch, list(self._evaluators.values()), ended=ended)

    def recall(self, batch: RecordBatch, *, ended: bool = False) -> None:
        """Take in a micro-batch of the log once more; what keeps its own state does not need it."""
        made = [each for each in self._evaluators.values() if each.keeps is not None]
        self._taken(batch, made, ended=ended)

    def stand_at(self, position: int, now: int) -> None:
        """The stream stands here: what led here is not told, or not all of it."""
        self._order.stand_at(position, now)
        if self._engine is not None:
            self._engine.begin_at(position)
            self._engine.expire(now)

    def snapshot(self) -> dict[str, bytes]:
        """The state of what cannot be made from the log: queries by name, and what keyword queries share."""
        states = {name: each.snapshot() for name, each in self._evaluators.items() if each.keeps is None}
        return states | (
            {_SHARED: self._engine.snapshot()} if isinstance(self._engine, BoundedEngine) else {}
        )

    def restore(self, states: Mapping[str, bytes]) -> None:
        """Inverse of ``snapshot``."""
        for name, state in states.items():
            if name in self._evaluators:
                self._evaluators[name].restore(state)
        if _SHARED in states:
            self._engine = self._restored_engine(states[_SHARED])

    def stretches(self, name: str) -> list[Stretch]:
        """The windows, ended and open, that a query over a window expression has; none of other queries."""
        told = getattr(self._evaluators.get(name), "stretches", None)
        return [] if told is None else list(told())

    def load(self) -> Load:
        """What all queries hold together."""
        loads = [each.load() for each in self._evaluators.values()]
        if self._engine is not None:
            waiting = self._engine.waiting()
            partials = sum(count for _, count in waiting)
            loads.append(Load(self._engine.live_tuples, len(waiting), partials))
        return Load(
            max((one.live for one in loads), default=0),
            sum(one.operators for one in loads),
            sum(one.waiting for one in loads),
        )

    def waiting(self) -> OperatorCounts:
        """The operators of the keyword queries with the partial results that wait there."""
        return [] if self._engine is None else self._engine.waiting()

    def probes(self) -> OperatorCounts:
        """The same operators, each with how often its partial results have looked for partners."""
        return [] if self._engine is None else self._engine.probes()

    def adding_needs_past(self, kind: str) -> bool:
        """True if a query of a kind that is added now is told the log."""
        return kind != KEYWORDS or self._engine is None

    @property
    def changing_needs_past(self) -> bool:
        """True if a query is told the log again when the schema changes."""
        return any(each.keeps is not None for each in self._evaluators.values())

    def _time(self) -> int:
        """The latest event time, as far as it is known."""
        if self.latest is not None or self.stream.by_count:
            return self.latest or 0
        return max(self.now, 0)

    def _new_engine(self) -> ColumnarEngine:
        kind = BoundedEngine if self.stream.bounded else ColumnarEngine
        engine = kind(
            self.stream.schema,
            self.stream.window,
            lateness=self.stream.lateness,
            accepts_root=self._share.accepts_root(),
        )
        _exhaust(engine.load_tables(()))  # those with a source of their own
        return engine

    def _taken(self, batch: RecordBatch, evaluators: list[Evaluator], *, ended: bool) -> list[LiveResult]:
        accepted = self._order.accepted(passed_over(batch, self.stream.schema.evolution.removed_relations))
        arrived = self._order.in_order(accepted, ended=ended)
        found: list[list[LiveResult]] = []
        if self._engine is not None and len(accepted):
            found.append(list(watched(self._processed(self._engine, accepted, arrived))))
        if len(arrived.batch):
            found += [list(watched(each.take(arrived))) for each in evaluators]
        if ended:
            found += [list(watched(each.end())) for each in evaluators]
        return in_order_of_time(found)

    def _processed(
        self, engine: ColumnarEngine, accepted: RecordBatch, arrived: Arrived
    ) -> Iterator[LiveResult]:
        """By time what was accepted at once, by count what is next at its positions."""
        if not self.stream.by_count:
            yield from engine.process_batches([counting(accepted)])
            return
        for run in arrived.runs():
            engine.begin_at(run.position)
            yield from engine.process_batches([run.batch])

    def _add_keywords(self, standing: Standing) -> list[LiveResult]:
        plan = keyword_plan(standing, self.stream)
        if not self._share.answers(standing.query):
            return []
        if self._engine is None:
            self._engine = self._begun_engine()
        return list(self._engine.add(plan, standing.name))

    def _begun_engine(self) -> ColumnarEngine:
        """One that comes in mid-stream."""
        engine = self._new_engine()
        _exhaust(engine.load_tables(self._tables))
        order = Order(self.stream)
        for accepted in () if self.stream.bounded else self._past_accepted(order):
            _exhaust(self._processed(engine, accepted, order.in_order(accepted)))
        engine.begin_at(self.position)
        engine.expire(self.now)
        return engine

    def _restored_engine(self, state: bytes) -> BoundedEngine:
        engine = BoundedEngine(
            self.stream.schema, lateness=self.stream.lateness, accepts_root=self._share.accepts_root()
        )
        _exhaust(engine.load_tables(self._tables))
        for name, standing in self._standing.items():
            if standing.kind == KEYWORDS and self._share.answers(standing.query):
                engine.add(keyword_plan(standing, self.stream), name)
        engine.restore(state)
        engine.begin_at(self.position)
        engine.expire(self.now)
        return engine

    def _add_evaluator(self, standing: Standing) -> list[LiveResult]:
        evaluator = self._new_evaluator(standing)
        if evaluator is None:
            return []
        found = list(watched(evaluator.begin(self._past_in_order())))
        self._evaluators[standing.name] = evaluator
        return found

    def _new_evaluator(self, standing: Standing) -> Evaluator | None:
        kind = self._kinds.get(standing.kind) or self._kinds.setdefault(standing.kind, kind_of(standing.kind))
        evaluator = kind.evaluator(standing, self.stream, self._share)
        if evaluator is not None:
            evaluator.load_tables(self._tables)
        return evaluator

    def _past_in_order(self) -> Iterator[Arrived]:
        """The log as it was given to evaluators that were there."""
        order = Order(self.stream)
        for accepted in self._past_accepted(order):
            arrived = order.in_order(accepted)
            if len(arrived.batch):
                yield arrived

    def _past_accepted(self, order: Order) -> Iterator[RecordBatch]:
        """The log as it is read by the schema that holds now."""
        gone = self.stream.schema.evolution.removed_relations
        for number, told in enumerate(self._past()):
            if not number:
                order.stand_at(told.position, told.now)
            earlier = {relation for relation, since in self._since.items() if order.position < since}
            yield order.accepted(passed_over(told.batch, gone | earlier))


def _exhaust(results: Iterable[LiveResult]) -> None:
    """What they are was told before, or comes in snapshots."""
    for _ in results:
        pass
