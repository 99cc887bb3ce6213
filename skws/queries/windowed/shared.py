"""One engine for standing queries whose windows are the same: those of one expression from one record on.

Queries that have not begun begin together, with the next record; those that go
on after a failure from equal states do, too. Twenty queries so take about the
time of one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from weakref import WeakSet, WeakValueDictionary

import orjson

from skws.data.batch import RecordBatch
from skws.data.record import Record
from skws.keywords.plan import Plan
from skws.queries.evaluator import OrderedBatch
from skws.queries.windowed.engine import WindowedEngine
from skws.results.model import Result
from skws_windows.window import ExpressionWindow

NOT_BEGUN = orjson.dumps(None)


class Member:
    """What a group knows of one query: it is in it for as long as somebody holds it."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan


class Group:
    """Queries over one stream whose windows begin together. ``origin``: the state that all go on from."""

    def __init__(self, origin: bytes) -> None:
        self.members: WeakSet[Member] = WeakSet()
        self.started = False
        self._origin = origin
        self._engine: WindowedEngine | None = None
        self._last: RecordBatch | None = None
        self._state: bytes | None = None  # made once for all members
        self._told: dict[str, list[Result]] = {}

    @property
    def first(self) -> Member:
        """One of the members."""
        return min(self.members, key=lambda member: member.plan.query.text)

    def take(self, member: Member, arrived: OrderedBatch, tables: Sequence[Record]) -> list[Result]:
        """The results of one query; whose turn it is first works for all."""
        if self._last is not arrived.batch:
            self._last, self._state = arrived.batch, None
            self._told = {}
            for result in self._process(arrived, tables):
                self._told.setdefault(result.query, []).append(result)
        return self._told.get(member.plan.query.text, [])

    def engine(self, tables: Sequence[Record]) -> WindowedEngine:
        """What answers the queries; begins with those that there are."""
        if self._engine is None:
            self.started = True
            plans = {member.plan.query.text: member.plan for member in self.members}
            first = next(iter(plans.values()))
            assert isinstance(first.window, ExpressionWindow)  # noqa: S101 - of a windowed query
            self._engine = WindowedEngine(first.schema, first.window)
            for text, plan in sorted(plans.items()):
                self._engine.add(plan, text)
            for _ in self._engine.load_tables(tables):
                pass  # told by each query when it begins
            state = orjson.loads(self._origin)
            if state is not None:
                self._engine.restore(state)
        return self._engine

    def state(self) -> bytes:
        """From where the queries go on after a failure."""
        if self._state is None:
            self._state = self._origin if self._engine is None else orjson.dumps(self._engine.state())
        return self._state

    def _process(self, arrived: OrderedBatch, tables: Sequence[Record]) -> Iterator[Result]:
        begins = not self.started and self._origin == NOT_BEGUN
        engine = self.engine(tables)
        if begins:
            engine.seek(arrived.position)
        for text in engine.queries - {member.plan.query.text for member in self.members}:
            engine.remove(text)
        return engine.process_batches([arrived.batch])


class Groups:
    """The groups of one live search."""

    def __init__(self) -> None:
        self._waiting: WeakValueDictionary[tuple[object, ...], Group] = WeakValueDictionary()

    def join(self, member: Member, origin: bytes = NOT_BEGUN) -> Group:
        """The group that goes on from a state."""
        plan = member.plan
        key = (plan.schema, plan.window, plan.max_size, plan.query.match_names, plan.ranking, origin)
        group = self._waiting.get(key)
        if group is None or group.started:
            group = self._waiting[key] = Group(origin)
        group.members.add(member)
        return group
