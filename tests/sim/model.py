"""The required behaviour of a run: its log compared with the input, its results with brute force.

The log of a run (its journal) says which records were read, and in which micro-batches. The model compares
it with the records that the source was given, and computes the results of each micro-batch by
enumeration (``tests/oracles``), from the definitions alone.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Final

import orjson

from skws.data.batch import Record, RecordBatch
from skws.data.value_conversion import EARLIEST
from skws.formats.rows import RecordReader
from skws.jobs.journal import JournalEntry
from skws.keywords.match import Matcher
from skws.keywords.parse import parse_query
from skws.queries.operator import changed
from skws.queries.order import PASSED_OVER
from skws.results.result import LiveResult, Result
from skws.sources.partitions import stream_time
from skws.spec.job import Job
from skws.spec.query_spec import KEYWORDS, PATTERN, Query
from skws_schema.model import Row, Schema, iso
from skws_windows.window import CountWindow, ExpressionWindow, TimeWindow
from tests.oracles.oracle import Difference, Network, Oracle, Shape, instants, shape_of
from tests.sim.matches import Inserted, MatchOracle, match_shape
from tests.sim.twin import ResultCounts, Twin, counts_of
from tests.sim.world import Finding

_PAST: Final = 60  # at least the number of insertions that any window contains
_ENUMERATED: Final = (KEYWORDS, PATTERN)
"""Kinds that enumeration answers; the twin answers the others, and all kinds with expression windows."""
_INSTANT: Final = 1 << 40  # no other numbers are so large
Line = tuple[str, str, str, bytes]
"""A result: operation, query, id, JSON."""
ShapeCounts = Counter[tuple[str, str, Shape]]
"""Results by operation, query and joined tuples."""


def check(holds: object, promise: str, *details: object) -> None:
    """Raises Finding unless a promise holds."""
    if not holds:
        raise Finding(" ".join([promise, *map(repr, details)]))


class KeywordOracle(Oracle):
    """Brute force for one keyword query, whose state can be copied."""

    def __init__(self, schema: Schema, query: Query, max_size: int) -> None:
        parsed = parse_query(query.text, schema)
        super().__init__(
            _without_removed_joins(schema), len(parsed.slots), max_size, Matcher(parsed, schema).bitmap
        )
        self.query = query

    def shape(self, network: Network) -> Shape:
        """The shape of a network, with instants as results show them."""
        shown_oracle = copy(self)
        shown_oracle.tuples = list(self.tuples)
        for number in network[0]:
            live_tuple = shown_oracle.tuples[number] = copy(self.tuples[number])
            live_tuple.row = tuple(
                iso(v) if isinstance(v, int) and v > _INSTANT else v for v in live_tuple.row
            )
        return super(KeywordOracle, shown_oracle).shape(network)

    def fork(self) -> KeywordOracle:
        fork = copy(self)
        fork.tuples, fork.live = list(self.tuples), list(self.live)
        return fork

    def begin_with(self, other: Oracle, tick: int) -> Counter[Shape]:
        """Take over the live tuples of another query; returns the results that are alive."""
        self.tuples, self.position = [copy(live_tuple) for live_tuple in other.tuples], other.position
        for live_tuple in self.tuples:
            live_tuple.keywords = self.bitmap(live_tuple.relation, live_tuple.row)  # type: ignore[operator]
        self.live = [n for n in other.live if self.tuples[n].end > tick]
        self.found = self.networks()
        return Counter(map(self.shape, self.found))

    def change(self, tick: int, schema: Schema) -> Difference:
        """The retracted and new results of a schema change; relations and joins keep their positions."""
        self.live = [n for n in self.live if self.tuples[n].end > tick]
        before = {n for n in self.found if n[0] <= set(self.live)}
        shapes: dict[Network, Shape] = {n: self.shape(n) for n in before}
        self.schema = _without_removed_joins(schema)
        self.bitmap = Matcher(parse_query(self.query.text, schema), schema).bitmap
        removed = schema.evolution.removed_relations
        self.live = [n for n in self.live if self.tuples[n].relation not in removed]
        self.found = self.networks()
        return Difference(
            Counter(shapes[n] for n in before - self.found),
            Counter(self.shape(n) for n in self.found - before),
            Counter(),
        )


def _without_removed_joins(schema: Schema) -> Schema:
    """The schema without removed joins, which were appended last."""
    removed = schema.evolution.removed_joins
    return replace(schema, joins=tuple(j for n, j in enumerate(schema.joins) if n not in removed))


@dataclass(slots=True)
class State:
    """The state of the model after a micro-batch. ``read``: the number of items of each part of the source.

    ``waiting``: records that others may still precede; ``past``: the latest insertions of settled records,
    ``position`` that of the next one, ``settled`` that of the last one, and the latest time of a settled
    record. ``now``: the latest time. ``final``: the stream time, once partitions were out of step;
    ``reached``: the latest time of each part.
    """

    oracles: dict[str, KeywordOracle]
    base: KeywordOracle
    stream: Any
    standing_queries: dict[str, Query]
    read: dict[str, int]
    matching: dict[str, MatchOracle] = field(default_factory=dict)
    past: list[Inserted] = field(default_factory=list)
    waiting: list[Record] = field(default_factory=list)
    position: int = 0
    settled: tuple[int, int] = (-1, EARLIEST)
    now: int = EARLIEST
    final: int | None = None
    reached: dict[str, int] = field(default_factory=dict)
    end: dict[str, Any] = field(default_factory=dict)

    def fork(self) -> State:
        return replace(
            self,
            oracles={name: oracle.fork() for name, oracle in self.oracles.items()},
            base=self.base.fork(),
            standing_queries=dict(self.standing_queries),
            read=dict(self.read),
            matching=dict(self.matching),
            past=list(self.past),
            waiting=list(self.waiting),
            reached=dict(self.reached),
        )

    @property
    def time(self) -> int:
        """The stream time."""
        return self.now if self.final is None else self.final


@dataclass(slots=True)
class Batch:
    """A micro-batch: its entry, the state after it, and its expected results.

    ``others``: its results of queries that no oracle answers.
    ``alive``: if later records correct results, the keyword results that must hold after it, by query.
    ``lines``, ``held``: once written, its results, and the keyword results that hold after all so far: the
    end and the shape by query and id. ``letters``: its dead letters, once they were checked.
    """

    entry: JournalEntry
    state: State
    expected: ShapeCounts
    late: list[Record]
    others: ResultCounts
    alive: dict[str, Counter[Shape]] | None = None
    lines: list[Line] | None = None
    held: dict[tuple[str, str], tuple[float, Shape]] = field(default_factory=dict)
    letters: Sequence[bytes] | None = None

    def check_letters(self, dead_letters: Sequence[bytes]) -> None:
        """Check its dead letters: bad records by their raw text, late ones by their rows."""
        if dead_letters == self.letters:
            return
        bad_letters = [letter.encode() for letter in self.entry.letters]
        check(
            list(dead_letters[: len(bad_letters)]) == bad_letters,
            "the dead letters are",
            dead_letters,
            "and not",
            bad_letters,
        )
        late_raws = [orjson.loads(orjson.loads(letter)["raw"]) for letter in dead_letters[len(bad_letters) :]]
        late_records = [(raw["relation"], tuple(raw["row"].values())[:2], raw["op"]) for raw in late_raws]
        schema = self.state.stream.schema
        names = [(schema.relations[r.relation].name, r.row[:2], "-" if r.delete else "+") for r in self.late]
        check(
            sorted(late_records) == sorted(names), "the late dead letters are", late_records, "and not", names
        )
        self.letters = dead_letters


Sent = tuple[str, Record, bytes]
"""An item given to a source: the name of the relation, the record, and its bytes.

