"""Finds the results of keyword queries in batches of tuples with settled lifespans.

The keyword engine, windowed queries and the slices of Spark share this code. Live
tuples and their index exist once; queries of one shape share a mesh.
"""

from __future__ import annotations

from abc import ABC
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from skws.keywords.keyword_matching import KeywordMatching
from skws.keywords.match import EXCLUDED
from skws.keywords.plan import Plan
from skws.queries.evaluator import Load
from skws.queries.keywords.diagnosis import EmptyResult, why_rows_give_nothing
from skws.queries.keywords.meshes import Meshes, MeshTenant, SharedPlans
from skws.queries.keywords.present_rows import PresentRows
from skws.queries.keywords.result_emitter import ResultEmitter
from skws.queries.keywords.result_source import ResultSource
from skws.queries.keywords.searching import LiveSearch
from skws.queries.keywords.table_search import TableSearch
from skws.queries.keywords.word_queries import MANY, WordSearches, why_no_delta_joins
from skws.ranking.scoring import Scoring
from skws.spec.enums import EvaluatorName
from skws.store.live_store import LiveStore
from skws.store.row_bitmaps import FileMatching, KnownBitmaps, keys_of
from skws.store.tuple_batch import TupleBatch, of_table_rows
from skws_mesh.backend import Mesh, OperatorUse
from skws_mesh.candidate_networks import CandidateNetwork
from skws_mesh.columnar.bitmaps import QUERY_BITS, KeywordBitmaps
from skws_mesh.columnar.columns import NOTHING, Flags, Ints, kinds_of
from skws_mesh.columnar.store import Partials
from skws_purging.lifespans import ALWAYS, StreamTuple
from skws_purging.policy import Sweep
from skws_schema.budgets import Footprint
from skws_schema.errors import quantity, shown
from skws_schema.model import Row, sourced
from skws_windows.window import ExpressionWindow, Unbounded

if TYPE_CHECKING:
    from skws.index.database import StoredTuples
    from skws.queries.keywords.indexed_rows import AddedRows, IndexedRows


_PLACES: Final = {Unbounded: "", ExpressionWindow: " of an open window"}
"""The words for the present rows in messages, by the kind of window."""
_SAMPLE_SIZE: Final = 10_000  # rows to sample from each table, as memory is short


@dataclass(frozen=True, slots=True)
class Sizes:
    """Thresholds at which an operator changes its method; the defaults are the fastest."""

    many_queries: int = MANY
    """The number of queries from which delta joins answer all queries that they can."""
    keyword_rows: int = 1 << 17
    """The most rows of indexed tables that are inserted at once when their query begins; these take 40 MB."""
    rows_kept: int = 1 << 17
    """Rows of indexed tables added before unneeded ones are removed; more if there are many live tuples."""
    numbers: int = 1 << QUERY_BITS
    """The limit on the numbers of queries, at which the remaining queries are renumbered from 0."""

    dead_copies: int = 4_096
    """The most dead copies of tuples in the separate store of searches."""
    stored_texts: int = 1 << 20
    """The most texts of indexed tables whose words stay in memory between searches; they take some 100 MB."""

    reasons: int = 20_000
    """The number of live tuples to examine for the reason of an empty result; it takes half a second."""


USUAL_SIZES: Final = Sizes()


