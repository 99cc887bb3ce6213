"""A session: answers all queries of one stream, batch by batch."""

from __future__ import annotations

from collections import Counter
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
    RecordBatch,
    align_to_timestamps,
    large_batches,
    unheard,
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
from skws_schema.errors import UsageError, nearest, shown
from skws_schema.evolution import SchemaChange
from skws_windows.window import Window

if TYPE_CHECKING:  # loaded only for keywords, and for window expressions
    from skws.queries.keywords.diagnosis import EmptyResult
    from skws.queries.keywords.present_rows import PresentRows
    from skws.queries.keywords.searching import Searched
    from skws.queries.windowed.stream_windows import WindowSpan
    from skws.store.live_store import LiveRecords


class Session:
    """Answers queries of any kinds. ``share``: the results that belong to the session.

    ``keywords``: if True, the session holds live tuples from the start; else from the first
    keyword query on. ``past`` returns the log, oldest first, for queries that are
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
        self._key_by_query: dict[str, Key] = {}  # the key of each query's operator, if it has one, by name
        self._query_counts: Counter[Key] = Counter()  # the number of queries of each operator that has any
        self.operators: dict[Key, Operator] = {}
        """One for each group of queries, by kind and group; the one for keywords stays without queries."""
        if keywords:
            key, live = live_tuples(self._state)
            self.operators[key] = live
            live.begin()

    @property
    def stream(self) -> Stream:
        """The stream, with its current schema."""
        return self._state.stream

    @property
    def position(self) -> int:
        """The position of the next insertion in the stream."""
        return self._state.order.position

    @property
    def now(self) -> int:
        """The latest tick: microseconds, or ticks of a count window (``skws_windows.window``)."""
        return self._state.order.now

    @property
    def final(self) -> int | None:
        """The time that all partitions have reached (``settle``); None if nothing has reported one."""
        return self._state.order.final

    @property
    def horizon(self) -> int:
        """The tick before which no record comes any more."""
        return self._state.order.horizon

    @property
    def settled(self) -> int:
        """The latest event time that all queries have processed: some wait for late records."""
        return self._state.order.settled

    @property
    def latest(self) -> int | None:
        """The latest event time."""
        return self._state.order.latest

    @property
    def waits(self) -> bool:
        """True if the end of the stream would produce results, or release records that wait for others."""
        return any(each.waits for each in self.operators.values())

    @property
    def keeps(self) -> set[Window]:
        """The windows for which the log is kept."""
        return {kept for each in self.operators.values() if (kept := each.keeps) is not None}

    def load_tables(self, batches: Iterable[RecordBatch]) -> list[Result]:
        """Load static tables, before the stream; returns the results of their rows alone.

        Queries that are added later have these results in their snapshots.
        """
        removed_relations = self.stream.schema.evolution.removed_relations
        tables = large_batches(batch.without(removed_relations) for batch in batches)
        self._state.tables = [*self._state.tables, *tables]
        return [result for each in self.operators.values() for result in each.load_tables(tables)]

    def add(self, query: Query) -> list[Result]:
        """Answer a query from now on; returns its results that are alive. Raises QueryError, UsageError."""
        return self.add_all([plan_of(query, self.stream)])

    def add_all(self, plans: Sequence[QueryPlan]) -> list[Result]:
        """Answer queries from now on, those of one group together; returns their results that are alive.

        Raises UsageError for a name in use, before any query is added; UsageError for a query that
        cannot be answered.
        """
        names: set[str] = set()
        for plan in plans:
            name = plan.query.name
            if name in names or name in self._plans:
                raise UsageError(f"there is already a query {shown(name)}")
            names.add(name)
        groups: dict[Key | None, list[QueryPlan]] = {}
        for plan in plans:
            groups.setdefault(self._key(plan), []).append(plan)
        results: list[Result] = []
        for key, group in groups.items():
            if key is not None:
                operator = self.operators.get(key) or group[0].operator(self._state)
                results += operator.add(group)
                self._set_operator(group, key, operator)
            self._plans |= {plan.query.name: plan for plan in group}
        for plan in plans:  # results of one time come in order of queries, also if these are added together
            self._plans[plan.query.name] = self._plans.pop(plan.query.name)
        return results

    def arrange(self, names: Sequence[str]) -> None:
        """Set the order of all queries, in which their results of one time are emitted."""
        self._plans = {name: self._plans[name] for name in names}

    def remove(self, name: str) -> None:
        """Stop answering a query. Raises UsageError if there is none of that name."""
        if name not in self._plans:
            raise UsageError(f"no standing query {shown(name)}{nearest(name, self._plans)}")
        del self._plans[name]
        if name in self._key_by_query:
            self._drop_if_idle(self._remove_from_operator(name))

    def alive(self, name: str) -> list[Result]:
        """The results of a query that are alive now, as snapshots; empty for a query that holds no results.

        Raises UsageError for an unknown name.
        """
        if name not in self._plans:
            raise UsageError(f"no standing query {shown(name)}{nearest(name, self._plans)}")
        key, plan = self._key_by_query.get(name), self._plan(name)
        if key is None:
            return []
        results = self.operators[key].alive(name)
        if results is not None or self.operators[key].keeps is None:
            return results or []
        return plan.operator(self._state).add([plan])

    def why_nothing(self, name: str) -> EmptyResult | None:
        """Why a keyword query has no results among the live tuples; None for other kinds, or without rows."""
        key = self._key_by_query.get(name)
        return None if key is None else self.operators[key].why_nothing(self._plan(name))

    def living_tuples(self) -> list[Result]:
        """The tuples of the stream that are alive, in order of time, each as a result of one tuple.

        None are held before a keyword query has begun, unless the session holds them from the start.
        """
        return [] if self._state.live is None else self._state.live.living_tuples()

    def make_space(self, tuples: int) -> None:
        """Make space for tuples that come soon, as when a log is replayed."""
        if self._state.live is not None:
            self._state.live.make_space(tuples)

    def prepare_searches(self, most: int) -> bool:
        """Index the words of at most ``most`` live tuples for searches; returns True if there are more."""
        return self._state.live is not None and self._state.live.prepare_searches(most)

    def completions(self, start: str, most: int) -> list[tuple[str, int]]:
        """The ``most`` frequent words that begin with ``start`` (folded), with their numbers of live tuples.

        Only includes words that are indexed for searches. Raises TimeLimitError.
        """
        return [] if self._state.live is None else self._state.live.completions(start, most)

    def present(self, since: int | None = None) -> PresentRows | None:
        """The live rows for display, valid until they change; None if none are held.

        ``since``: rows before this event time, in microseconds, are left out.
        """
        return None if self._state.live is None else self._state.live.present(since)

    def why_live_rows_give_nothing(self, plan: QueryPlan) -> EmptyResult | None:
        """As ``why_nothing``, for a query that need not be in the session."""
        return None if self._state.live is None else self._state.live.why_nothing(plan)

    def search(self, plan: QueryPlan, most: int) -> Searched:
        """The ``most`` best results of keywords that are alive now.

        The plan has a ranking, and is not added. Raises UsageError if no live tuples are held;
        TimeLimitError, after which the session is usable as before.
        """
        if self._state.live is None:
            raise UsageError(NOTHING_LIVES)
        return self._state.live.search(plan, most)

    def change_schema(self, text: str) -> list[Result]:
        """Switch to the schema in a YAML text, which was checked (``check_change``).

        Returns the retractions of results over removed relations and joins, then
        the results of new joins among live tuples. Later records refer to
        ``stream.schema``, in which relations keep their positions. Raises SchemaError.
        """
        state, before = self._state, self.stream
        state.stream = changed(before, text)
        change = SchemaChange(before.schema, self.stream.schema)
        state.order.pass_over(change.removed_relations)
        state.since |= dict.fromkeys(change.added[0], self.position)
        state.tables = [batch.without(change.removed_relations) for batch in state.tables]
        changes = {}
        for key, operator in self.operators.items():
            if operator is state.live:
                changes[key] = state.live.change_schema(change, text)
            else:
                self.operators[key], changes[key] = self._operator_over(change, key, operator)
        return [result for results in self._by_query(_merged(changes.values())) for result in results]

    def _operator_over(
        self, change: SchemaChange, key: Key, former: Operator
    ) -> tuple[Operator, dict[str, list[Result]]]:
        """An operator over the current schema that replaces a former one, and the changes to its results.

        The former one itself if it reads nothing that changes.
        """
        state = self._state
        plans = [self._plan(name) for name, operator_key in self._key_by_query.items() if operator_key == key]
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

        Late ones are reported and counted. Hosts with a log call this first, so that the log has no late
        records, wherever its replay begins.
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
        """Process a micro-batch, whose records may be in any order; returns the results by time.

        ``reached`` and ``settled``: see ``replay``.
        """
        self._leave_step(settled)
        results = list(self.process(batch, ended=ended))
        if reached is not None:
            self.seek(self.position, reached)
            results += self.process(NO_RECORDS)
        return results if settled is None else results + self.settle(settled)

    def process(self, batch: RecordBatch, *, ended: bool = False) -> Iterator[Result]:
        """As ``take``; the results of a single query, or of keywords alone, are yielded as they are found."""
        return self._results_of(batch, ended=ended)

    def replay(
        self,
        batch: LongBatch,
        begins: Begins | None = None,
        *,
        ended: bool = False,
        live: bool = False,
        reached: int | None = None,
        settled: int | None = None,
        recent: Sequence[LoggedBatch] = (),
    ) -> None:
        """Process a micro-batch of the log again, for operators that are rebuilt from it.

        ``begins``: what ``begins`` returned after it; None if that comes with the next one. ``live``: the
        batch has ``live_records`` in place of the log before; operators that need the original log are
        then rebuilt from ``recent``. ``reached`` and ``settled``: the latest time and the stream time after
        the batch; None if the records determine them.
        """
        self._leave_step(settled)
        readers = self._readers if record_count(recent) else []
        readers = [operator for operator in readers if _is_within(operator.keeps, self.stream.window)]
        final = self.final
        if live:
            first = recent[0].position if record_count(recent) else None
            self.log_replaced(LogPart(batch.latest, self.position + batch.insertions), first)
        needs_results = begins is None  # else the results, and their begins, are not needed
        remaining = self._take_up(batch, readers) if live else batch
        for part in self._parts(remaining) if live else [batch.whole]:
            self._replay(part, without=readers, needs_results=needs_results)
        if remaining is not batch and batch.latest is not None:
            self._state.order.count(batch.insertions - remaining.insertions, batch.latest)
        if reached is not None or settled is not None:
            self.seek(self.position, self.now if reached is None else reached, settled)
            # Before the readers are rebuilt, as these would read again the records that wait for this time.
            self._replay(NO_RECORDS, without=readers, needs_results=needs_results)
        if readers:
            logged = LoggedBatch(self.position, ALWAYS, batch.whole, final, recent)
        for operator in readers:
            assert operator.keeps is not None  # noqa: S101 - it is within another window
            operator.rebuild(self._state.batches_for(logged, operator.keeps))
        if ended:
            for operator, arrived in self._inputs(NO_RECORDS, ended=True, replayed=True):
                exhaust(operator.process(arrived) if len(arrived.batch) else {})
                exhaust(operator.finish())
        if begins is not None:
            for operator in self.operators.values():
                operator.expect_begins(begins)

    def _take_up(self, batch: LongBatch, without: Sequence[Operator]) -> LongBatch:
        """Load ``live_records`` into the operator that holds the live tuples; returns the others."""
        live = self._state.live
        rebuilt_operators = [
            each for each in self.operators.values() if each.keeps is not None and each not in without
        ]
        return batch if live is None or rebuilt_operators != [live] else live.take_up(batch)

    def _replay(self, batch: RecordBatch, *, without: Sequence[Operator], needs_results: bool) -> None:
        for operator, arrived in self._inputs(batch, ended=False, replayed=True):
            if operator not in without and len(arrived.batch):
                if needs_results:
                    exhaust(operator.process(arrived))
                else:
                    operator.replay(arrived)

    def _parts(self, batch: LongBatch) -> Iterator[RecordBatch]:
        """A batch that replaces a whole log, which may be very long, in parts.

        It is one part if results are corrected, since their begins come with the batch that updates them.
        """
        if self.stream.lateness or self.final is not None:
            yield batch.whole
            return
        yield from batch.parts(PART)

    def log_replaced(self, part: LogPart, recent: int | None = None) -> None:
        """Note that ``live_records`` have replaced a ``part`` of the log.

        ``recent``: the position of the first original record that is kept; None if none is.
        """
        self._state.counted_from = part.after if recent is None else recent
        self._state.past_lives = part if recent is None else None

    def begins(self) -> dict[str, list[Begin]]:
        """The begins of results that were updated since the last call; a log keeps them with its records."""
        begins_by_query = _merged(each.begins() for each in self.operators.values())
        return {name: list(begins) for name, begins in begins_by_query.items() if begins}

    def all_begins(self) -> dict[str, list[Begin]]:
        """The begins of all live results that were updated."""
        begins_by_query = _merged(each.all_begins() for each in self.operators.values())
        return {name: list(begins) for name, begins in begins_by_query.items() if begins}

    @property
    def living(self) -> int:
        """The number of live tuples: ``live_records`` copies at least as many records, or returns None."""
        return max((each.living for each in self.operators.values()), default=0)

    def live_records(self) -> LiveRecords | None:
        """Records that can replace the whole log so far, in order of time: they rebuild the present state.

        Operators with shorter windows also need the ``recent`` log.

        Records that wait for earlier ones are included unchanged: operators that read in order have not
        seen them. None if some operator needs the original log of its window, or has read live tuples in
        place of it; or if a waiting record was ``passed_over``, since only its position is known.
        """
        waiting_records = self._state.order.waiting
        if (waiting_records.relation == PASSED_OVER).any():
            return None
        live_operators = [each for each in self.operators.values() if each.lasts]
        if self._state.stream.by_count or len({each.keeps for each in live_operators}) != 1:
            return None
        (window,) = {each.keeps for each in live_operators}
        if not all(_is_within(each.keeps, window) for each in self._readers):
            return None
        past_lives = self._state.past_lives
        if past_lives is not None and not self._is_over(past_lives):
            return None
        first_records = None
        for each in live_operators:
            records = each.live_records()
            if records is None:
                return None
            first_records = first_records or records
        return first_records if first_records is None else first_records.waiting_for(waiting_records)

    def recent(self, past: Iterable[LoggedBatch]) -> tuple[LoggedBatch, ...]:
        """The part of the original log that some operators need beside the live tuples, and its end."""
        batches: list[LoggedBatch] = []
        order = Order(self.stream)
        for number, logged_batch in enumerate(past if self._readers else ()):
            if not number:
                order.seek(logged_batch.position, logged_batch.now)
            if logged_batch.final is not None:
                order.settle(logged_batch.final)
            batches.append(LoggedBatch(order.position, order.now, logged_batch.batch, logged_batch.final))
            order.accepted(logged_batch.batch)
        batches.append(LoggedBatch(self.position, self.now, NO_RECORDS, self.final))
        parts = [LogPart(batch.batch.latest, next_batch.position) for batch, next_batch in pairwise(batches)]
        return tuple(batches[sum(1 for _ in takewhile(self._is_over, parts)) :])

    @property
    def keeps_recent(self) -> set[Window]:
        """The windows for which the original log is kept beside ``live_records``."""
        return {each.keeps for each in self._readers if each.keeps is not None}

    def _is_over(self, part: LogPart) -> bool:
        """True if operators that are rebuilt from the original log no longer need a part of it."""
        return Retention(self.keeps_recent).is_obsolete(part, self.settled, self.position)

    @property
    def _readers(self) -> list[Operator]:
        """Operators that are rebuilt from the original log."""
        return [each for each in self.operators.values() if each.keeps is not None and not each.lasts]

    def advance(self, now: int) -> list[Result]:
        """Advance to a time, in microseconds, before the next record; returns the changes to results."""
        results_by_query = self._by_query(_merged(each.advance(now) for each in self.operators.values()))
        return in_order_of_time([list(part) for part in results_by_query])

    def count(self, batch: RecordBatch) -> int:
        """The number of results of a batch in order, without forming them; the only query is a pattern."""
        (key,) = self._key_by_query.values()
        order = self._state.order
        arrived = order.in_order(order.accepted(batch))
        return self.operators[key].count(arrived) if len(arrived.batch) else 0

    def counts(self) -> Counts:
        """The numbers of records so far, and of results of all operators."""
        counts = replace(self._state.order.counts)
        for operator_counts in (counts for each in self.operators.values() for counts in each.counts()):
            counts.static = max(counts.static, operator_counts.static)
            counts.unmatched_deletions = max(counts.unmatched_deletions, operator_counts.unmatched_deletions)
            counts.excluded = max(counts.excluded, operator_counts.excluded)
            counts.kept = max(counts.kept, operator_counts.kept)
            counts.results += operator_counts.results
            counts.retractions += operator_counts.retractions
            counts.updates += operator_counts.updates
        return counts

    def settle(self, final: int) -> list[Result]:
        """Note that all partitions have reached a time, in microseconds; returns results that waited for it.

        From the first call on this time, not the latest record, decides which records are late and which are
        passed to queries that read in order. Up to the first call, records came in order.
        """
        self._state.order.settle(final)
        results = self.take(NO_RECORDS)
        for each in self.operators.values():  # their states note this time, before which the log may end
            each.seek()
        return results

    def final_before(self, settled: int | None) -> int | None:
        """The stream time before a micro-batch, given that after it; None if the latest record sets both."""
        return self.now if self.final is None and settled is not None else self.final

    def _leave_step(self, settled: int | None) -> None:
        """Before the first stream time, settle the present time: partitions were in step up to here."""
        if self.final is None and settled is not None:
            self.settle(self.now)

    def seek(self, position: int, now: int, final: int | None = None) -> None:
        """Move to a position of the stream; the records before it are skipped, at least in part.

        ``final``: as for ``settle``; None if the latest record sets the stream time.
        """
        self._state.order.seek(position, now)
        if final is not None:
            self._state.order.settle(final)
        for each in self.operators.values():
            each.seek()

    def snapshot(self) -> dict[str, bytes]:
        """The states that cannot be rebuilt from the log: by query, and one that keyword queries share.

        A query that is rebuilt from the log has a state only if the log does not determine it. If it returns
        none any more, its last state is still valid.
        """
        return {name: state for each in self.operators.values() for name, state in each.snapshot().items()}

    def expect(self, states: Mapping[str, bytes]) -> None:
        """Accept a ``snapshot`` before the log up to it is replayed; call ``restore`` after the replay."""
        self._state.expected = states
        for each in self.operators.values():
            each.expect()

    def restore(self, states: Mapping[str, bytes]) -> None:
        """Inverse of ``snapshot``; queries with equal states share an operator again."""
        self._state.expected = {}
        groups: dict[tuple[Key, bytes], list[QueryPlan]] = {}
        former_keys: dict[Key, None] = {}
        for name in self._plans:
            key = self._key_by_query.get(name)
            if key is None or name not in states:
                continue
            if self.operators[key].keeps is None:
                origin = blake2b(states[name]).digest()
                groups.setdefault((key, origin), []).append(self._plan(name))
                former_keys[self._remove_from_operator(name)] = None
        used_keys = set(+self._query_counts)
        for (key, origin), plans in groups.items():
            operator = plans[0].operator(self._state) if key in used_keys else self.operators[key]
            used_keys.add(key)
            operator.restore(states, plans)
            self._set_operator(plans, (key[0], (key[1], origin)), operator)
        for key in former_keys:
            self._drop_if_idle(key)

    def window_spans(self, name: str) -> list[WindowSpan]:
        """The windows, ended and open, of a query over a window expression; none for other queries."""
        key = self._key_by_query.get(name)
        return [] if key is None else self.operators[key].window_spans()

    def load(self) -> Load:
        """The total load of all operators."""
        return Load.total([each.load() for each in self.operators.values()])

    def used(self, name: str | None = None) -> list[OperatorUse]:
        """The mesh operators that a keyword query, or any of them, has used."""
        key = None if name is None else self._key_by_query.get(name)
        operators = [
            each for operator_key, each in self.operators.items() if name is None or operator_key == key
        ]
        return [use for each in operators for use in each.used(name)]

    def adding_needs_past(self, kind: str) -> bool:
        """True if a query of a kind reads the log when it is added now."""
        operators = (
            operator for (operator_kind, _), operator in self.operators.items() if operator_kind == kind
        )
        return all(each.adding_needs_log for each in operators)

    @property
    def changing_needs_past(self) -> bool:
        """True if a query reads the log again when the schema changes."""
        return any(each.adding_needs_log and each.keeps is not None for each in self.operators.values())

    def _plan(self, name: str) -> QueryPlan:
        """The plan of a query over the current schema."""
        plan = self._plans[name]
        if plan.stream.schema is not self.stream.schema:
            plan = self._plans[name] = plan.over(self.stream)
        return plan

    def _key(self, plan: QueryPlan) -> Key | None:
        """The key of the operator that answers a query; None if no result of it belongs to the session."""
        group = plan.group(self._state)
        return None if group is None else (plan.query.kind, group)

    def _set_operator(self, plans: Sequence[QueryPlan], key: Key, operator: Operator) -> None:
        self.operators[key] = operator
        self._key_by_query |= {plan.query.name: key for plan in plans}
        self._query_counts[key] += len(plans)

    def _remove_from_operator(self, name: str) -> Key:
        """Remove a query from its operator; returns the key of that."""
        key = self._key_by_query.pop(name)
        self.operators[key].remove(name)
        self._query_counts[key] -= 1
        return key

    def _drop_if_idle(self, key: Key) -> None:
        """Forget an operator that has no queries left."""
        if not self._query_counts[key]:
            del self._query_counts[key]
            if not self.operators[key].stays:
                del self.operators[key]

    def _by_query(self, results_by_query: Mapping[str, Iterable[Result]]) -> list[Iterable[Result]]:
        """The results that keyword queries share, then those of others in the order of their queries."""
        if results_by_query.keys() <= {SHARED}:  # the usual case; there may be very many queries
            return list(results_by_query.values())
        return [results_by_query[name] for name in (SHARED, *self._plans) if name in results_by_query]

    def _inputs(
        self, batch: RecordBatch, *, ended: bool, replayed: bool
    ) -> list[tuple[Operator, OrderedBatch]]:
        """The next records as each operator reads them; if ``replayed``, for those rebuilt from the log."""
        order = self._state.order
        accepted = order.accepted(passed_over(batch, self.stream.schema.evolution.removed_relations))
        in_order, at_once = order.in_order(accepted, ended=ended), order.at_once(accepted)
        operators = [each for each in self.operators.values() if not replayed or each.keeps is not None]
        return [(each, in_order if each.in_order else at_once) for each in operators]

    def _results_of(self, batch: RecordBatch, *, ended: bool) -> Iterator[Result]:
        inputs = self._inputs(batch, ended=ended, replayed=False)
        parts = self._by_query(
            _merged(each.process(arrived) for each, arrived in inputs if len(arrived.batch))
        )
        if ended:
            parts += self._by_query(_merged(each.finish() for each, _ in inputs))
        if len(parts) == 1:
            yield from memory_checked(parts[0])
        else:
            yield from in_order_of_time([list(memory_checked(part)) for part in parts])


PART: Final = BATCH
"""The number of records of a log that are processed at once."""

_Of = TypeVar("_Of")


def _is_within(window: Window | None, other: Window | None) -> bool:
    return window is not None and other is not None and is_shorter(window, other)


def _merged(groups: Iterable[Mapping[str, Iterable[_Of]]]) -> dict[str, Iterable[_Of]]:
    return {name: results for each in groups for name, results in each.items()}


def bounded_session(
    plans: Sequence[QueryPlan], stream: Stream, batches: Iterator[RecordBatch], share: Part = WHOLE
) -> tuple[Session, Iterator[RecordBatch]]:
    """A session with queries, and the records of a finite stream, in batches of whole instants.

    If the schema has no tables, which would be loaded first, the first records order the keywords of queries.
    """
    if not any(relation.table for relation in stream.schema.relations):
        first = next(batches, NO_RECORDS)
        stream, batches = replace(stream, sample=first), chain([first], batches)
    session = Session(stream, share, keywords=False)
    session.add_all(plans)
    return session, align_to_timestamps(batches)