It is a bad record if the schema has no such relation.
"""


class Model:
    """``truth``: the items that the source was given, by part, as far as they can have been read.

    ``part``: the part of a record, by its relation and row.
    """

    def __init__(self, job: Job, part: Callable[[str, Row], str], rows: Sequence[Record] = ()) -> None:
        self.job = job
        self.truth: dict[str, list[Sent]] = {}
        self._part = part
        window = self._window = job.plan_window
        self._enumerated = () if isinstance(window, ExpressionWindow) else _ENUMERATED
        self._lateness = 0 if isinstance(window, CountWindow) else job.stream.lateness
        base = KeywordOracle(job.schema, Query("nothing at all"), 1)
        base.load((row.relation, row.row) for row in rows)
        self._first = State({}, base, job.stream, {}, {})
        self._twin = Twin(job, rows, lambda kind: kind not in self._enumerated)
        self.batches: list[Batch] = []
        self.commands: set[str] = set()

    @property
    def state(self) -> State:
        return self.batches[-1].state if self.batches else self._first

    @property
    def length(self) -> float:
        return self._window.length if isinstance(self._window, TimeWindow) else float("inf")

    def log(self, entry: JournalEntry) -> Batch:
        """Check an entry that is appended to the log, and compute its expected results."""
        before = self.state
        check(entry.number == len(self.batches) + 1, "a micro-batch was numbered", entry.number)
        state = before.fork()
        if state.final is None and stream_time(entry.end) is not None:
            state.final = state.now  # up to here, parts were in step
        expected = self._apply_commands(state, entry)
        sorted_out = self._sorted_out(state, entry)
        entry = replace(
            entry,
            records=RecordBatch.of([*entry.records.whole.records(), *sorted_out]),
            letters=entry.letters[: entry.bad],
        )
        records = list(entry.records.whole.records())
        records_by_part = self._consume(state, records, sorted_out, entry)
        late = self._take(state, records, expected, stream_time(entry.end))
        check(not sorted_out or sorted(sorted_out) == sorted(late), "late are", late, "and not", sorted_out)
        self._check_time(before, state, records_by_part)
        state.end = entry.end
        other_results = self._twin.results([batch.entry for batch in self.batches], entry)
        live_results = self._alive(state) if self._corrects(state) else None
        return Batch(entry, state, expected, late, other_results, live_results)

    def _sorted_out(self, state: State, entry: JournalEntry) -> list[Record]:
        """The late records of an entry, which are only dead letters in the log of a single process."""
        reader = RecordReader(state.stream.schema)
        dead_letters = map(orjson.loads, entry.letters[entry.bad :])
        return [reader.record(orjson.loads(letter["raw"]), None) for letter in dead_letters]

    def _check_time(self, before: State, state: State, read: Mapping[str, Sequence[Record]]) -> None:
        """Check that the stream time is not ahead of a part with new records, unless all are late."""
        horizon = before.time - self._lateness
        for part, records in read.items():
            latest = max((record.time for record in records), default=EARLIEST)
            part_time = state.reached[part] = max(latest, state.reached.get(part, EARLIEST))
            next_item = self.truth[part][state.read[part] :][:1]
            latest_known = max([before.time, part_time, *(record.time for _, record, _ in next_item)])
            if records and state.final is not None and latest >= horizon:
                check(state.final <= latest_known, "the stream time is beyond", part)

    def _corrects(self, state: State) -> bool:
        """True if later records correct results, so that only the results that hold are compared."""
        return bool(self._lateness) or state.final is not None

    def append(self, batch: Batch) -> None:
        self.batches.append(batch)

    def undo(self, last: int, *, seen: bool = False) -> None:
        """Undo all after micro-batch ``last``, lost with the power: nobody may have ``seen`` it."""
        for batch in [] if seen else self.batches[last:]:
            is_written = batch.lines is not None and (batch.lines or batch.entry.letters or batch.late)
            check(
                not is_written,
                f"micro-batch {batch.entry.number} was undone though its results had been written",
            )
        del self.batches[last:]
        self.commands = {
            command.id for batch in self.batches for command in batch.entry.commands if command.id
        }

    def written(self, number: int, results: Sequence[LiveResult]) -> None:
        """Check the results of a micro-batch that are passed to the sinks."""
        check(number <= len(self.batches), "results of a micro-batch that is not in the log", number)
        batch = self.batches[number - 1]
        kinds = self._kinds(batch)
        keyword_results: ShapeCounts = Counter()
        keywords: list[Result] = []
        other_results: list[Result] = []
        for result in results:
            check(result.name in kinds, "a result of an unknown query", result.name)
            parsed = result.parsed
            if kinds[result.name] not in self._enumerated:
                other_results.append(parsed)
            elif kinds[result.name] == PATTERN:
                keyword_results[result.op, result.name, match_shape(parsed)] += 1
            else:
                keywords.append(parsed)
                if batch.alive is None:
                    keyword_results[result.op, result.name, shape_of(parsed)] += 1
        if keyword_results != batch.expected:
            surplus, missing = keyword_results - batch.expected, batch.expected - keyword_results
            check(False, f"micro-batch {number}: too many results", dict(surplus), "missing", dict(missing))
        self._hold(batch, keywords)
        if batch.alive is not None:
            self._check_alive(batch)
        other_counts = counts_of(other_results)
        check(
            other_counts == batch.others,
            f"micro-batch {number}: an undisturbed run lacks",
            other_counts - batch.others,
            "and has",
            batch.others - other_counts,
        )
        lines: list[Line] = [(r.op, r.name, r.id, r.to_json()) for r in results]
        if batch.lines is not None:
            check(lines == batch.lines, f"micro-batch {number} has other results than before")
        batch.lines = lines

    def _kinds(self, batch: Batch) -> dict[str, str]:
        """The kinds of the queries that may have results in a micro-batch, by name."""
        before = self.batches[batch.entry.number - 2].state if batch.entry.number > 1 else self._first
        queries = [*batch.state.standing_queries.values(), *before.standing_queries.values()]
        added_queries = [
            self.job.with_defaults(command.name, command.new_query)
            for command in batch.entry.commands
            if command.op == "add"
        ]
        return {query.name: query.kind for query in (*queries, *added_queries)}

    def _hold(self, batch: Batch, results: Sequence[Result]) -> None:
        before = self.batches[batch.entry.number - 2].held if batch.entry.number > 1 else {}
        # A removed query may be added again at once.
        removed_names = {command.name for command in batch.entry.commands if command.op == "remove"}
        held_results = {key: result for key, result in before.items() if key[0] not in removed_names}
        for result in results:
            if result.op == "-":
                held_results.pop((result.name, result.id), None)
            else:
                end = float("inf") if result.end is None else round(result.end * 1_000_000)
                held_results[result.name, result.id] = end, shape_of(result)
        latest = batch.state.now
        batch.held = {
            key: result
            for key, result in held_results.items()
            if key[0] in batch.state.oracles and result[0] > latest
        }

    def _check_alive(self, batch: Batch) -> None:
        """Check which results hold after a micro-batch, if results are corrected."""
        assert batch.alive is not None
        for name, expected in batch.alive.items():
            actual = Counter(shape for (query, _), (_, shape) in batch.held.items() if query == name)
            surplus, missing = dict(actual - expected), dict(expected - actual)
            check(
                not surplus and not missing,
                f"{name} in micro-batch {batch.entry.number} holds",
                surplus,
                "lacks",
                missing,
            )

    def _alive(self, state: State) -> dict[str, Counter[Shape]]:
        """The keyword results that hold now, by query, with all records so far sorted."""
        base = state.base.fork()
        for tick, records in instants(state.waiting) if self._enumerated else ():
            _instant_change(base, tick, records, self.length)
        return {name: oracle.begin_with(base, state.now) for name, oracle in state.oracles.items()}

    def lines(self, first: int = 1) -> list[Line]:
        """All results from a micro-batch on, as far as written: operation, query, id, JSON."""
        return [line for batch in self.batches[first - 1 :] for line in batch.lines or ()]

    @property
    def living(self) -> list[tuple[str, Row]]:
        """Relation and row of each tuple that no window ends; with a lateness, also of those that wait."""
        base = self.state.base.fork()
        for tick, records in instants(self.state.waiting):
            _instant_change(base, tick, records, self.length)
        return [
            (base.schema.relations[live_tuple.relation].name, live_tuple.row)
            for live_tuple in map(base.tuples.__getitem__, base.live)
        ]

    @property
    def live(self) -> int:
        """The number of live tuples."""
        state = self.state
        if isinstance(self._window, CountWindow):
            return len([n for n in state.base.live if state.base.tuples[n].end > state.base.position])
        end = state.now if state.final is None else state.final - self._lateness
        waiting_count = 0 if state.final is None else len(state.waiting)
        return waiting_count + len([n for n in state.base.live if state.base.tuples[n].end > end])

    def _apply_commands(self, state: State, entry: JournalEntry) -> ShapeCounts:
        expected: ShapeCounts = Counter()
        for command in entry.commands:
            if command.id:
                check(command.id not in self.commands, "a command was carried out twice", command)
                self.commands.add(command.id)
            match command.op:
                case "add":
                    check(command.name not in state.standing_queries, "a query was added twice", command.name)
                    query = self.job.with_defaults(command.name, command.new_query)
                    state.standing_queries[command.name] = query
                    if query.kind not in self._enumerated:
                        continue
                    if query.kind == PATTERN:
                        self._add_match(state, query, expected)
                    else:
                        oracle = KeywordOracle(state.stream.schema, query, query.max_size or 1)
                        state.oracles[command.name] = oracle
                        live_results = oracle.begin_with(state.base, self._tick(state))
                        if not self._corrects(state):
                            _add(expected, "+", query.name, live_results)
                case "remove":
                    check(command.name in state.standing_queries, "a query was removed twice", command.name)
                    del state.standing_queries[command.name]
                    state.oracles.pop(command.name, None)
                    state.matching.pop(command.name, None)
                case "schema":
                    state.stream = changed(state.stream, command.schema)
                    state.waiting = self._counting(state, state.waiting)
                    # Waiting records may end tuples that have reached their end already.
                    count = isinstance(self._window, CountWindow)
                    tick = self._tick(state) if count else state.time - self._lateness
                    change = partial(_schema_change, tick=tick, schema=state.stream.schema)
                    self._all(state, expected, change)
                    for oracle in state.oracles.values() if self._corrects(state) else ():
                        change(oracle)
        return expected

    def _tick(self, state: State) -> int:
        return state.base.position - 1 if isinstance(self._window, CountWindow) else state.now

    def _consume(
        self, state: State, records: Sequence[Record], sorted_out: Sequence[Record], entry: JournalEntry
    ) -> dict[str, list[Record]]:
        """Check that each record, good or bad, is the next unread one of its part; returns them by part.

        ``sorted_out``: the last ones of the records.
        """
        dead_letters, bad_count = entry.letters, entry.bad
        raws = [orjson.loads(letter)["raw"].encode().rstrip(b"\n") for letter in dead_letters]
        check(
            len(raws) == bad_count,
            "bad records were counted",
            bad_count,
            "and there are dead letters of",
            len(raws),
        )
        schema = state.stream.schema
        parts: dict[str, list[Record]] = {part: [] for part in self.truth}
        for record in records:
            parts[self._part(schema.relations[record.relation].name, record.row)].append(record)
        for part, records_of_part in parts.items():
            late_records = [record for record in records_of_part if record in sorted_out]
            accepted = [record for record in records_of_part if record not in sorted_out]
            state.read[part] = self._next_position(
                part, state.read.get(part, 0), (accepted, late_records), raws, schema
            )
        check(not raws, "bad records were read that were not sent", raws)
        return parts

    def _next_position(
        self,
        part: str,
        position: int,
        records: tuple[Sequence[Record], Sequence[Record]],
        raws: list[bytes],
        schema: Schema,
    ) -> int:
        """The position in a part after some of its records, and after those of ``raws`` that are next.

        ``records``: the accepted ones and those that were sorted out, each in order of arrival.
        """
        items = self.truth[part]
        queues = [deque(queue) for queue in records]
        while position < len(items):
            relation, record, raw = items[position]
            is_known = relation in schema.index  # or removed: such records are skipped
            expected = record._replace(relation=schema.index[relation]) if is_known else None
            queue_of_record = next((queue for queue in queues if queue and queue[0] == expected), None)
            if queue_of_record is not None:
                queue_of_record.popleft()
            elif raw in raws and not is_known:
                raws.remove(raw)
            else:
                break
            position += 1
        next_item = items[position] if position < len(items) else "nothing"
        for queue_of_record in queues:
            check(
                not queue_of_record,
                f"{part}: next came",
                next_item,
                "and it read",
                *list(queue_of_record)[:1],
            )
        return position

    def _take(
        self, state: State, records: list[Record], expected: ShapeCounts, final: int | None
    ) -> list[Record]:
        """Compute the results of records; returns the late ones."""
        if isinstance(self._window, CountWindow):
            size = self._window.size
            for _, records_of_tick in instants(self._counting(state, records)):
                self._all(state, expected, partial(_count_change, records=records_of_tick, size=size))
                for record in records_of_tick:
                    self._match(state, expected, record)
            state.now = max([state.now, *(record.time for record in records)])
            return []
        records = sorted(records, key=lambda record: record.time)
        late = [record for record in records if record.time < state.time - self._lateness]
        state.waiting += self._counting(state, records[len(late) :])
        state.waiting.sort(key=lambda record: record.time)
        state.now = max([state.now, *(record.time for record in state.waiting)])
        if final is not None:
            state.final = max(final, state.time)
        horizon = state.time - self._lateness
        ready_records = [
            waiting_record
            for waiting_record in state.waiting
            if waiting_record.time < horizon + (not self._lateness)
        ]
        state.waiting = state.waiting[len(ready_records) :]
        for tick, records_of_tick in instants(ready_records):
            change = partial(_instant_change, tick=tick, records=records_of_tick, length=self.length)
            self._all(state, expected, change)
            for record in records_of_tick:
                self._match(state, expected, record)
        return late

    @staticmethod
    def _counting(state: State, records: Sequence[Record]) -> list[Record]:
        """The records of existing relations; those of removed ones only have a time and a position."""
        removed = state.stream.schema.evolution.removed_relations
        return [
            record._replace(relation=PASSED_OVER) if record.relation in removed else record
            for record in records
        ]

    def _match(self, state: State, expected: ShapeCounts, record: Record) -> None:
        """Process the next record in order, for patterns."""
        position = state.position
        state.position += not record.delete
        if record.relation == PASSED_OVER:
            return
        state.settled = state.position - 1, max(state.settled[1], record.time)
        if record.delete:
            return
        state.past.append(Inserted(position, state.settled[1], record.relation, record.row))
        del state.past[:-_PAST]
        for name, oracle in state.matching.items():
            _add(expected, "+", name, oracle.completed(state.past))

    def _add_match(self, state: State, query: Query, expected: ShapeCounts) -> None:
        oracle = state.matching[query.name] = MatchOracle(self.job.schema, query, self._window)
        _add(expected, "+", query.name, oracle.alive(state.past, *state.settled))

    def _all(
        self,
        state: State,
        expected: ShapeCounts,
        change: Callable[[KeywordOracle], Difference],
    ) -> None:
        """Change all oracles."""
        if self._enumerated:  # otherwise the outcome is not used
            change(state.base)
        if self._corrects(state):
            return
        for name, oracle in state.oracles.items():
            retracted, appeared, updated = change(oracle)
            _add(expected, "-", name, retracted)
            _add(expected, "+", name, appeared)
            for (shape, _), count in updated.items():
                expected["~", name, shape] += count

    def check_drained(self) -> None:
        """Check that everything that the source was given has been read."""
        for part, items in self.truth.items():
            read_count = self.state.read.get(part, 0)
            check(read_count == len(items), f"{part} has {len(items)} items, of which were read", read_count)


def _schema_change(oracle: KeywordOracle, tick: int, schema: Schema) -> Difference:
    return oracle.change(tick, schema)


def _count_change(oracle: KeywordOracle, records: Sequence[Record], size: int) -> Difference:
    return oracle.counted(records, size)


def _instant_change(oracle: KeywordOracle, tick: int, records: Sequence[Record], length: float) -> Difference:
    return oracle.instant(tick, [record for record in records if record.relation != PASSED_OVER], length)


def _add(expected: ShapeCounts, op: str, name: str, shapes: Mapping[Shape, int]) -> None:
    for shape, count in shapes.items():
        expected[op, name, shape] += count


def net(lines: Sequence[Line]) -> set[tuple[str, str]]:
    """The results that hold after all lines: query and id."""
    held_results: dict[tuple[str, str], None] = {}
    for op, query, name, _ in lines:
        if op == "-":
            held_results.pop((query, name), None)
        else:
            held_results[query, name] = None
    return set(held_results)