class KeywordOperator:
    """Finds results in the tuples of ``store``, which come in order of their start; ``emitter`` forms them.

    ``accepts_root``: False for root tuples, given by their keys or else rows, whose results are left out.
    ``on_compact`` is called when slots are renumbered. ``on_evict`` flags the slots that must stay when rows
    of tables are evicted.
    """

    def __init__(
        self,
        store: LiveStore,
        accepts_root: Callable[[Row], bool] | None = None,
        on_compact: Callable[[int, Ints], None] = lambda _, __: None,
        on_evict: Callable[[int, Flags], None] = lambda _, __: None,
        sizes: Sizes = USUAL_SIZES,
    ) -> None:
        self.store = store
        self.excluded = 0
        self._live, self._directory = store.live, store.directory
        self._schema = store.schema
        self._accepts = accepts_root
        self._accepts_root = self._root_filter(accepts_root)
        self._on_compact = on_compact
        self._on_evict = on_evict
        self._sizes = sizes
        self._meshes = Meshes(store.live, store.window, self._accepts_root)
        self.queries = self._meshes.queries
        self._word_searches = WordSearches(store.live, store.schema, self._row)
        # Queries with other meshes that delta joins could answer.
        self._delta_candidates: dict[int, Plan] = {}
        self.matching = KeywordMatching()
        self._sweep = Sweep()
        self._scoring = Scoring(store.schema, store.live, store.directory)
        self.emitter = ResultEmitter(
            self._tenant, store.live, store.directory, self._scoring, store.window, store.schema
        )
        self.searches = LiveSearch(
            store.schema,
            store.window,
            store.live,
            store.directory,
            self._meshes,
            self._scoring,
            self._joined_flags,
        )
        self._indexed_rows: IndexedRows | None = None
        self._table_search: TableSearch | None = None

    def _row(self, slot: int) -> Row:
        return self._directory.row(slot)

    def _tenant(self, query: int) -> MeshTenant:
        return self.queries.get(query) or self._word_searches.queries[query]

    def open_tables(self) -> list[Partials]:
        """Open the tables that have their own source; returns the results of their rows alone.

        Call it once, before the stream. Raises SkwsError.
        """
        if self.has_tables or not sourced(self._schema):
            return []
        # Only if there are such tables: an index needs Arrow.
        from skws.queries.keywords.indexed_rows import IndexedRows  # noqa: PLC0415

        self._indexed_rows = IndexedRows(
            self._schema,
            self._live,
            self._meshes,
            self._scoring,
            self._take_in,
            self._insert_rows,
            self._sizes.keyword_rows,
            self._sizes.rows_kept,
        )
        self._live.reserve = self._indexed_rows.reserve
        partials = self._indexed_rows.open()
        self.excluded += sum(map(self._indexed_rows.count, self.queries))
        return partials

    def open_stored(self, stored: StoredTuples) -> None:
        """Add the rows of tables by their indexes, before all other tuples, for searches."""
        self._scoring.tables({table.relation: table for table in stored.tables})
        self.store.open(stored)
        self.searches.words.open(stored)

    def close(self) -> None:
        """Close the tables with their own source; no insertions may follow.

        Otherwise their many files would stay open until a garbage collection, which is rare.
        """
        self._indexed_rows = self._table_search = self._live.reserve = None
        self._scoring.tables({})

    @property
    def has_tables(self) -> bool:
        """True if tables with their own source are open."""
        return self._indexed_rows is not None

    @property
    def table_rows(self) -> int:
        """The number of rows of all tables with their own source."""
        return 0 if self._indexed_rows is None else len(self._indexed_rows.reserve)

    @property
    def by_delta_joins(self) -> int:
        """The number of queries that delta joins answer."""
        return len(self._word_searches)

    def add_all(self, plans: Mapping[int, Plan]) -> tuple[list[Partials], set[int]]:
        """Add queries; returns their live results.

        Also returns the earlier queries that move to another mesh: their results are included, with other
        networks.
        """
        word_plans = self._delta_plans(plans)
        moved_queries = word_plans.keys() & self.queries.keys()
        for query in moved_queries:
            self.remove(query)
        mesh_plans = {query: plan for query, plan in plans.items() if query not in word_plans}
        partials = self._add_meshed(mesh_plans)
        if word_plans:
            rows = self._directory.rows
            partials.append(
                self._joined_results(self._word_searches.add(word_plans, rows, self.searches.words))
            )
        return partials, moved_queries

    def _delta_plans(self, plans: Mapping[int, Plan]) -> dict[int, Plan]:
        """The queries for delta joins: all possible ones if these are many; else those that ask for them.

        This includes queries with another mesh, once there are many.
        """
        if self._accepts_root is not None:
            return {}
        word_plans = {query: plan for query, plan in plans.items() if not why_no_delta_joins(plan)}
        if (
            word_plans
            and len(self._word_searches) + len(word_plans) + len(self._delta_candidates)
            >= self._sizes.many_queries
        ):
            return {**self._delta_candidates, **word_plans}
        return {query: plan for query, plan in word_plans.items() if plan.evaluated_by == EvaluatorName.DELTA}

    def add(self, query: int, plan: Plan) -> list[Partials]:
        """Add a query, answered by a mesh of its shape; returns its live results."""
        return self._add_meshed({query: plan})

    def _add_meshed(self, plans: Mapping[int, Plan]) -> list[Partials]:
        """As ``add``, for several queries, whose keywords are matched jointly."""
        if not plans:
            return []
        if self._indexed_rows is not None and len(plans) > 1:  # adding a query inserts rows of its tables
            return [part for query, plan in plans.items() for part in self.add(query, plan)]
        bitmaps = self._labels(plans)
        for query, plan in plans.items():
            self._meshes.add(query, plan)
            if not why_no_delta_joins(plan):
                self._delta_candidates[query] = plan
            self.matching.add(query, plan.matcher)
        uncounted = self._uncounted_labels(bitmaps)
        for query, rows in _by_query(uncounted.query, plans):
            self._scoring.add(query, plans[query], uncounted.take(rows))
            if self._indexed_rows is not None:
                self.excluded += self._indexed_rows.count(query)
        partials = []
        for mesh, mesh_labels in self._meshes.labels(self._in_mesh_codes(bitmaps)):
            new_queries = [query for query in plans if self.queries[query].mesh is mesh]
            if new_queries:
                partials.append(self._joined_results(mesh.add(new_queries, mesh_labels)))
        return partials

    def _labels(self, plans: Mapping[int, Plan]) -> KeywordBitmaps:
        """The labels of live tuples for queries that are added next; inserts rows of tables with labels."""
        matching = KeywordMatching()
        for query, plan in plans.items():
            matching.add(query, plan.matcher)
        bitmaps, first = matching.of(self._directory.rows), len(self._live)
        if self._indexed_rows is None:
            return bitmaps
        ((query, plan),) = plans.items()
        self._indexed_rows.begin(query, plan, bitmaps)
        inserted = matching.of(self._directory.some_rows(np.arange(first, len(self._live))))
        return KeywordBitmaps.concat([bitmaps, inserted.offset_by(first)])

    def search_at(self, now: int) -> LiveSearch:
        """The search over all tuples that are alive at ``now`` and all rows of tables that have a source."""
        if self._indexed_rows is None:
            return self.searches
        if self._table_search is None:
            self._table_search = TableSearch(
                self._stored_operator,
                self._indexed_rows.reserve.tables,
                self._sizes.dead_copies,
                self._sizes.stored_texts,
            )
        return self._table_search.over(self.store, now)

    def _stored_operator(self) -> KeywordOperator:
        """An operator without queries whose first tuples are all rows of tables with a source."""
        assert self._indexed_rows is not None  # noqa: S101 - the tables are open
        store = LiveStore(self._schema, self.store.window, self.store.singles.followed)
        operator = KeywordOperator(store, self._accepts, sizes=self._sizes)
        operator.open_stored(self._indexed_rows.stored())
        return operator

    def present(self, now: int, since: int | None) -> PresentRows:
        """The rows alive at ``now``, without those before an event time."""
        return PresentRows(self.store, self.searches.words, now, since)

    def why_nothing(self, plan: Plan, now: int) -> EmptyResult | None:
        """The reason why the latest tuples alive at ``now`` give a plan no results; None without tuples."""
        slots = self.store.latest(now, self._sizes.reasons)
        if not len(slots):
            return None
        where = f" of the latest {len(slots):,}"
        is_complete = len(slots) == np.count_nonzero(self._live.tuples.end > now)
        # The windows of an expression may hold other rows than a store that does not follow them.
        follows = isinstance(self.store.window, ExpressionWindow)
        if is_complete and follows == isinstance(plan.window, ExpressionWindow):
            where = _PLACES.get(type(plan.window), " of the window")
        relations = self._live.tuples.relation.take(slots).tolist()
        rows = self._directory.some_rows(slots)
        return why_rows_give_nothing(plan, zip(relations, rows, strict=True), where)

    def remove(self, query: int) -> None:
        """Stop answering a query."""
        if query in self._word_searches.queries:
            self._word_searches.remove(query)
            self.emitter.forget_query(query)
            return
        self._delta_candidates.pop(query, None)
        self.matching.remove(query)
        self._scoring.remove(query)
        self._meshes.remove(query)
        self.emitter.forget_query(query)
        if self._indexed_rows is not None:
            self._indexed_rows.end(query)

    def rename(self, query: int, plan: Plan) -> None:
        """Change the name of a query's results to that of an equal plan."""
        self._tenant(query).plan = plan
        if query in self._delta_candidates:
            self._delta_candidates[query] = plan
        self.emitter.forget_query(query)

    def carried(self, query: int) -> int:
        """The keywords of a query that live tuples, or rows of tables, contain."""
        row_keywords = 0 if self._indexed_rows is None else self._indexed_rows.carried(query)
        return row_keywords | self._tenant(query).mesh.live_keywords(query)

    def insert(self, batch: TupleBatch, horizon: int = ALWAYS) -> list[Partials]:
        """Add tuples; returns the results that they complete.

        All later ones begin at ``horizon`` or after.
        """
        bitmaps = self.matching.of(batch.rows) if batch.bitmaps is None else batch.bitmaps
        keys = self.store.values.of(batch.rows)
        if self._indexed_rows is not None:
            self._indexed_rows.insert_reached(batch.relation, keys, bitmaps)
        return self._insert(batch, keys, bitmaps, horizon)

    def _insert(
        self, batch: TupleBatch, keys: Ints, bitmaps: KeywordBitmaps, horizon: int = ALWAYS
    ) -> list[Partials]:
        first, inserted = self.store.enter(batch, keys)
        bitmaps = bitmaps.offset_by(first)
        self._scoring.add_arrivals(first, batch.rows, self._uncounted_labels(bitmaps))
        bitmaps = self._in_mesh_codes(bitmaps)
        partials = [
            mesh.insert(inserted, mesh_labels, horizon) for mesh, mesh_labels in self._meshes.labels(bitmaps)
        ]
        if len(self._word_searches):
            word_results, exclusions = self._word_searches.insert(inserted, batch.rows)
            partials.append(word_results)
            self.excluded += exclusions
        return [self._joined_results(results) for results in partials if len(results)]

    def load(self, batches: Iterable[TupleBatch], most: int) -> Iterator[Partials]:
        """Add at most ``most`` tuples of row files, before all others; yields their results, in parts.

        Builds the index by join value. The caller builds the index by identity (``LifespanResolver.load``).
        """
        self.store.make_space(most)
        matching = FileMatching(self.matching)
        labels, word_labels = [KeywordBitmaps.none()], [KeywordBitmaps.none()]
        for batch in batches:
            first = self.store.append(batch, self.store.values.of(batch.rows))
            labels.append(matching.of(batch.rows).offset_by(first))
            self._scoring.add_arrivals(first, batch.rows, labels[-1])
            if len(self._word_searches):
                word_labels.append(self._word_searches.labels(batch.rows).offset_by(first))
        matching.keep()
        self._live.index()
        bitmaps = self._in_mesh_codes(KeywordBitmaps.concat(labels))
        for mesh, mesh_labels in self._meshes.labels(bitmaps):
            yield from map(self._joined_results, mesh.load(mesh_labels))
        if len(self._word_searches):
            words = KeywordBitmaps.concat(word_labels)
            self.excluded += self._word_searches.joins.exclusions(words)
            yield from map(self._joined_results, self._word_searches.load(words))

    def known_bitmaps(self, slots: Ints) -> KnownBitmaps | None:
        """The bitmaps of live tuples; None if they would have to be matched again."""
        bitmaps = None if len(self._word_searches) else self._meshes.bitmaps_of(slots)
        return None if bitmaps is None else KnownBitmaps(keys_of(self.matching.matchers), bitmaps)

    def arrivals(self, removed_relations: Collection[int]) -> TupleBatch:
        """All tuples except those of removed relations and of ``open_tables``, for another operator."""
        return self.store.arrivals(
            [*removed_relations, *(() if self._indexed_rows is None else self._indexed_rows.reserve.tables)]
        )

    def _take_in(self, rows: AddedRows) -> None:
        """Insert table rows that no partial result waits for."""
        batch = self._table_batch(rows)
        self.store.enter(batch, self.store.values.of(batch.rows))

    def _insert_rows(self, rows: AddedRows) -> list[Partials]:
        """Insert table rows like tuples of the stream; returns the results that they complete."""
        batch = self._table_batch(rows)
        return self._insert(batch, self.store.values.of(batch.rows), self.matching.of(batch.rows))

    def _table_batch(self, rows: AddedRows) -> TupleBatch:
        assert self._indexed_rows is not None  # noqa: S101 - it provides the rows
        self._indexed_rows.reserve.put(rows, len(self._live))
        return of_table_rows(rows.blocks, rows.occurrences)

    def _uncounted_labels(self, bitmaps: KeywordBitmaps) -> KeywordBitmaps:
        """The labels that have not been counted before insertion."""
        return bitmaps if self._indexed_rows is None else self._indexed_rows.uncounted_labels(bitmaps)

    def release(self, tuples: list[StreamTuple]) -> None:
        """Remove the known tuples among some, with all partial results; they may come again."""
        slots, live_tuples = self.store.slots_of(tuples)
        if live_tuples:
            self._directory.release(live_tuples)
            self.end(slots, np.full(len(slots), ALWAYS))

    def end_known(self, tuples: list[StreamTuple]) -> Ints:
        """End the known tuples among some; returns their slots."""
        slots, live_tuples = self.store.slots_of(tuples)
        if live_tuples:
            self.end(slots, np.array([each.end for each in live_tuples]))
        return slots

    def end(self, slots: Ints, ticks: Ints) -> None:
        """End tuples early."""
        self._scoring.add_ends(slots, ticks)
        self._live.end(slots, ticks)
        for mesh in self.meshes:
            mesh.end(slots)

    def purge(self, horizon: int) -> None:
        """Advance to ``horizon``; removes dead entries once they are about half of all."""
        for mesh in self.meshes:
            mesh.expire(horizon)
        entries = self.entries
        is_crowded = self._indexed_rows is not None and self._indexed_rows.reserve.crowded
        is_due = bool(entries) and self._sweep.is_due(horizon, entries)
        if is_due and not is_crowded and not (self._live.tuples.end <= horizon).any():
            self._sweep.record(horizon, entries)  # nothing has ended, as in the replay of a log
        elif is_crowded or is_due:
            self.compact(horizon)

    def compact(self, horizon: int) -> None:
        """Remove tuples and results that ended at or before ``horizon``, and renumber the rest."""
        self._scoring.forget(horizon)
        dropped = self._evicted_slots(horizon)
        slots = self.store.compact(horizon, dropped)
        for mesh in self.meshes:
            mesh.compact(horizon, slots)
        self.searches.compact(slots)
        if self._indexed_rows is not None:
            self._indexed_rows.reserve.compact(slots)
        if self._table_search is not None:
            self._table_search.compact(slots)
        self._on_compact(horizon, slots)
        self._sweep.record(horizon, self.entries)

    def _evicted_slots(self, horizon: int) -> Ints:
        """The slots of table rows to evict, if there are many; they may be inserted again."""
        if self._indexed_rows is None or not self._indexed_rows.reserve.crowded:
            return NOTHING
        must_stay = np.zeros(len(self._live), dtype=bool)
        self._on_evict(horizon, must_stay)
        return self._indexed_rows.evicted_slots(horizon, must_stay)

    @property
    def meshes(self) -> list[Mesh]:
        """The meshes that answer queries."""
        return [*self._meshes, *([self._word_searches.joins] if len(self._word_searches) else ())]

    def mesh_of(self, query: int) -> Mesh:
        """The mesh of a query."""
        return self._tenant(query).mesh

    def footprint(self, plans: Mapping[int, Plan], emitted_results: Iterable[Partials] = ()) -> Footprint:
        """The number of entries that the queries hold, and a text that names the largest query.

        ``plans``: by number; ``emitted_results``: live results.
        """
        results = [*emitted_results, *(part for mesh in self.meshes for part in mesh.results)]
        partials = [part for mesh in self.meshes for part in mesh.partial_results()]
        counts = (
            (sum(map(len, results)), "result"),
            (sum(map(len, partials)), "partial result"),
            (sum(mesh.operators for mesh in self._meshes), "operator"),
            (len(self._live), "live tuple"),
        )
        count_texts = ", ".join(quantity(count, noun) for count, noun in counts if count)
        text = f"{_largest(self.queries, plans, [*results, *partials])} {count_texts}"
        return Footprint(sum(count for count, _ in counts), text)

    @property
    def entries(self) -> int:
        """Live tuples, waiting partials and pairs of neighbours, including dead ones not yet purged."""
        return len(self._live) + sum(mesh.partials for mesh in self.meshes)

    def _in_mesh_codes(self, bitmaps: KeywordBitmaps) -> KeywordBitmaps:
        """Labels of live tuples in the codes of their meshes; counts those that exclude a tuple."""
        self.excluded += int((self._uncounted_labels(bitmaps).bitmap == EXCLUDED).sum())
        return self._meshes.in_mesh_codes(bitmaps)

    def _joined_results(self, results: Partials) -> Partials:
        """Drop results whose join values differ although their integers are equal."""
        is_joined = self._joined_flags(results, self._tenant)
        return results if is_joined.all() else results.take(is_joined)

    def _joined_flags(self, results: Partials, source_of: Callable[[int], ResultSource]) -> Flags:
        """Flags the results joined by equal values, not only by equal integers.

        ``source_of``: returns a query, given its number.
        """
        is_joined = np.ones(len(results), dtype=bool)
        if self.store.values.all_exact:
            return is_joined
        networks, network_numbers = kinds_of(results.query << 32 | results.operator)
        trees = [
            source_of(query).mesh.network(operator) for query, operator, _ in results.take(networks).rows()
        ]
        is_doubtful = np.array(
            [not all(map(self.store.values.exact, tree.edges[1:])) for tree in trees], dtype=bool
        )
        rows = np.flatnonzero(is_doubtful[network_numbers])
        members = results.members[rows].tolist()
        kinds = network_numbers[rows].tolist()
        is_joined[rows] = [
            self.store.truly_joined(trees[kind], slots) for kind, slots in zip(kinds, members, strict=True)
        ]
        return is_joined

    def _root_filter(self, accepts: Callable[[Row], bool] | None) -> Callable[[Ints], Flags] | None:
        if accepts is None:
            return None
        return lambda slots: np.array(
            [accepts(self.store.identity(slot)) for slot in slots.tolist()], dtype=bool
        )


