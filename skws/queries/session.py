"""A session: answers all queries of one stream, batch by batch."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from hashlib import blake2b
from itertools import chain, pairwise, takewhile
from typing import TYPE_CHECKING, Final, TypeVar

from skws.data.batch import (
    BATCH,
    NO_RECORDS,
    LongBatch,
    OnLate,
    Record,
    RecordBatch,
    unheard,
    whole_instants,
)
from skws.queries.evaluator import Counts, Load, OrderedBatch
from skws.queries.keywords.updates import Begin
from skws.queries.kinds import in_order_of_time, live_tuples, plan_of
from skws.queries.operator import (
    NOTHING_LIVES,
    SHARED,
    Begins,
    Key,
    LoggedBatch,
    Operator,
    Past,
    QueryPlan,
    StreamState,
    changed,
    exhaust,
    is_shorter,
    record_count,
)
from skws.queries.order import PASSED_OVER, Order, passed_over
from skws.queries.partitioning.parts import WHOLE, Part
from skws.results.result import Result
from skws.spec.query_spec import Query, Stream
from skws_mesh.backend import OperatorUse
from skws_purging.lifespans import ALWAYS
from skws_purging.retention import LogPart, Retention
from skws_schema.budgets import memory_checked
from skws_schema.errors import UsageError, nearest
from skws_schema.evolution import SchemaChange
from skws_windows.window import Window

if TYPE_CHECKING:  # loaded only for keywords, and for window expressions
    from skws.queries.keywords.diagnosis import EmptyResult
    from skws.queries.keywords.present_rows import PresentRows
    from skws.queries.keywords.searching import Searched
    from skws.queries.windowed.stream_windows import WindowSpan
    from skws.store.live_store import LastingRecords


class Session:
    """Answers queries of any kinds. ``share``: the results that belong to the session.

    ``keywords``: True holds live tuples from the start; False from the first
    keyword query on. ``past`` gives the log, oldest first, to queries that are
    added in mid-stream.

    To rebuild a session: ``expect`` the states of its ``snapshot``, add its queries,
    ``replay`` the log, ``restore`` the states.
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
        self._plans: dict[str, QueryPlan] = {}
        self._placed: dict[str, Key] = {}  # by name of a query: the key of its operator, if it has one
        self.operators: dict[Key, Operator] = {}
        """One for each group of queries, by kind and group; that of keywords stays without queries."""
        if keywords:
            key, live = live_tuples(self._state)
            self.operators[key] = live
            live.begin()

    @property
    def stream(self) -> Stream:
        """With the schema that holds now."""
        return self._state.stream

    @property
    def position(self) -> int:
        """The position of the next insertion in the stream."""
        return self._state.order.position

    @property
    def now(self) -> int:
        """The latest tick: microseconds, or those of a count window (``skws_windows.window``)."""
        return self._state.order.now

    @property
    def final(self) -> int | None:
        """Up to which time all partitions have come, if they are several (``settle``)."""
        return self._state.order.final

    @property
    def horizon(self) -> int:
        """The tick before which no record comes any more."""
        return self._state.order.horizon

    @property
    def settled(self) -> int:
        """The latest event time that all queries know of: some wait for late records."""
        return self._state.order.settled

    @property
    def latest(self) -> int | None:
        """The latest event time."""
        return self._state.order.latest

    @property
    def waits(self) -> bool:
        """True if the end of the stream would give results, or release records that wait for earlier ones."""
        return any(each.waits for each in self.operators.values())

    @property
    def keeps(self) -> set[Window]:
        """The windows that the log is kept for."""
        return {kept for each in self.operators.values() if (kept := each.keeps) is not None}

    def load_tables(self, records: Sequence[Record]) -> list[Result]:
        """Static tables, before the stream; gives the results of their rows alone.

        Queries that are added later have these results in their snapshots.
        """
        removed = self.stream.schema.evolution.removed_relations
        records = [record for record in records if record.relation not in removed]
        self._state.tables = [*self._state.tables, *records]
        return [result for each in self.operators.values() for result in each.load_tables(records)]

    def add(self, query: Query) -> list[Result]:
        """Answer a query from now on; gives its results that are alive. Raises QueryError, UsageError."""
        return self.add_all([plan_of(query, self.stream)])

    def add_all(self, plans: Sequence[QueryPlan]) -> list[Result]:
        """Answer queries from now on, those of one group together; gives their results that are alive.

        Raises UsageError for a name that is taken, before any query is added; UsageError for a query that
        cannot be answered.
        """
        names: set[str] = set()
        for plan in plans:
            name = plan.query.name
            if name in names or name in self._plans:
                raise UsageError(f"there is already a query {name!r}")
            names.add(name)
        groups: dict[Key | None, list[QueryPlan]] = {}
        for plan in plans:
            groups.setdefault(self._key(plan), []).append(plan)
        results: list[Result] = []
        for key, group in groups.items():
            if key is not None:
                operator = self.operators.get(key) or group[0].operator(self._state)
                results += operator.add(group)
                self._place(group, key, operator)
            self._plans |= {plan.query.name: plan for plan in group}
        for plan in plans:  # results of one time come in order of queries, also where all stand at once
            self._plans[plan.query.name] = self._plans.pop(plan.query.name)
        return results

    def arrange(self, names: Sequence[str]) -> None:
        """Put all queries into the order in which they give their results of one time."""
        self._plans = {name: self._plans[name] for name in names}

    def remove(self, name: str) -> None:
        """Stop answering a query. Raises UsageError if there is none of that name."""
        if name not in self._plans:
            raise UsageError(f"no standing query {name!r}{nearest(name, self._plans)}")
        del self._plans[name]
        key = self._placed.pop(name, None)
        if key is not None:
            self.operators[key].remove(name)
            if not self.operators[key].stays:  # else queries may be very many
                self._drop_idle()

    def alive(self, name: str) -> list[Result]:
        """The results of a query that are alive now, as snapshots; nothing for a query that holds none.

        Raises UsageError for an unknown name.
        """
        if name not in self._plans:
            raise UsageError(f"no standing query {name!r}{nearest(name, self._plans)}")
        key, plan = self._placed.get(name), self._plan(name)
        if key is None:
            return []
        results = self.operators[key].alive(name)
        if results is not None or self.operators[key].keeps is None:
            return results or []
        return plan.operator(self._state).add([plan])

    def why_nothing(self, name: str) -> EmptyResult | None:
        """Why a query of keywords has no results among what lives; None for other kinds, or without rows."""
        key = self._placed.get(name)
        return None if key is None else self.operators[key].why_nothing(self._plan(name))

    def living_tuples(self) -> list[Result]:
        """The tuples of the stream that are alive, in order of time, each as a result of one tuple.

        None are held before a keyword query has begun, unless the session holds them from the start.
        """
        return [] if self._state.live is None else self._state.live.living_tuples()

    def make_space(self, tuples: int) -> None:
        """So many tuples come soon, as where a log is replayed."""
        if self._state.live is not None:
            self._state.live.make_space(tuples)

    def prepare_searches(self, most: int) -> bool:
        """Learn the words of at most so many live tuples for searches; True if there are more."""
        return self._state.live is not None and self._state.live.prepare_searches(most)

    def completions(self, start: str, most: int) -> list[tuple[str, int]]:
        """The ``most`` frequent words that begin with ``start`` (folded), with the live tuples they are in.

        Only words that searches have learned. Raises TimeLimitError.
        """
        return [] if self._state.live is None else self._state.live.completions(start, most)

    def present(self, since: int | None = None) -> PresentRows | None:
        """The rows that live now, until they change, for people who look at them; None if none are held.

        ``since``: those before this event time, in microseconds, are left out.
        """
        return None if self._state.live is None else self._state.live.present(since)

    def why_live_rows_give_nothing(self, plan: QueryPlan) -> EmptyResult | None:
        """As ``why_nothing``, for a query that need not stand."""
        return None if self._state.live is None else self._state.live.why_nothing(plan)

    def search(self, plan: QueryPlan, most: int) -> Searched:
        """The ``most`` best results of keywords that are alive now.

        The plan has a ranking, and does not stay. Raises UsageError if no live tuples are held;
        TimeLimitError, after which the session goes on as before.
        """
        if self._state.live is None:
            raise UsageError(NOTHING_LIVES)
        return self._state.live.search(plan, most)

    def change_schema(self, text: str) -> list[Result]:
        """Go on with the schema of a YAML text, which was checked (``check_change``).

        Gives the retractions of results over removed relations and joins, then
        the results of new joins among live tuples. Records refer to
        ``stream.schema``, in which relations keep their positions. Raises SchemaError.
        """
        state, before = self._state, self.stream
        state.stream = changed(before, text)
        change = SchemaChange(before.schema, self.stream.schema)
        state.order.pass_over(change.removed_relations)
        state.since |= dict.fromkeys(change.added[0], self.position)
        state.tables = [r for r in state.tables if r.relation not in change.removed_relations]
        changes = {}
        for key, each in self.operators.items():
            if each is state.live:
                changes[key] = state.live.change_schema(change, text)
            else:
                self.operators[key], changes[key] = self._over(change, key, each)
        return [result for results in self._by_query(_merged(changes.values())) for result in results]

    def _over(
        self, change: SchemaChange, key: Key, former: Operator
    ) -> tuple[Operator, dict[str, list[Result]]]:
        """An operator over the schema that holds now, in place of a former one, and what its results change.

        The former one itself if it reads nothing that changes.
        """
        state = self._state
        plans = [self._plan(name) for name, its in self._placed.items() if its == key]
        if former.untouched_by(change, plans):
            return former, {}
        operator = plans[0].operator(state)
        states = former.snapshot()
        if former.keeps is None:
            operator.restore(states, plans)
        else:
            expected = state.expected
            state.expected = {**states, **expected}
            operator.add(plans)
            state.expected = expected
        return operator, operator.take_over(former)

    def sort_out(self, batch: RecordBatch) -> RecordBatch:
        """The records of a micro-batch that are not late, in order of arrival.

        Late ones are reported and counted. For hosts with a log: it then has no late records, wherever a
        replay of it begins.
        """
        return self._state.order.sort_out(batch)

    def take(
        self,
        batch: RecordBatch,
        *,
        ended: bool = False,
        reached: int | None = None,
        settled: int | None = None,
    ) -> list[Result]:
        """Process a micro-batch, whose records may be in any order; gives the results by time.

        ``reached`` and ``settled``: as of ``replay``.
        """
        self._leave_step(settled)
        results = list(self.process(batch, ended=ended))
        if reached is not None:
            self.seek(self.position, reached)
            results += self.process(NO_RECORDS)
        return results if settled is None else results + self.settle(settled)

    def process(self, batch: RecordBatch, *, ended: bool = False) -> Iterator[Result]:
        """As ``take``; the results of a single query, or of keywords alone, are given as they are found."""
        return self._processed(batch, ended=ended)

    def replay(
        self,
        batch: LongBatch,
        begins: Begins | None = None,
        *,
        ended: bool = False,
        lasting: bool = False,
        reached: int | None = None,
        settled: int | None = None,
        recent: Sequence[LoggedBatch] = (),
    ) -> None:
        """Process a micro-batch of the log again, for operators that are rebuilt from it.

        ``begins``: what ``begins`` gave after it; None if that comes with the next one. ``lasting``: it has
        ``lasting_records`` in place of all before; then those that do not last are rebuilt from what is
        ``recent``. ``reached`` and ``settled``: the latest time and the stream time after it, None as the
        records say.
        """
        self._leave_step(settled)
        others = self._readers if record_count(recent) else []
        others = [each for each in others if _is_within(each.keeps, self.stream.window)]
        final = self.final
        if lasting:
            first = recent[0].position if record_count(recent) else None
            self.log_replaced(LogPart(batch.latest, self.position + batch.insertions), first)
        told = begins is None  # else results, and what is known of them, come to nothing
        left = self._taken_up(batch, others) if lasting else batch
        for part in self._parts(left) if lasting else [batch.whole]:
            self._replay(part, without=others, told=told)
        if left is not batch and batch.latest is not None:
            self._state.order.count(batch.insertions - left.insertions, batch.latest)
        if reached is not None or settled is not None:
            self.seek(self.position, self.now if reached is None else reached, settled)
            # Before others are rebuilt, which would read again what waits for that here.
            self._replay(NO_RECORDS, without=others, told=told)
        if others:
            logged = LoggedBatch(self.position, ALWAYS, batch.whole, final, recent)
        for each in others:
            assert each.keeps is not None  # noqa: S101 - it is within another window
            each.rebuild(self._state.as_it_came(logged, each.keeps))
        if ended:
            for each, some in self._inputs(NO_RECORDS, ended=True, replayed=True):
                exhaust(each.process(some) if len(some.batch) else {})
                exhaust(each.finish())
        if begins is not None:
            for each in self.operators.values():
                each.expect_begins(begins)

    def _taken_up(self, batch: LongBatch, without: Sequence[Operator]) -> LongBatch:
        """What is left of ``lasting_records`` when what holds the live tuples has taken them up."""
        live = self._state.live
        reading = [each for each in self.operators.values() if each.keeps is not None and each not in without]
        return batch if live is None or reading != [live] else live.take_up(batch)

    def _replay(self, batch: RecordBatch, *, without: Sequence[Operator], told: bool) -> None:
        for each, some in self._inputs(batch, ended=False, replayed=True):
            if each not in without and len(some.batch):
                if told:
                    exhaust(each.process(some))
                else:
                    each.replay(some)

    def _parts(self, batch: LongBatch) -> Iterator[RecordBatch]:
        """A batch in place of all of a log, which may be very long, in parts.

        In one where results are corrected, as when they begin is told with the batch that updates them.
        """
        if self.stream.lateness or self.final is not None:
            yield batch.whole
            return
        yield from batch.parts(PART)

    def log_replaced(self, whole: LogPart, recent: int | None = None) -> None:
        """The log has ``lasting_records`` from now on, of which ``whole`` tells.

        ``recent``: the position of the first record that is kept as it came; None if none is.
        """
        self._state.counted_from = whole.after if recent is None else recent
        self._state.past_lives = whole if recent is None else None

    def begins(self) -> dict[str, list[Begin]]:
        """The begins of results that were updated since the last call, which a log keeps with its records."""
        begins_by_query = _merged(each.begins() for each in self.operators.values())
        return {name: list(begins) for name, begins in begins_by_query.items() if begins}

    def all_begins(self) -> dict[str, list[Begin]]:
        """The begins of all live results that were updated."""
        begins_by_query = _merged(each.all_begins() for each in self.operators.values())
        return {name: list(begins) for name, begins in begins_by_query.items() if begins}

    @property
    def living(self) -> int:
        """Tuples that are alive: ``lasting_records``, which copies them, gives as many at least, or None."""
        return max((each.living for each in self.operators.values()), default=0)

    def lasting_records(self) -> LastingRecords | None:
        """The records in place of all of the log so far, in order of time: they lead to the present state.

        For operators with shorter windows what is ``recent`` is kept beside them.

        Records that wait for earlier ones are among them as they came: operators that read in order have not
        seen them. None if some operator needs all that its window holds, or has read what lives in place of
        it; or if a record waits that was ``passed_over``, of which only the position is known.
        """
        waiting = self._state.order.waiting
        if (waiting.relation == PASSED_OVER).any():
            return None
        lasting_operators = [each for each in self.operators.values() if each.lasts]
        if self._state.stream.by_count or len({each.keeps for each in lasting_operators}) != 1:
            return None
        (window,) = {each.keeps for each in lasting_operators}
        if not all(_is_within(each.keeps, window) for each in self._readers):
            return None
        past_lives = self._state.past_lives
        if past_lives is not None and not self._is_over(past_lives):
            return None
        first_records = None
        for each in lasting_operators:
            lasting = each.lasting_records()
            if lasting is None:
                return None
            first_records = first_records or lasting
        return first_records if first_records is None else first_records.waiting_for(waiting)

    def recent(self, past: Iterable[LoggedBatch]) -> tuple[LoggedBatch, ...]:
        """Of a log as it came, what operators need for which what lives is not enough; with where it ends."""
        batches: list[LoggedBatch] = []
        order = Order(self.stream)
        for number, logged in enumerate(past if self._readers else ()):
            if not number:
                order.seek(logged.position, logged.now)
            if logged.final is not None:
                order.settle(logged.final)
            batches.append(LoggedBatch(order.position, order.now, logged.batch, logged.final))
            order.accepted(logged.batch)
        batches.append(LoggedBatch(self.position, self.now, NO_RECORDS, self.final))
        parts = [LogPart(one.batch.latest, after.position) for one, after in pairwise(batches)]
        return tuple(batches[sum(1 for _ in takewhile(self._is_over, parts)) :])

    @property
    def keeps_recent(self) -> set[Window]:
        """The windows that the log is kept for as it came, beside ``lasting_records``."""
        return {each.keeps for each in self._readers if each.keeps is not None}

    def _is_over(self, part: LogPart) -> bool:
        """Whether operators that are rebuilt from the log as it came do without a part of it."""
        return Retention(self.keeps_recent).over(part, self.settled, self.position)

    @property
    def _readers(self) -> list[Operator]:
        """Operators that are rebuilt from the log as it came."""
        return [each for each in self.operators.values() if each.keeps is not None and not each.lasts]

    def advance(self, now: int) -> list[Result]:
        """What happens up to a time, in microseconds, at which no more records come."""
        results_by_query = self._by_query(_merged(each.advance(now) for each in self.operators.values()))
        return in_order_of_time([list(part) for part in results_by_query])

    def count(self, batch: RecordBatch) -> int:
        """The number of results of a batch in order; the only query is a pattern. Results are not formed."""
        (key,) = self._placed.values()
        order = self._state.order
        arrived = order.in_order(order.accepted(batch))
        return self.operators[key].count(arrived) if len(arrived.batch) else 0

    def counts(self) -> Counts:
        """Records so far, and the results of all operators."""
        counts = replace(self._state.order.counts)
        for own in (counts for each in self.operators.values() for counts in each.counts()):
            counts.static = max(counts.static, own.static)
            counts.unmatched_deletions = max(counts.unmatched_deletions, own.unmatched_deletions)
            counts.excluded = max(counts.excluded, own.excluded)
            counts.kept = max(counts.kept, own.kept)
            counts.results += own.results
            counts.retractions += own.retractions
            counts.updates += own.updates
        return counts

    def settle(self, final: int) -> list[Result]:
        """All partitions of the stream have come to a time, in microseconds; gives what waited for that.

        From the first call on this, in place of the latest record, says which records are late, and what
        queries that read the stream in order get. Up to the first call, records came in order.
        """
        self._state.order.settle(final)
        results = self.take(NO_RECORDS)
        for each in self.operators.values():  # a log may lose what is before this time, and their states know
            each.seek()
        return results

    def final_before(self, settled: int | None) -> int | None:
        """The stream time before a micro-batch, by that after it; None while the latest record says both."""
        return self.now if self.final is None and settled is not None else self.final

    def _leave_step(self, settled: int | None) -> None:
        """Up to here partitions were in step, if nothing has told a stream time yet."""
        if self.final is None and settled is not None:
            self.settle(self.now)

    def seek(self, position: int, now: int, final: int | None = None) -> None:
        """Move to a position of the stream; the records up to there are not processed, or not all of them.

        ``final``: as ``settle``, None for a stream whose latest record says it.
        """
        self._state.order.seek(position, now)
        if final is not None:
            self._state.order.settle(final)
        for each in self.operators.values():
            each.seek()

    def snapshot(self) -> dict[str, bytes]:
        """The states of what is not rebuilt from the log: by query, and one that keyword queries share.

        A query that is rebuilt from the log has a state only where the log leaves something open. If it gives
        none any more, its last one still holds.
        """
        return {name: state for each in self.operators.values() for name, state in each.snapshot().items()}

    def expect(self, states: Mapping[str, bytes]) -> None:
        """Take a ``snapshot`` before the log up to it is replayed; ``restore`` it behind the replay."""
        self._state.expected = states
        for each in self.operators.values():
            each.expect()

    def restore(self, states: Mapping[str, bytes]) -> None:
        """Inverse of ``snapshot``; queries whose states agree share an operator again."""
        self._state.expected = {}
        groups: dict[tuple[Key, bytes], list[QueryPlan]] = {}
        for name in self._plans:
            key = self._placed.get(name)
            if key is None or name not in states:
                continue
            if self.operators[key].keeps is None:
                origin = blake2b(states[name]).digest()
                groups.setdefault((key, origin), []).append(self._plan(name))
                self.operators[key].remove(name)
                del self._placed[name]
        used_keys = set(self._placed.values())
        for (key, origin), plans in groups.items():
            operator = plans[0].operator(self._state) if key in used_keys else self.operators[key]
            used_keys.add(key)
            operator.restore(states, plans)
            self._place(plans, (key[0], (key[1], origin)), operator)
        self._drop_idle()

    def window_spans(self, name: str) -> list[WindowSpan]:
        """The windows, ended and open, of a query over a window expression; none for other queries."""
        key = self._placed.get(name)
        return [] if key is None else self.operators[key].window_spans()

    def load(self) -> Load:
        """What all operators hold together."""
        return Load.total([each.load() for each in self.operators.values()])

    def used(self, name: str | None = None) -> list[OperatorUse]:
        """The operators of the meshes of keyword queries that have been used; of one query, or of all."""
        key = None if name is None else self._placed.get(name)
        operators = [each for its, each in self.operators.items() if name is None or its == key]
        return [use for each in operators for use in each.used(name)]

    def adding_needs_past(self, kind: str) -> bool:
        """True if a query of a kind reads the log when it is added now."""
        operators = (operator for (of, _), operator in self.operators.items() if of == kind)
        return all(each.adding_needs_log for each in operators)

    @property
    def changing_needs_past(self) -> bool:
        """True if a query reads the log again when the schema changes."""
        return any(each.adding_needs_log and each.keeps is not None for each in self.operators.values())

    def _plan(self, name: str) -> QueryPlan:
        """That of a query over the schema that holds now."""
        plan = self._plans[name]
        if plan.stream.schema is not self.stream.schema:
            plan = self._plans[name] = plan.over(self.stream)
        return plan

    def _key(self, plan: QueryPlan) -> Key | None:
        """The key of the operator that answers a query; None if nothing of it belongs here."""
        group = plan.group(self._state)
        return None if group is None else (plan.query.kind, group)

    def _place(self, plans: Iterable[QueryPlan], key: Key, operator: Operator) -> None:
        self.operators[key] = operator
        self._placed |= {plan.query.name: key for plan in plans}

    def _drop_idle(self) -> None:
        """Forget operators without queries."""
        used = set(self._placed.values())
        self.operators = {key: each for key, each in self.operators.items() if each.stays or key in used}

    def _by_query(self, results_by_query: Mapping[str, Iterable[Result]]) -> list[Iterable[Result]]:
        """The results that keyword queries share, then those of others in the order of their queries."""
        if results_by_query.keys() <= {SHARED}:  # as is usual, and queries may be very many
            return list(results_by_query.values())
        return [results_by_query[name] for name in (SHARED, *self._plans) if name in results_by_query]

    def _inputs(
        self, batch: RecordBatch, *, ended: bool, replayed: bool
    ) -> list[tuple[Operator, OrderedBatch]]:
        """What operators get of the next records; if they are ``replayed``, those rebuilt from the log."""
        order = self._state.order
        accepted = order.accepted(passed_over(batch, self.stream.schema.evolution.removed_relations))
        in_order, at_once = order.in_order(accepted, ended=ended), order.at_once(accepted)
        operators = [each for each in self.operators.values() if not replayed or each.keeps is not None]
        return [(each, in_order if each.in_order else at_once) for each in operators]

    def _processed(self, batch: RecordBatch, *, ended: bool) -> Iterator[Result]:
        inputs = self._inputs(batch, ended=ended, replayed=False)
        parts = self._by_query(_merged(each.process(some) for each, some in inputs if len(some.batch)))
        if ended:
            parts += self._by_query(_merged(each.finish() for each, _ in inputs))
        if len(parts) == 1:
            yield from memory_checked(parts[0])
        else:
            yield from in_order_of_time([list(memory_checked(part)) for part in parts])


PART: Final = BATCH
"""Records of a log that are processed at once."""

_Of = TypeVar("_Of")


def _is_within(window: Window | None, other: Window | None) -> bool:
    return window is not None and other is not None and is_shorter(window, other)


def _merged(groups: Iterable[Mapping[str, Iterable[_Of]]]) -> dict[str, Iterable[_Of]]:
    return {name: results for each in groups for name, results in each.items()}


def bounded_session(
    plans: Sequence[QueryPlan], stream: Stream, batches: Iterator[RecordBatch], share: Part = WHOLE
) -> tuple[Session, Iterator[RecordBatch]]:
    """A session that has queries, and the records of a stream that ends, in batches of whole instants.

    Without tables, which are to be loaded first, the first records order the keywords of queries.
    """
    if not any(relation.table for relation in stream.schema.relations):
        first = next(batches, NO_RECORDS)
        stream, batches = replace(stream, sample=first), chain([first], batches)
    session = Session(stream, share, keywords=False)
    session.add_all(plans)
    return session, whole_instants(batches)
