"""The paper's engine: a tuple at a time through a mesh of the paper.

Records of one instant are one step: first lifespans are settled, then negative
tuples go through the mesh, then new ones. Results of a step are sorted, so
equal replays give equal output whatever the order of ties.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import chain, count, groupby
from operator import attrgetter

from msgspec.structs import replace

from skws.data.batch import OnLate, Record, unheard
from skws.index import with_sources
from skws.keywords.match import EXCLUDED
from skws.keywords.plan import Plan
from skws.queries.evaluator import Counts
from skws.queries.keywords.updates import updates_of
from skws.results.assemble import Assembler, seconds
from skws.results.model import Op, Result
from skws.results.names import TupleNames
from skws_mesh.kinds import MeshKind, PurgeKind
from skws_mesh.paper import make_mesh
from skws_mesh.paper.execution import Found, PaperMesh
from skws_purging.lifespans import ALWAYS, Lifespans, Members, StreamTuple, static_tuples
from skws_schema.budgets import Held, check, memory_checked, register
from skws_schema.errors import counted
from skws_schema.model import Row
from skws_windows.window import FOREVER, MICROSECOND, at_arrival, before_arrival, ticks_per_position


def paper_mesh(plan: Plan) -> PaperMesh:
    """A mesh of the paper for a plan, without tuples: the one asked for, else the partial one."""
    return make_mesh(
        plan.generator(),
        plan.lifespans,
        MeshKind(plan.mesh or MeshKind.PARTIAL),
        None if plan.purge is None else PurgeKind(plan.purge),
        plan.demand,
    )


class Engine:
    """Runs one plan over one stream. ``on_late`` is called for records that come too late."""

    def __init__(self, plan: Plan, on_late: OnLate = unheard) -> None:
        self.plan = plan
        self.counts = Counts()
        self.mesh = paper_mesh(plan)
        self._lifespans = Lifespans(plan.schema, plan.lifespans, 0 if plan.by_count else plan.lateness)
        self._assembler = Assembler(plan)
        self._names = TupleNames(plan.schema, ticks_per_position(plan.lifespans))
        self._updates = updates_of(plan.schema, plan.lifespans, plan.lateness, plan.updates)
        self._instant = 0  # the number of the last one, under a count window
        self._on_late = on_late
        self._position = 0
        self._arrival = count()
        self._now = ALWAYS
        register(self)

    def held(self) -> Held:
        """The memory of the query."""
        counts = (
            (self.mesh.partials, "partial result"),
            (self.mesh.operators, "operator"),
            (self.mesh.live_tuples, "live tuple"),
        )
        held = ", ".join(counted(count, noun) for count, noun in counts)
        return Held(sum(count for count, _ in counts), f"query {self.plan.query.text!r} holds {held}")

    def load_tables(self, records: Iterable[Record]) -> Iterator[Result]:
        """Insert the static tables, before the stream; gives the results of static tuples alone."""
        found: list[Found] = []
        rows = ((r.relation, r.row) for r in with_sources(self.plan.schema, records))
        for static in static_tuples(self.plan.schema, rows):
            self.counts.static += 1
            found += self._insert(static)
        yield from self._count(list(self._completed(found, snapshot=True)))

    def process(self, records: Iterable[Record]) -> Iterator[Result]:
        """Process records in order of arrival. Neighbours with equal time are one instant."""
        for reached, results in self._steps(records):
            yield from self._told(results, reached)
        yield from self._count(self._updates.rest())

    def _steps(self, records: Iterable[Record]) -> Iterator[tuple[int, list[Result]]]:
        """The results that each step ends or completes, with the tick that was reached before."""
        if self.plan.by_count:
            for time, simultaneous in groupby(records, key=_time_of):
                reached, results = self._now, list[Result]()
                for step in arrivals(simultaneous):
                    results += self._step(self._tick(step[0]), time, step)
                    self._position += not step[0].delete
                yield reached, results
            return
        for time, simultaneous in groupby(records, key=_time_of):
            if time < self._now - self.plan.lateness:
                self._drop_late(simultaneous)
            else:
                yield self._now, list(self._step(time, time, simultaneous))

    @property
    def idle(self) -> bool:
        """True if no tuple of the stream is remembered."""
        return not (self.mesh.live_tuples or self.mesh.partials or len(self._lifespans))

    def expire(self, tick: int) -> None:
        """Let time pass without a record, up to ``tick``."""
        self._now = max(self._now, tick)
        self.mesh.purge(self._horizon)
        self._lifespans.forget(self._horizon)

    @property
    def _horizon(self) -> int:
        """No record comes before this tick."""
        return self._now - (0 if self.plan.by_count else self.plan.lateness)

    def _tick(self, record: Record) -> int:
        """The tick of the next record under a count window."""
        return before_arrival(self._position) if record.delete else at_arrival(self._position)

    def _drop_late(self, records: Iterable[Record]) -> None:
        for record in records:
            self.counts.late += 1
            self._on_late(record, self._now)

    def _step(self, tick: int, time: int, records: Iterable[Record]) -> Iterator[Result]:
        self.expire(tick)
        check()
        changes = self._lifespans.step(tick, self._seen(records))
        self.counts.unmatched_deletions += changes.unmatched
        retracted: list[tuple[Found, int]] = []
        for ended, end in changes.ended:
            shown = time if self.plan.by_count else end
            retracted += ((found, shown) for found in self._end(ended, end))
        completed = [self._revive(prolonged, end) for prolonged, end in changes.prolonged]
        completed += [self._insert(new) for new in changes.inserted]
        yield from self._retracted(retracted)
        found = list(memory_checked(chain.from_iterable(completed)))
        yield from self._completed(found)
        # A late tuple may come after the record that ended it.
        ends = ((one, min(member.end for member in one[1])) for one in found)
        yield from self._retracted([(one, end) for one, end in ends if end < self._natural_end(one[1])])

    def _seen(self, records: Iterable[Record]) -> Iterator[tuple[int, Row, bool, int, int]]:
        for relation, time, row, delete in records:
            if delete:
                self.counts.deletions += 1
            else:
                self.counts.tuples += 1
            yield relation, row, delete, time, next(self._arrival)

    def _insert(self, new: StreamTuple) -> list[Found]:
        new.keywords = self.plan.matcher.bitmap(new.relation, new.row)
        if new.keywords == EXCLUDED:
            self.counts.excluded += 1
            return []
        return self.mesh.insert(new)

    def _end(self, ended: StreamTuple, end: int) -> list[Found]:
        if ended.keywords == EXCLUDED:
            ended.end = end
            return []
        return self.mesh.end(ended, end)

    def _revive(self, prolonged: StreamTuple, end: int) -> list[Found]:
        if prolonged.keywords == EXCLUDED:
            prolonged.end = end
            return []
        return self.mesh.revive(prolonged, end)

    def _told(self, results: list[Result], reached: int) -> list[Result]:
        """What is told of results and retractions; ``reached``: the tick before them."""
        before = None if reached == ALWAYS else reached / MICROSECOND
        retractions = sum(result.op == "-" for result in results)
        instants = None
        if self.plan.by_count:  # each call is of one
            self._instant += 1
            instants = [self._instant] * len(results)
        told = self._updates.take(results, retractions, before, instants)
        self._updates.forget(self._now, self._horizon)
        return self._count(told)

    def _count(self, told: list[Result]) -> list[Result]:
        ops = Counter(result.op for result in told)
        self.counts.results += ops["+"]
        self.counts.retractions += ops["-"]
        self.counts.updates += ops["~"]
        return told

    def _retracted(self, retracted: list[tuple[Found, int]]) -> Iterator[Result]:
        results = [
            replace(self._assembled("-", found, end), until=seconds(None, self._shown_end(found[1]))[1])
            for found, end in retracted
        ]
        yield from sorted(results, key=_id_of)

    def _completed(self, found: Iterable[Found], snapshot: bool = False) -> Iterator[Result]:
        results = [self._assembled("+", one, self._shown_end(one[1]), snapshot) for one in found]
        yield from sorted(results, key=_id_of)

    def _assembled(self, op: Op, found: Found, end: int, snapshot: bool = False) -> Result:
        network, members = found
        times = [member.time for member in members if not member.static]
        named = [self._names.of(member) for member in members]
        start = max(times) if times else None
        return self._assembler.result(op, network, named, start, end, snapshot)

    def _natural_end(self, members: Members) -> int:
        """The tick of the end that the window gives to a result."""
        window = self.plan.lifespans
        return min((window.end(member.start) for member in members if not member.static), default=FOREVER)

    def _shown_end(self, members: Members) -> int:
        """Under a count window the time of the end is not known."""
        return FOREVER if self.plan.by_count else self._natural_end(members)


def _time_of(record: Record) -> int:
    return record.time


def arrivals(records: Iterable[Record]) -> Iterator[list[Record]]:
    """The steps of a count window: single insertions, and between them the deletions of one instant."""
    for (_, delete), together in groupby(records, key=attrgetter("time", "delete")):
        step = list(together)
        yield from [step] if delete else ([record] for record in step)


def _id_of(result: Result) -> str:
    return result.id