class MeshEngine(ABC):
    """An engine that answers queries with one operator."""

    _operator: KeywordOperator
    _queries: SharedPlans
    now: int
    """The latest tick; ``ALWAYS`` if tuples live until they are ended."""

    @property
    def live_tuples(self) -> int:
        """The number of tuples in the store; up to about half of them may be dead and not yet purged."""
        return len(self._operator.store)

    @property
    def entries(self) -> int:
        """Live tuples, waiting partial results and pairs of neighbours, and dead ones not yet purged."""
        return self._operator.entries

    @property
    def operators(self) -> int:
        """The number of operators of all meshes."""
        return sum(mesh.operators for mesh in self._operator.meshes)

    @property
    def by_delta_joins(self) -> int:
        """The number of queries that delta joins answer."""
        return self._operator.by_delta_joins

    @property
    def carried(self) -> int:
        """The keywords, as bits, that live tuples and table rows contain; there is one query."""
        ((number, _),) = self._queries
        return self._operator.carried(number)

    def why_nothing(self, plan: Plan) -> EmptyResult | None:
        """The reason why live tuples give a plan no results; None if it has some."""
        return self._operator.why_nothing(plan, self.now)

    def compact(self, tick: int) -> None:
        """Purge tuples and results that have ended at ``tick``."""
        self._operator.compact(tick)

    def used(self, name: str | None = None) -> list[OperatorUse]:
        """The mesh operators that have been used: of one query's mesh, or of all."""
        meshes = self._operator.meshes if name is None else [self._operator.mesh_of(self._queries.of(name))]
        return [use for mesh in meshes for use in mesh.operator_uses()]

    def load(self) -> Load:
        """The load, for metrics."""
        operators, total_partials = 0, 0
        for mesh in self._operator.meshes:
            mesh_operators, mesh_partials = mesh.waiting_counts
            operators += mesh_operators
            total_partials += mesh_partials
        return Load(self.live_tuples, operators, total_partials)


