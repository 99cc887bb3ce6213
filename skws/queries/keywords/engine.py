"""The engine of keyword queries: passes ordered batches of records through the meshes of several queries.

Lifespans are settled for a whole batch before it is joined. A result that is found and retracted within one
batch is still emitted and retracted, each at its time. With lateness, a tuple that turns out to live longer
than assumed is joined again.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from functools import partial
from itertools import chain, pairwise
from operator import attrgetter
from typing import TYPE_CHECKING, Final

import numpy as np
from msgspec.structs import replace as struct_replace

from skws.data.batch import BATCH, LongBatch, Record, RecordBatch
from skws.index import source_batches
from skws.keywords.keyword_matching import KeywordMatching
from skws.keywords.plan import Plan
from skws.queries.evaluator import Counts, OrderedBatch
from skws.queries.keywords.keyword_operator import USUAL_SIZES, KeywordOperator, MeshEngine, Sizes
from skws.queries.keywords.live_results import EmittedResults, Found
from skws.queries.keywords.meshes import SharedPlans
from skws.queries.keywords.present_rows import PresentRows
from skws.queries.keywords.result_emitter import RETRACTED, Event, Output, events_in_order, in_order
from skws.queries.keywords.searching import Searched
from skws.queries.keywords.updates import Begin, CorrectedUpdates, updates_of
from skws.results.result import Result, ResultTuple
from skws.spec.enums import ToldUpdates
from skws.store.lifespan_resolver import LifespanResolver, Settled
from skws.store.live_store import LiveRecords, LiveStore
from skws.store.row_files import StoredRecords
from skws.store.table_tuples import table_tuples
from skws.store.tuple_batch import TupleBatch, natural_ends, of_tuples
from skws_mesh.columnar.columns import Flags, Ints, distinct
from skws_mesh.columnar.store import Partials
from skws_purging.lifespans import ALWAYS, StreamTuple
from skws_schema.budgets import Footprint, memory_checked, register
from skws_schema.errors import UsageError, shown
from skws_schema.evolution import SchemaChange
from skws_schema.model import Row, Schema, sourced
from skws_windows.window import FOREVER, MICROSECOND, CountWindow, Unbounded, Window, with_deletions

if TYPE_CHECKING:
    from skws.index.database import StoredTuples

RESULTS: Final = 1 << 18
"""The approximate number of results of one portion, which are in memory together as columns of integers."""
LOAD_SIZE: Final = BATCH
"""The number of tuples of row files that are loaded at a time."""
_OP: Final = attrgetter("op")
_FIRST_PORTION: Final = 2048  # tuples with keywords in the first portion: each may join every other
_INDEXED_TUPLES: Final = 1024  # tuples whose words are indexed before a word is completed
_SAMPLE_ROWS: Final = 128  # rows from which the share of rows with keywords is estimated


class KeywordEngine(MeshEngine):
    """Answers queries over one stream, which share its window, its live tuples and their index.

    The stream is already ordered (``skws.queries.order``). ``lateness``: how far records may lie behind the
    latest one, in microseconds. ``accepts_root``: False for the rows of root tuples whose results are left
    out. ``on_demand``: rows of tables with their own source are looked up when joins reach them, which the
    paper's meshes do not support; else all rows are loaded. ``sizes``: thresholds, see ``Sizes``.
    """

    def __init__(
        self,
        schema: Schema,
        window: Window,
        *,
        lateness: int = 0,
        accepts_root: Callable[[Row], bool] | None = None,
        updates: ToldUpdates = ToldUpdates.TELL,
        on_demand: bool = True,
        sizes: Sizes = USUAL_SIZES,
    ) -> None:
        self.schema = schema
        self._on_demand = on_demand
        self._loaded_tables: set[int] = set()  # tables with a source whose rows were all loaded
        self.window = window
        self._lifespans = with_deletions(window)
        self.lateness = lateness
        self.counts = Counts()
        self._accepts_root = accepts_root
        self._sizes = sizes
        self._operator = self._new_operator(schema)
        self._portions = Portions(self._operator.matching)
        self._results = EmittedResults(self._operator.emitter, self._store.directory)
        self._resolver = LifespanResolver(schema, self._lifespans, self._store, lateness)
        self._updates = updates_of(schema, self._lifespans, lateness, updates)
        self._queries = SharedPlans()
        self._record_count = 0  # number of records so far
        self._search_number: int | None = None  # the number of the query that ``search`` answers
        self.now = self._horizon = ALWAYS  # ticks: the latest, and the one before which no record comes
        self._in_any_order = False
        register(self)

    def add(self, plan: Plan) -> list[Result]:
        """Answer a query from now on; returns its results that are alive.

        Equal queries are evaluated once, and their results are reported under each name. Raises UsageError
        if the name is in use, or the plan is for another stream.
        """
        return self.add_all([plan])

    def add_all(self, plans: Sequence[Plan]) -> list[Result]:
        """Answer queries, whose keywords are matched jointly; returns their results, query by query."""
        for plan in plans:
            if plan.schema != self.schema or plan.window != self.window:
                raise UsageError(
                    f"query {shown(plan.called)}: standing queries of one stream share its schema and window"
                )
        if self._queries.next + len(plans) > self._sizes.numbers:
            self._renumber_queries(len(plans))
        numbered = [(plan, self._queries.add(plan, self._shares)) for plan in plans]
        new_plans = {entry.number: plan for plan, entry in numbered if entry.is_new}
        equal_numbers = {entry.number: entry.like for _, entry in numbered if entry.like is not None}
        results_by_name = self._first_results(new_plans)
        results: list[Result] = []
        for plan, (number, _, _) in numbered:
            if number in equal_numbers:
                results += self._follow_unshared(
                    equal_numbers[number], plan.called, results_by_name[plan.called]
                )
            else:
                results += (
                    results_by_name[plan.called]
                    if number in new_plans
                    else self._follow_query(number, plan.called)
                )
        return results

    def _first_results(self, plans: Mapping[int, Plan]) -> dict[str, list[Result]]:
        """Answer new queries, by number; returns their results that are alive, by name, for all names."""
        partials, moved_queries = self._operator.add_all(plans)
        if moved_queries:
            partials = self._results.take_moved(moved_queries, partials)
        results_by_name: defaultdict[str, list[Result]] = defaultdict(list)
        for results in partials:
            live_results = results.take(results.end > self.now)
            live_results = live_results.take(np.argsort(live_results.query, kind="stable"))
            cuts = np.flatnonzero(np.diff(live_results.query)) + 1
            for begin, end in pairwise([0, *cuts.tolist(), len(live_results)]):
                for result in self._snapshot([live_results.take(slice(begin, end))]):
                    results_by_name[result.name].append(result)
        return results_by_name

    def _shares(self, number: int) -> bool:
        """True if another query may share the results of a number from now on.

        False if records may still change results that are over: the new query has never reported these, as
        after a restart without the earlier query.
        """
        return not (self._corrects and self._results.has_ended_results(number, self.now))

    @property
    def _corrects(self) -> bool:
        return isinstance(self._updates, CorrectedUpdates)

    def _follow_query(self, number: int, name: str) -> Iterator[Result]:
        """The results of a query that are alive, under another name."""
        self._updates.follow(self._queries.first(number), name, self.now)
        return self.alive(name)

    def _follow_unshared(self, number: int, name: str, results: Iterable[Result]) -> Iterator[Result]:
        """The first results of a query that equals an earlier one but does not share its results."""
        self._updates.follow(self._queries.first(number), name, self.now)
        return map(self._updates.with_reported_begin, results)

    def _renumber_queries(self, count: int) -> None:
        """Renumber the queries from 0. Raises UsageError if there are too many queries."""
        queries = self._queries.compacted()
        if queries.next + count > self._sizes.numbers:
            raise UsageError(f"{queries.next + count:,} queries: expected at most {self._sizes.numbers:,}")
        self._search_number = None
        self._replace_operator(SchemaChange.between(self.schema, self.schema), queries, self.now)

    def _snapshot(self, partials: list[Partials]) -> list[Result]:
        pieces = self._reports(self._pieces(partials, snapshot=True))
        return list(memory_checked(chain.from_iterable(pieces)))

    def alive(self, name: str) -> Iterator[Result]:
        """The results of a query that are alive now, as a snapshot. Raises UsageError for an unknown name."""
        events = self._results.snapshot(self._queries.of(name), self.now)
        return (
            self._updates.with_reported_begin(struct_replace(event.result, name=name))
            for event in memory_checked(events)
        )

    def begins(self) -> list[Begin]:
        """The begins of results that were updated since the last call, for a log."""
        return self._updates.begins()

    def all_begins(self) -> list[Begin]:
        """The begins of all live results that were updated."""
        return self._updates.all_begins()

    def expect_begins(self, begins: Iterable[Begin]) -> None:
        """Apply logged begins after the records that they were logged with have been processed again."""
        self._updates.expect(begins)

    def prepare_searches(self, most: int) -> bool:
        """Index the words of at most ``most`` live tuples; returns True if there are more."""
        return self._operator.search_at(self.now).prepare(most)

    def present(self, since: int | None = None) -> PresentRows:
        """The live rows, without those before an event time."""
        return self._operator.present(self.now, since)

    def completions(self, start: str, most: int) -> list[tuple[str, int]]:
        """The most frequent words of live tuples that begin with a folded text. Raises TimeLimitError."""
        search = self._operator.search_at(self.now)
        search.prepare(_INDEXED_TUPLES)
        return search.completions(start, self.now, most)

    def search(self, plan: Plan, most: int) -> Searched:
        """The ``most`` best results that are alive now.

        The plan has a ranking. It is answered like a new query, then forgotten. Raises TimeLimitError.
        """
        if self._search_number is None:
            self._search_number = self._queries.number()
        return self._operator.search_at(self.now).search(self._search_number, plan, self.now, most)

    def search_once(self, plan: Plan, most: int) -> Searched:
        """As ``search``, at less cost if no other search follows; results have no ticks."""
        self._operator.search_at(self.now).index_only(plan)
        searched = self.search(plan, most)
        return searched._replace(
            results=[struct_replace(r, tick=None, expires=None) for r in searched.results]
        )

    def remove(self, name: str) -> None:
        """Stop answering a query. Raises UsageError if there is none of that name."""
        number, remaining_plan = self._queries.remove(name)
        self._updates.remove(name)
        if remaining_plan is not None:
            self._operator.rename(number, remaining_plan)
            return
        self._results.remove(number)
        self._operator.remove(number)

    def load_tables(self, batches: Iterable[RecordBatch]) -> Iterator[Result]:
        """Insert the static tables, before the stream; returns the results of static tuples alone."""
        rows_before = self._operator.table_rows
        partials = self._operator.open_tables() if self._on_demand else []
        static = table_tuples(self.schema, chain(batches, self._rows_of_sources()))
        self.counts.static += len(static.relation) + self._operator.table_rows - rows_before
        partials += self._operator.insert(static)
        yield from chain.from_iterable(self._reports(self._pieces(partials, snapshot=True)))

    def open_database(self, database: StoredTuples) -> None:
        """Add the rows of a database by its index, before all other tuples, for searches."""
        self._operator.open_stored(database)

    def _rows_of_sources(self) -> Iterator[RecordBatch]:
        """The rows of tables with a source that were not loaded yet; none if they are loaded on demand."""
        tables = () if self._on_demand else set(sourced(self.schema)) - self._loaded_tables
        if tables:
            self._loaded_tables |= tables
            yield from source_batches(self.schema, tables)

    def make_space(self, tuples: int) -> None:
        """Make space for tuples that come soon, so that columns do not grow step by step."""
        self._store.make_space(tuples)

    def take(self, arrived: OrderedBatch) -> Iterator[Result]:
        """The results of the next records, as they are found."""
        # Results pass through as few generators as possible.
        return chain.from_iterable(self._results_of(arrived))

    def replay(self, arrived: OrderedBatch) -> None:
        """As ``take``, but discards the results; ``expect_begins`` is called next."""
        for _ in memory_checked(self._results_of(arrived, emits=self._updates.learns)):
            pass

    def _results_of(self, arrived: OrderedBatch, *, emits: bool = True) -> Iterator[list[Result]]:
        batch, ticks = arrived.batch, arrived.ticks
        if not len(batch):
            return
        last = int(ticks[-1])
        if arrived.horizon is not None and arrived.horizon < last:
            # Earlier records may come, so results depend on which records are settled together.
            yield from self._batch(batch, ticks, arrived.horizon, emits=emits)
            return
        for first, end in self._portions.of(batch):
            count_before = self.counts.results
            portion = batch.take(slice(first, end))
            yield from self._batch(portion, ticks[first:end], int(ticks[end - 1]), emits=emits)
            self._portions.adapt(self.counts.results - count_before)

    def take_up(self, log: LongBatch) -> LongBatch:
        """Load live tuples from the ``live_records`` in a log; returns the records still to process.

        Each record in row files makes one tuple, so they need not be settled one after the other. Their
        results were reported when the records came.
        """
        if not isinstance(log, StoredRecords) or not self._can_load(log.rest):
            return log
        for partials in self._operator.load(self._stored_batches(log.in_files()), len(log)):
            self._results.add(partials)
        self._resolver.load()
        self.counts.tuples += self._record_count
        return log.rest

    def _can_load(self, records: RecordBatch) -> bool:
        """True if tuples may be loaded before ``records``, which are earlier ones."""
        is_empty = not (len(self._store) or self._operator.has_tables)
        in_order = not (self.lateness or self._in_any_order) and isinstance(self.window, Unbounded)
        return is_empty and in_order and not records.truncations().any()

    def _stored_batches(self, log: StoredRecords) -> Iterator[TupleBatch]:
        for part in log.parts(LOAD_SIZE):
            places = np.arange(self._record_count, self._record_count + len(part), dtype=np.int64)
            self._record_count += len(part)
            ends = natural_ends(self._lifespans, part.time)
            yield TupleBatch(part.relation, part.rows, part.time, ends, part.time, places)

    def reach(self, now: int, horizon: int) -> None:
        """Advance to ``now``; no record comes before ``horizon`` any more. Both are ticks."""
        self.now, self._horizon = max(self.now, now), horizon
        self._resolver.forget(horizon)
        self._operator.purge(horizon)

    def change_schema(self, schema: Schema, time: int) -> list[Result]:
        """Switch to another schema at event time ``time``.

        Records then refer to the relations of ``self.schema``, which keep their positions.

        Returns the retractions of live results over removed relations and joins,
        then the results of new joins among live tuples. The tuples of removed
        relations are dropped. ``load_tables`` returns the results of new tables.
        Raises QueryError, and changes nothing, if a query cannot be read over
        the new schema.
        """
        change = SchemaChange.between(self.schema, schema)
        return self._replace_operator(change, self._queries.over(change.after), time)

    def _replace_operator(self, change: SchemaChange, queries: SharedPlans, time: int) -> list[Result]:
        """Replace the operator by a new one for ``queries``; returns the changes to results."""
        self._operator.compact(self._horizon)
        retractions = self._results.retractions_by(change, self.now, time)
        ended_results = self._results.ended_results(self._horizon, self.now, self._queries.first)
        former, live_tuples = self._operator, self._operator.arrivals(change.removed_relations)
        self.schema = change.after
        self._operator = self._new_operator(change.after)
        self._resolver.change_schema(change.after, self._store)
        self._updates.schema = change.after
        self._portions = Portions(self._operator.matching)
        self._results = EmittedResults(self._operator.emitter, self._store.directory)
        self._queries = queries
        self._operator.add_all(dict(queries))
        partials = self._operator.open_tables() if former.has_tables else []
        partials += self._operator.insert(live_tuples)
        self._loaded_tables -= change.removed_relations
        if rows := list(self._rows_of_sources()):
            partials += self._operator.insert(table_tuples(self.schema, rows))
        self._operator.excluded = former.excluded
        former.close()
        added_results = self._results.report_added(change, partials, self.now, ended_results, queries.first)
        reports = list(chain.from_iterable(self._reports(chain([retractions], added_results))))
        self._updates.begin_anew(queries.under_all_names([each.result for each in retractions]))
        return reports

    def snapshot(self) -> bytes:
        """The state that cannot be rebuilt from the log; empty if there is none."""
        return self._resolver.snapshot(self._horizon)

    def expect(self, state: bytes) -> None:
        """Accept a state from ``snapshot``, before the log up to it is replayed."""
        self._resolver.expect(state)

    @property
    def living(self) -> int:
        """The number of tuples that are alive now, or that late records may make alive again."""
        return int(np.count_nonzero(self._live_flags()))

    def _live_flags(self) -> Flags:
        tuples = self._store.live.tuples
        flags: Flags = (tuples.end > self._horizon) & (tuples.start != ALWAYS)
        return flags

    def living_tuples(self) -> list[Result]:
        """The tuples of the stream that are alive, in order of time, each as a result of one tuple.

        They have no query and no marked keywords.
        """
        tuples, directory = self._store.live.tuples, self._store.directory
        has_begun = (tuples.start != ALWAYS) & (tuples.start <= self.now)
        slots = np.flatnonzero(has_begun & (tuples.end > self.now))
        slots = slots[np.lexsort((tuples.place.take(slots), tuples.start.take(slots)))]
        ends = np.full(len(slots), FOREVER) if self.by_count else tuples.end.take(slots)
        rows = zip(directory.names(slots), directory.times.take(slots).tolist(), ends.tolist(), strict=True)
        return [
            Result(
                *("+", "", "", name.id, start / MICROSECOND),
                *(None if end >= FOREVER else end / MICROSECOND, "", (ResultTuple(name, ()),), ()),
            )
            for name, start, end in rows
        ]

    def live_records(self) -> LiveRecords:
        """Records that rebuild the live tuples, and those that late records may correct; in order of time.

        The window is of time, or unbounded.
        """
        directory, horizon = self._store.directory, self._horizon
        self._resolver.forget(horizon)
        records, leading_tuples = self._resolver.leading_records()
        flags = self._live_flags()
        flags[
            np.array(
                [directory.slots[each] for each in leading_tuples if each in directory.slots], dtype=np.int64
            )
        ] = False
        for slot in directory.slots.flagged_slots(flags):
            records += self._records_before(directory.member(slot))
        return LiveRecords(RecordBatch.of(records), self._store, flags, self._operator.known_bitmaps)

    def _records_before(self, member: StreamTuple) -> Iterator[Record]:
        """Insertions and deletions of the equal rows that came before a tuple in its instant."""
        for _ in range(member.occurrence):
            yield Record(member.relation, member.time, member.row)
            yield Record(member.relation, member.time, member.row, True)

    def footprint(self) -> Footprint:
        """The number of entries that the queries hold, and the largest query."""
        return self._operator.footprint(dict(self._queries), self._results.all_partials())

    def await_late(self) -> None:
        """Accept records in any order from now on, as far back as the horizon of the last batch."""
        if not self._in_any_order:
            self._in_any_order = True
            self._resolver.await_late()
            events = chain.from_iterable(
                self._results.snapshot(number, self.now) for number, _ in self._queries
            )
            live_results = self._queries.under_all_names([event.result for event in memory_checked(events)])
            corrected = CorrectedUpdates(self.schema, replaces=self._updates.replaces)
            corrected.go_on(self._updates, live_results)
            self._updates = corrected

    @property
    def by_count(self) -> bool:
        """True if ticks count positions in the stream instead of microseconds."""
        return isinstance(self.window, CountWindow)

    @property
    def idle(self) -> bool:
        """True if no tuple or result of the stream is remembered."""
        self._operator.compact(self._horizon)
        has_partials = any(len(each) for mesh in self._operator.meshes for each in mesh.partial_results())
        return not (
            has_partials
            or self._operator.entries
            or len(self._results)
            or len(self._resolver)
            or self._store.directory.slots
        )

    def _new_operator(self, schema: Schema) -> KeywordOperator:
        followed_relations = [
            n for n, relation in enumerate(schema.relations) if relation.key and not relation.table
        ]
        store = LiveStore(schema, self._lifespans, followed_relations)
        return KeywordOperator(store, self._accepts_root, self._renumber, self._mark, self._sizes)

    @property
    def _store(self) -> LiveStore:
        return self._operator.store

    def _renumber(self, horizon: int, slots: Ints) -> None:
        self._results.compact(horizon, slots)

    def _mark(self, horizon: int, referred: Flags) -> None:
        self._results.mark(horizon, referred)

    def _batch(self, batch: RecordBatch, ticks: Ints, horizon: int, *, emits: bool) -> Iterator[list[Result]]:
        """The results of records in order; ``horizon``: the tick before which no later one comes.

        ``emits``: if False, results are only remembered.
        """
        previous_tick = self.now
        self.reach(int(ticks[0]), min(int(ticks[0]), horizon))
        self._count(batch)
        is_followed = np.isin(batch.relation, list(self._resolver.relations))
        places = np.arange(self._record_count, self._record_count + len(batch), dtype=np.int64)
        self._record_count += len(batch)
        followed_rows = np.flatnonzero(is_followed)
        resolved = self._resolver.settle(
            batch.take(followed_rows), ticks.take(followed_rows), places.take(followed_rows)
        )
        self.counts.unmatched_deletions += resolved.unmatched
        ended_slots = self._operator.end_known([member for member, _ in resolved.ended])
        if len(resolved.ended_slots):
            self._operator.end(resolved.ended_slots, resolved.ended_ticks)
            if self.by_count:
                self._store.directory.set_end_times(resolved.ended_slots, resolved.ended_times)
            ended_slots = np.concatenate([ended_slots, resolved.ended_slots])
        retractions = self._results.retractions(ended_slots, self._store.live.tuples.end)
        reported_results = self._results.forget_prolonged(resolved.prolonged)
        self._operator.release([member for member, _ in resolved.prolonged])
        arrivals = self._arrivals(batch, ticks, places, ~is_followed, followed_rows, resolved)
        self.now, self._horizon = max(self.now, int(ticks[-1])), horizon
        partials = self._operator.insert(arrivals, horizon)
        if not emits:
            for results in partials:
                self._results.add(results)
                self.counts.results += len(results)
            self.counts.excluded = self._operator.excluded
            self._updates.forget(self.now, self._horizon)
            return
        pieces = self._pieces(partials, retractions, known=self._results.by_slots(reported_results))
        instants = partial(instants_by_count, batch, ticks) if self.by_count else None
        yield from self._reports(pieces, previous_tick, instants)

    def _count(self, batch: RecordBatch) -> None:
        deletions = 0
        if batch.delete is not None:
            deletions = int(batch.delete.sum())
            for relation in set(distinct(batch.relation[batch.delete]).tolist()) - self._resolver.relations:
                self._follow(relation)
        self.counts.deletions += deletions
        self.counts.tuples += len(batch) - deletions

    def _follow(self, relation: int) -> None:
        """Follow the tuples of a relation from its first deletion on, including live ones."""
        tuples = self._store.live.tuples
        is_live = (tuples.relation == relation) & (tuples.end > self._horizon)
        self._resolver.follow(relation, np.flatnonzero(is_live))

    def _arrivals(
        self,
        batch: RecordBatch,
        ticks: Ints,
        places: Ints,
        is_inserted: Flags,
        followed_rows: Ints,
        resolved: Settled,
    ) -> TupleBatch:
        """The insertions of a batch.

        ``is_inserted``: flags the records that are not followed; ``followed_rows``: the rows of the others.
        """
        ends = natural_ends(self._lifespans, ticks)
        end_times = np.full(len(batch), FOREVER) if self.by_count else None
        insertions = followed_rows[resolved.lives]
        is_inserted[insertions], ends[insertions] = True, resolved.ends
        if end_times is not None:
            end_times[insertions] = resolved.ended_at
        if not is_inserted.all():
            batch, ticks, places, ends = (
                batch.take(np.flatnonzero(is_inserted)),
                ticks[is_inserted],
                places[is_inserted],
                ends[is_inserted],
            )
            end_times = None if end_times is None else end_times[is_inserted]
        tuples = TupleBatch(
            batch.relation, batch.rows.compact(), ticks, ends, batch.time, places, ended_at=end_times
        )
        tuple_objects = resolved.new + [t for t, _ in resolved.prolonged]
        return tuples.merged(of_tuples(tuple_objects, lambda _: True)) if tuple_objects else tuples

    def _pieces(
        self,
        partials: list[Partials],
        retractions: list[Event] | None = None,
        *,
        snapshot: bool = False,
        known: Set[Found] = frozenset(),
    ) -> Iterator[list[Output]]:
        self.counts.excluded = self._operator.excluded
        return self._results.report(partials, retractions or [], snapshot=snapshot, known=known)

    def _reports(
        self,
        pieces: Iterable[Sequence[Output]],
        previous_tick: int = ALWAYS,
        instants: Callable[[], Callable[[Event], int]] | None = None,
    ) -> Iterator[list[Result]]:
        """Count and yield the reported results and retractions; ``previous_tick``: the time before them.

        ``instants``: returns a function from events to instants, if times do not determine instants; called
        at the first retraction.
        """
        previous_time = None if previous_tick == ALWAYS else previous_tick / MICROSECOND
        instant: Callable[[Event], int] | None = None
        for piece in pieces:
            retractions = sum(isinstance(each, Event) and each.kind == RETRACTED for each in piece)
            if instants is not None and instant is None and retractions:
                instant = instants()
            if instant is None:
                reports = self._updates.take(
                    self._queries.under_all_names(in_order(piece)), retractions, previous_time
                )
            else:
                event_results = [
                    (event, self._queries.under_all_names([event.result])) for event in events_in_order(piece)
                ]
                result_instants = [
                    instant(event) for event, results_of_event in event_results for _ in results_of_event
                ]
                results = [result for _, results_of_event in event_results for result in results_of_event]
                reports = self._updates.take(results, retractions, previous_time, result_instants)
            yield self._count_results(reports)
        remaining_reports = self._updates.remaining_reports()
        if remaining_reports:
            yield self._count_results(remaining_reports)
        self._updates.forget(self.now, self._horizon)

    def _count_results(self, results: list[Result]) -> list[Result]:
        counts_by_op = Counter(map(_OP, results))
        self.counts.results += counts_by_op["+"]
        self.counts.retractions += counts_by_op["-"]
        self.counts.updates += counts_by_op["~"]
        return results


def instants_by_count(batch: RecordBatch, ticks: Ints) -> Callable[[Event], int]:
    """Maps events to instants under a count window: consecutive records of equal time are one instant."""
    numbers = np.cumsum(np.diff(batch.time, prepend=batch.time[:1]) != 0).tolist()
    number_by_tick = dict(zip(ticks.tolist(), numbers, strict=True))
    # Deletions at several times between two arrivals have one tick.
    number_by_tick_and_time = dict(
        zip(zip(ticks.tolist(), batch.time.tolist(), strict=True), numbers, strict=True)
    )

    def instant(event: Event) -> int:
        number: int | None = number_by_tick_and_time.get((event.tick, event.time))
        return number_by_tick[event.tick] if number is None else number

    return instant


class Portions:
    """Cuts batches in order of time at the ends of instants, into smaller portions if there are many results.

    The first portions are small if many tuples contain keywords. ``carriers``: the most tuples with
    keywords in the next portion.
    """

    def __init__(self, matching: KeywordMatching) -> None:
        self._matching = matching
        self.carriers = _FIRST_PORTION

    def of(self, batch: RecordBatch) -> Iterator[tuple[int, int]]:
        """The begins and ends of a batch's portions; call ``adapt`` for each before taking the next."""
        first = 0
        while len(batch) > self.carriers:
            end = _end_of_instant(batch, self._most(batch))
            if end == len(batch):
                break
            yield first, first + end
            first += end
            batch = batch.take(slice(end, len(batch)))
        yield first, first + len(batch)

    def adapt(self, results: int) -> None:
        """Adapt the size of portions to the number of results of the last one."""
        if results > RESULTS:
            self.carriers = max(1, self.carriers * RESULTS // results)
        elif 2 * results < RESULTS:
            self.carriers = min(BATCH, 2 * self.carriers)

    def _most(self, batch: RecordBatch) -> int:
        """The number of records that are likely to have ``carriers`` tuples with keywords."""
        if self.carriers == BATCH:
            return len(batch)
        sample = batch.rows.take(slice(None, None, -(-len(batch) // _SAMPLE_ROWS))).compact()
        carriers = len(distinct(self._matching.of(sample).tuple))
        return len(batch) if not carriers else self.carriers * len(sample) // carriers


def _end_of_instant(batch: RecordBatch, most: int) -> int:
    """The position after the last instant that ends within ``most`` records, or else after the first one."""
    ends = np.append(np.flatnonzero(np.diff(batch.time)) + 1, len(batch))
    return int(ends[max(0, int(np.searchsorted(ends, most, side="right")) - 1)])
