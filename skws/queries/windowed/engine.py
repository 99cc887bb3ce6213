"""Keyword queries over window expressions: all tuples of a result are in one window.

The tracker of windows reads a batch first. It knows when tuples leave the last
window that may hold them, so the mesh joins live tuples once, however many
windows overlap. A result waits until a window ends that holds all its tuples;
it is given then, unless one of them was deleted. Its score counts texts, keywords
and tuples that share a value among the tuples of that window and the static ones.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any, Final

import numpy as np

from skws.data.batch import Record, RecordBatch, Rows
from skws.index import with_sources
from skws.keywords.plan import Plan
from skws.queries.evaluator import Counts, Load
from skws.queries.keywords.lifespan_resolver import TupleBatch, of_tuples
from skws.queries.keywords.live_results import LiveResults
from skws.queries.keywords.meshes import AnsweredQueries
from skws.queries.keywords.operator import KeywordOperator, MeshEngine
from skws.queries.keywords.result_emitter import Event, completed, in_order
from skws.queries.windowed.members import ClosedWindows, Contents, Holding, Members
from skws.queries.windowed.stream_windows import BatchSource, StreamWindows, WindowSpan
from skws.ranking.corpus import NAME, Keywords, Place, reached, text_lengths
from skws.ranking.scoring import Judged, Ranked, Scorer, TextCounts
from skws.results.directory import TupleDirectory
from skws.results.model import Result
from skws_mesh.columnar.bitmaps import KeywordBitmaps
from skws_mesh.columnar.columns import Flags, Ints
from skws_mesh.columnar.live import LiveTuples
from skws_mesh.columnar.store import NO_MEMBER, Partials
from skws_mesh.tree import Tree
from skws_purging.lifespans import ALWAYS, static_tuples
from skws_schema.evolution import nameable
from skws_schema.model import Schema
from skws_windows.processor.spans import Closed
from skws_windows.window import FOREVER, MICROSECOND, ExpressionWindow

_NONE: Final = -1
"""The length of no text."""


class WindowScoring(Scorer):
    """Scores results by the tuples of windows; has the lengths of texts, and the keywords in them, by tuple.

    Static tables are among these tuples, and tuples have their ends.
    """

    def __init__(self, schema: Schema, live: LiveTuples, known: TupleDirectory) -> None:
        super().__init__(schema, live, known)
        self._lengths: dict[Place, Ints] = {}  # by slot
        self._marks: dict[int, dict[Place, Ints]] = {}  # of each query, by slot: keywords as bits

    def add(self, query: int, plan: Plan, bitmaps: KeywordBitmaps) -> None:
        ranked = Ranked.of(plan)
        if ranked is None:
            return
        if not self._queries:
            self._lengths = self._lengths_of(self._known.rows)
        self._queries[query] = ranked
        self._marks[query] = self._marks_of(ranked.keywords, bitmaps.tuple[bitmaps.bitmap > 0], 0)

    def remove(self, query: int) -> None:
        self._queries.pop(query, None)
        self._marks.pop(query, None)

    def arrived(self, first: int, rows: Rows, bitmaps: KeywordBitmaps) -> None:
        if not self._queries:
            return
        _extend(self._lengths, self._lengths_of(rows))
        for query, ranked in self._queries.items():
            slots = bitmaps.tuple[(bitmaps.query == query) & (bitmaps.bitmap > 0)]
            _extend(self._marks[query], self._marks_of(ranked.keywords, slots, first))

    def renumber(self, slots: Ints) -> None:
        """Tuples get new slots; those below 0 are dropped."""
        kept = np.flatnonzero(slots >= 0)
        for columns in (self._lengths, *self._marks.values()):
            for place, column in columns.items():
                columns[place] = np.empty(len(kept), dtype=np.int64)
                columns[place][slots[kept]] = column[kept]

    def of(
        self,
        results: Partials,
        trees: list[Tree],
        expires: Ints,  # noqa: ARG002 - protocol
        *,
        snapshot: bool,  # noqa: ARG002
    ) -> list[Judged | None]:
        """The scores of results of static tuples alone."""
        static = Contents.of_static(self._live.tuples)
        window = np.zeros(len(results), dtype=np.int64)
        return self.over(results, trees, window, np.full(len(results), ALWAYS), static)

    def over(
        self, results: Partials, trees: list[Tree], window: Ints, tick: Ints, contents: Contents
    ) -> list[Judged | None]:
        """The scores of results, each with its tree, its tick, and the number of its window."""

        def inside(edge: Ints, member: Ints, rows: Ints) -> Ints:
            return self._fans(edge, member, window[rows], contents)

        def counts(number: int) -> TextCounts:
            return self._counts(contents.slots(number))

        spans = tick, np.full(len(results), FOREVER, dtype=np.int64)
        return self._scored(results, trees, spans, inside, (window, counts))

    def _counts(self, slots: Ints) -> TextCounts:
        """Counts among some tuples."""

        def texts(place: Place) -> tuple[int, int]:
            lengths = self._lengths[place][slots]
            there = lengths[lengths != _NONE]
            return len(there), int(there.sum())

        def containing(query: int, place: Place, keyword: int) -> int:
            return int((self._marks[query][place][slots] >> keyword & 1).sum())

        return TextCounts(self._schema, texts, containing)

    def _fans(self, edge: Ints, member: Ints, window: Ints, contents: Contents) -> Ints:
        """The number of tuples of a window that each edge leads to; each value is counted once a window."""
        counts = np.zeros(len(edge), dtype=np.int64)
        known, hashes = self._live.wanted(edge, member)
        asked = np.flatnonzero(known)
        pairs = np.stack([hashes.astype(np.int64), window[asked]], axis=1)
        _, first, which = np.unique(pairs, axis=0, return_index=True, return_inverse=True)
        one = asked[first]
        if len(one):
            position, slot = reached(self._live, edge[one], member[one])
            held = contents.hold(slot, window[one][position])
            counts[asked] = np.bincount(position[held], minlength=len(one))[which.reshape(-1)]
        return counts

    def _lengths_of(self, rows: Rows) -> dict[Place, Ints]:
        found = {
            (relation, column): np.full(len(rows), _NONE, dtype=np.int64)
            for relation, described in enumerate(self._schema.relations)
            for column in (*described.search_columns, NAME)
        }
        for place, mine, lengths in text_lengths(self._schema, rows):
            found[place][mine] = lengths
        return found

    def _marks_of(self, keywords: Keywords, slots: Ints, first: int) -> dict[Place, Ints]:
        """The keywords in the texts of some slots, by slot from ``first`` on."""
        size = len(self._live) - first
        found = {place: np.zeros(size, dtype=np.int64) for place in self._lengths}
        relations = self._live.tuples.relation
        for slot in slots.tolist():
            relation, row = int(relations[slot]), self._known.row(slot)
            for column in self._schema.relations[relation].search_columns:
                if row[column] is not None:
                    counts = keywords.occurrences(relation, column, str(row[column]))
                    mark = sum(1 << number for number, count in enumerate(counts) if count)
                    found[relation, column][slot - first] = mark
        return found


def _extend(columns: dict[Place, Ints], more: Mapping[Place, Ints]) -> None:
    for place, column in more.items():
        columns[place] = np.concatenate([columns[place], column])


class WaitingResults(LiveResults):
    """Results that wait for a window to end that holds all their tuples."""

    def __init__(self, operator: KeywordOperator, members: Members, scoring: WindowScoring) -> None:
        super().__init__()
        self._operator = operator
        self._members = members
        self._scoring = scoring

    def add(self, results: Partials) -> None:
        """Remember results; not those whose keys differ, nor those of static tuples alone."""
        same, _ = self._members.key_of(results.members)
        super().add(results.taken(self._streaming(results).any(axis=1) & same))

    def forget(self, closed: Closed) -> None:
        """Drop the results that windows hold: they were given before."""
        for _ in self._held(closed):
            pass

    def due(self, closed: Closed, time: Ints, begin: int) -> Iterator[Event]:
        """Results that windows hold, at the end of the first. ``time``: by position from ``begin`` on."""
        if len(closed.last):
            scored = len(self._scoring) > 0
            contents = Contents(self._operator.live.tuples, self._members.keys, closed) if scored else None
            for results, ends in self._held(closed):
                judged = [None] * len(results) if contents is None else self._judged(results, ends, contents)
                yield from self._events(results, ends, time[ends - begin], judged)

    def _held(self, closed: Closed) -> Iterator[tuple[Partials, Ints]]:
        holding = Holding(closed)
        return self.released(lambda results: self._first_ends(holding, results))

    def _streaming(self, results: Partials) -> Flags:
        """The members that are tuples of streams."""
        starts = self._operator.live.tuples.start[results.members]
        flags: Flags = (results.members != NO_MEMBER) & (starts != ALWAYS)
        return flags

    def _first_ends(self, holding: Holding, results: Partials) -> Ints:
        """The end of the first window that holds each result while its tuples are alive, or FOREVER."""
        starts, streaming = self._operator.live.tuples.start[results.members], self._streaming(results)
        first = np.where(streaming, starts, FOREVER).min(axis=1)
        last = np.where(streaming, starts, -1).max(axis=1)
        end = holding.ends(first, last, self._members.key_of(results.members)[1])
        return np.where(end < results.end, end, FOREVER)

    def _judged(self, results: Partials, ends: Ints, contents: Contents) -> list[Judged | None]:
        """Scores by the windows that results are given with."""
        trees = [self._operator.emitter.tree(row) for row in results.rows()]
        return self._scoring.over(results, trees, contents.ended_at(ends), ends, contents)

    def _events(
        self, results: Partials, ends: Ints, time: Ints, judged: Sequence[Judged | None]
    ) -> Iterator[Event]:
        times = self._operator.known.times[results.members]
        began = np.where(self._streaming(results), times, ALWAYS).max(axis=1)
        made = self._operator.emitter.results(results, began, time)
        columns = (made, ends.tolist(), time.tolist())
        for result, tick, end, score in zip(*columns, judged, strict=True):
            yield completed(tick, result if score is None else score.at(end / MICROSECOND).given_to(result))


class WindowedEngine(MeshEngine):
    """Answers queries over the windows of one expression, from the first record on.

    Records come in order of time. Raises UsageError for an expression that
    cannot be read.
    """

    def __init__(self, schema: Schema, window: ExpressionWindow) -> None:
        self.schema = schema
        self.window = window
        self.counts = Counts()
        self._windows = StreamWindows(nameable(schema), window)
        self.tracker = self._windows.tracker
        self._operator = KeywordOperator(schema, window, self._scorer, on_compact=self._renumber)
        self._members = Members(schema, self._operator, self.tracker)
        self._waiting = WaitingResults(self._operator, self._members, self._scoring)
        self._queries = AnsweredQueries()
        self._closed = ClosedWindows(self.tracker)

    @classmethod
    def of(cls, plan: Plan) -> WindowedEngine:
        """An engine with one query, whose window is an expression."""
        assert isinstance(plan.window, ExpressionWindow)  # noqa: S101 - the caller has checked
        engine = cls(plan.schema, plan.window)
        engine.add(plan)
        return engine

    def add(self, plan: Plan, name: str | None = None) -> None:
        """Answer a query from now on; its results are given when windows end."""
        number, is_new = self._queries.add(name or plan.query.text, plan)
        if is_new:
            for found in self._operator.add(number, plan):
                self._waiting.add(found)

    def remove(self, name: str) -> None:
        """Stop answering a query. Raises UsageError if there is none of that name."""
        number = self._queries.remove(name)
        if number is not None:
            self._waiting.remove(number)
            self._operator.remove(number)

    def load(self) -> Load:
        """With the results that wait for a window to end."""
        return replace(super().load(), waiting=len(self._waiting))

    def window_spans(self) -> list[WindowSpan]:
        """The windows that ended last, in order of their ends, and those that are open, oldest first."""
        return self._windows.window_spans()

    def load_tables(self, records: Iterable[Record]) -> Iterator[Result]:
        """Insert the static tables, which are in every window; gives the results of static tuples alone."""
        rows = ((record.relation, record.row) for record in with_sources(self.schema, records))
        static = static_tuples(self.schema, rows)
        self.counts.static += len(static)
        self._members.add_static(len(static))
        found = self._operator.insert(of_tuples(static, lambda t: t.occurrence > 0))
        self.counts.excluded = self._operator.excluded
        yield from self._counted(list(self._operator.emitter.events(found, snapshot=True)))

    def process_batches(self, batches: Iterable[RecordBatch]) -> Iterator[Result]:
        """Process records as columns, in order of time."""
        for batch in batches:
            if len(batch):
                yield from self._counted(self.events(batch))

    def seek(self, position: int) -> None:
        """Move to a position; the records before it are not processed."""
        self.tracker.position = position

    def state(self) -> dict[str, Any]:
        """The state without static tables, in plain values."""
        tuples, known = self._operator.live.tuples, self._operator.known
        slots = np.flatnonzero((tuples.end == FOREVER) & (tuples.start != ALWAYS)).tolist()
        members = [known.member(slot) for slot in slots]
        return {
            "tracker": self.tracker.state(),
            "tuples": [(m.start, m.time, m.relation, m.row) for m in members],
            "closed": self._closed.state(),
            "followed": sorted(self._members.followed),
            "counts": asdict(self.counts),
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Inverse of ``state``, for an engine with the same queries and tables, before the stream.

        The schema may have changed if the same automata find the windows:
        tuples of removed relations are left out.
        """
        self.tracker.restore(state["tracker"])
        gone = self.schema.evolution.removed_relations
        tuples = [each for each in state["tuples"] if each[2] not in gone]
        columns = tuple(map(list, zip(*tuples, strict=True))) or ([], [], [], [])
        positions, times, relations, rows = columns
        records = [Record(r, t, tuple(w), False) for r, t, w in zip(relations, times, rows, strict=True)]
        batch = RecordBatch.of(records)
        start = np.array(positions, dtype=np.int64)
        self._members.add_keys(self.tracker.keys(BatchSource(batch)))
        ends = np.full(len(start), FOREVER, dtype=np.int64)
        new = TupleBatch(batch.relation, batch.rows, start, ends, batch.time, start)
        for results in self._operator.insert(new):
            self._waiting.add(results)
        self._members.follow(set(state["followed"]) - gone)
        self._waiting.forget(self._closed.restore(state["closed"]))
        self.counts = Counts(**state["counts"])
        self._operator.excluded = self.counts.excluded  # restored tuples were counted before

    def events(self, batch: RecordBatch) -> list[Event]:
        """The results of a batch in order of time."""
        deletes = batch.deletes()
        self.counts.deletions += int(deletes.sum())
        self.counts.tuples += len(batch) - int(deletes.sum())
        inserted, begin, spans = self._windows.feed(batch)
        settled = self._members.settle(batch, inserted, spans)
        self.counts.unmatched_deletions += settled.unmatched
        if len(settled.slots):
            self._operator.end(settled.slots, settled.ends)
            self._waiting.shorten(settled.slots, self._operator.live.tuples.end)
        for results in self._operator.insert(settled.arrivals):
            self._waiting.add(results)
        self.counts.excluded = self._operator.excluded
        events = list(self._waiting.due(spans.closed, inserted.time, begin))
        self._closed.add(spans.closed)
        self._operator.purge(self.tracker.position)
        self._members.forget()
        if self.tracker.crowded:
            self.tracker.keep([self._members.keys, *self._closed.keys()])
        return events

    def _scorer(self, schema: Schema, live: LiveTuples, known: TupleDirectory) -> WindowScoring:
        self._scoring = WindowScoring(schema, live, known)
        return self._scoring

    def _renumber(self, horizon: int, slots: Ints) -> None:
        self._members.renumber(slots)
        self._scoring.renumber(slots)
        self._waiting.compact(horizon, slots)

    def _counted(self, events: list[Event]) -> Iterator[Result]:
        for result in in_order(events):
            self.counts.results += 1
            yield result