def _by_query(row_queries: Ints, queries: Iterable[int]) -> Iterator[tuple[int, Ints]]:
    """The ``queries``, each with the positions of its rows in order."""
    order = np.argsort(row_queries, kind="stable")
    sorted_queries = row_queries.take(order)
    for number in queries:
        begin, end = np.searchsorted(sorted_queries, (number, number + 1))
        yield number, order[begin:end]


def _largest(queries: Mapping[int, MeshTenant], plans: Mapping[int, Plan], rows: list[Partials]) -> str:
    """The query with the most rows, and the network of most of these."""
    counts: Counter[tuple[int, int]] = Counter()
    for part in rows:
        step = max(1, len(part) // _SAMPLE_SIZE)
        sample = part.query[::step].astype(np.int64) << 32 | part.operator[::step]
        codes, times = np.unique(sample, return_counts=True)
        for code, count in zip(codes.tolist(), (times * step).tolist(), strict=True):
            counts[code >> 32, code & 0xFFFFFFFF] += count
    largest = next((key for key, _ in counts.most_common() if key[0] in queries), None)
    if largest is None:
        texts = [repr(plan.query.text) for plan in plans.values()]
        return f"query {texts[0]} holds" if len(texts) == 1 else f"{len(texts):,} queries hold"
    number, operator = largest
    tree = queries[number].mesh.network(operator)
    plan = plans[number]
    network = CandidateNetwork.of(tree).text(plan.schema, plan.keywords)
    others_text = f" (besides {quantity(len(plans) - 1, 'other')})" if len(plans) > 1 else ""
    return f"query {shown(plan.query.text)}{others_text}, most of it for the network {network}, holds"
