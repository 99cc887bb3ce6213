"""What a run must give: its log against what came, its results against brute force.

The log of a run (its journal) says which records were read, and in which micro-batches. The model holds
it against the records that its source was given, and computes the results of each micro-batch by
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

from skws.data.record import Record
from skws.jobs.journal import Entry
from skws.keywords.match import Matcher
from skws.keywords.parse import parse_query
from skws.queries.stream_state import changed
from skws.results.encoded import parsed
from skws.results.model import LiveResult, Result
from skws.spec.job import Job
from skws.spec.query import KEYWORDS, Query
from skws_schema.instants import iso
from skws_schema.model import Row, Schema
from skws_windows.window import CountWindow, TimeWindow
from tests.oracles.oracle import Network, Oracle, Shape, instants, shape_of
from tests.sim.world import Finding

_INSTANT: Final = 1 << 40  # no other numbers are so large
Line = tuple[str, str, str, bytes]
"""A result: operation, query, id, JSON."""
Found = Counter[tuple[str, str, Shape]]
"""Results by operation, query and what they join."""


def check(holds: object, what: str, *details: object) -> None:
    """Raises Finding unless a promise holds."""
    if not holds:
        raise Finding(" ".join([what, *map(repr, details)]))


class KeywordOracle(Oracle):
    """Brute force for one keyword query, whose state can be copied."""

    def __init__(self, schema: Schema, query: Query, max_size: int) -> None:
        asked = parse_query(query.text, schema)
        super().__init__(_present(schema), len(asked.slots), max_size, Matcher(asked, schema).bitmap)
        self.query = query

    def shape(self, network: Network) -> Shape:
        """With instants as results show them."""
        shown = copy(self)
        shown.tuples = list(self.tuples)
        for number in network[0]:
            one = shown.tuples[number] = copy(self.tuples[number])
            one.row = tuple(iso(v) if isinstance(v, int) and v > _INSTANT else v for v in one.row)
        return super(KeywordOracle, shown).shape(network)

    def fork(self) -> KeywordOracle:
        twin = copy(self)
        twin.tuples, twin.live = list(self.tuples), list(self.live)
        return twin

    def begin_with(self, other: Oracle, tick: int) -> Counter[Shape]:
        """Take over the live tuples of another query; gives the results that are alive."""
        self.tuples, self.position = [copy(one) for one in other.tuples], other.position
        for one in self.tuples:
            one.keywords = self.bitmap(one.relation, one.row)  # type: ignore[operator]
        self.live = [n for n in other.live if self.tuples[n].end > tick]
        self.found = self.networks()
        return Counter(map(self.shape, self.found))

    def change(self, tick: int, schema: Schema) -> tuple[Counter[Shape], Counter[Shape]]:
        """What is retracted and what appears; relations and joins keep their positions."""
        self.live = [n for n in self.live if self.tuples[n].end > tick]
        before = {n for n in self.found if n[0] <= set(self.live)}
        shapes: dict[Network, Shape] = {n: self.shape(n) for n in before}
        self.schema = _present(schema)
        self.bitmap = Matcher(parse_query(self.query.text, schema), schema).bitmap
        gone = schema.evolution.removed_relations
        self.live = [n for n in self.live if self.tuples[n].relation not in gone]
        self.found = self.networks()
        return (
            Counter(shapes[n] for n in before - self.found),
            Counter(self.shape(n) for n in self.found - before),
        )


def _present(schema: Schema) -> Schema:
    """The schema without removed joins, which were appended last."""
    gone = schema.evolution.removed_joins
    return replace(schema, joins=tuple(j for n, j in enumerate(schema.joins) if n not in gone))


@dataclass(slots=True)
class State:
    """Of the model behind a micro-batch. ``read``: how many items of each part of the source."""

    oracles: dict[str, KeywordOracle]
    base: KeywordOracle
    stream: Any
    standing: dict[str, Query]
    read: dict[str, int]
    now: int = -(10**18)
    end: dict[str, Any] = field(default_factory=dict)

    def fork(self) -> State:
        return State(
            {name: one.fork() for name, one in self.oracles.items()},
            self.base.fork(),
            self.stream,
            dict(self.standing),
            dict(self.read),
            self.now,
            self.end,
        )


@dataclass(slots=True)
class Batch:
    """A micro-batch: its entry, the state behind it, and what it must give. ``lines``: once written."""

    entry: Entry
    state: State
    expected: Found
    late: list[Record]
    lines: list[Line] | None = None

    def check_letters(self, found: Sequence[bytes]) -> None:
        """Check its dead letters: bad records as they were read, late ones by their rows."""
        bad = [letter.encode() for letter in self.entry.letters]
        check(list(found[: len(bad)]) == bad, "the dead letters are", found, "and not", bad)
        late = [orjson.loads(orjson.loads(letter)["raw"]) for letter in found[len(bad) :]]
        told = [(one["relation"], tuple(one["row"].values())[:2], one["op"]) for one in late]
        schema = self.state.stream.schema
        names = [(schema.relations[r.relation].name, r.row[:2], "-" if r.delete else "+") for r in self.late]
        check(sorted(told) == sorted(names), "the late dead letters are", told, "and not", names)


Sent = tuple[str, Record, bytes]
"""What a source was given: the name of the relation, the record, and its bytes.

It is a bad record if the schema has no such relation."""


class Model:
    """``truth``: what the source was given, by part, as far as it can have been read.

    ``part``: the part that a record is from, by its relation and row.
    """

    def __init__(self, job: Job, part: Callable[[str, Row], str], rows: Sequence[Record] = ()) -> None:
        self.job = job
        self.truth: dict[str, list[Sent]] = {}
        self._part = part
        window = job.plan_window
        assert isinstance(window, CountWindow | TimeWindow)
        self._window = window
        base = KeywordOracle(job.schema, Query("nothing at all"), 1)
        if rows:
            base.load((row.relation, row.row) for row in rows)
        self._first = State({}, base, job.stream, {}, {})
        self.batches: list[Batch] = []
        self.commands: set[str] = set()

    @property
    def state(self) -> State:
        return self.batches[-1].state if self.batches else self._first

    @property
    def length(self) -> float:
        return self._window.length if isinstance(self._window, TimeWindow) else float("inf")

    def log(self, entry: Entry) -> Batch:
        """Check an entry that is appended to the log, and compute what it must give."""
        before = self.state
        check(entry.number == len(self.batches) + 1, "a micro-batch was numbered", entry.number)
        state = before.fork()
        expected = self._obey(state, entry)
        records = list(entry.records.records())
        self._consume(state, records, entry.letters, entry.bad)
        state.end = entry.end
        late = self._take(state, records, expected)
        return Batch(entry, state, expected, late)

    def append(self, batch: Batch) -> None:
        self.batches.append(batch)

    def undo(self, last: int, *, seen: bool = False) -> None:
        """A loss of power undid all behind micro-batch ``last``: nobody may have ``seen`` it."""
        for batch in [] if seen else self.batches[last:]:
            shown = batch.lines is not None and (batch.lines or batch.entry.letters or batch.late)
            check(
                not shown, f"micro-batch {batch.entry.number} was undone though its results had been written"
            )
        del self.batches[last:]
        self.commands = {one.id for batch in self.batches for one in batch.entry.commands if one.id}

    def written(self, number: int, results: Sequence[LiveResult]) -> None:
        """Check the results of a micro-batch that go to the sinks."""
        check(number <= len(self.batches), "results of a micro-batch that is not in the log", number)
        batch = self.batches[number - 1]
        texts = self._texts(batch)
        known = [parsed(r) for r in results if r.query in texts]
        found: Found = Counter((r.op, r.query, shape_of(r)) for r in known if isinstance(r, Result))
        if found != batch.expected:
            more, less = found - batch.expected, batch.expected - found
            check(False, f"micro-batch {number}: too many results", dict(more), "missing", dict(less))
        lines: list[Line] = [(r.op, r.query, r.id, r.to_json()) for r in results]
        if batch.lines is not None:
            check(lines == batch.lines, f"micro-batch {number} has other results than before")
        batch.lines = lines

    def _texts(self, batch: Batch) -> set[str]:
        before = self.batches[batch.entry.number - 2].state if batch.entry.number > 1 else self._first
        standing = [*batch.state.standing.values(), *before.standing.values()]
        added = {command.query for command in batch.entry.commands if command.kind == KEYWORDS}
        return {one.text for one in standing if one.kind == KEYWORDS} | added

    def lines(self, first: int = 1) -> list[Line]:
        """All results from a micro-batch on, as far as written: operation, query, id, JSON."""
        return [line for batch in self.batches[first - 1 :] for line in batch.lines or ()]

    @property
    def live(self) -> int:
        """The number of live tuples."""
        state = self.state
        if isinstance(self._window, CountWindow):
            return len([n for n in state.base.live if state.base.tuples[n].end > state.base.position])
        return len([n for n in state.base.live if state.base.tuples[n].end > state.now])

    def _obey(self, state: State, entry: Entry) -> Found:
        expected: Found = Counter()
        for command in entry.commands:
            if command.id:
                check(command.id not in self.commands, "a command was carried out twice", command)
                self.commands.add(command.id)
            match command.op:
                case "add":
                    check(command.name not in state.standing, "a query was added twice", command.name)
                    query = self.job.standing(command.name, command.asked)
                    state.standing[command.name] = query
                    if query.kind == KEYWORDS:
                        oracle = KeywordOracle(state.stream.schema, query, query.max_size or 1)
                        state.oracles[command.name] = oracle
                        alive = oracle.begin_with(state.base, self._tick(state))
                        _add(expected, "+", query.text, alive)
                case "remove":
                    check(command.name in state.standing, "a query was removed twice", command.name)
                    del state.standing[command.name]
                    state.oracles.pop(command.name, None)
                case "schema":
                    state.stream = changed(state.stream, command.schema)
                    change = partial(_changed, tick=self._tick(state), schema=state.stream.schema)
                    self._all(state, expected, change)
        return expected

    def _tick(self, state: State) -> int:
        return state.base.position - 1 if isinstance(self._window, CountWindow) else state.now

    def _consume(self, state: State, records: Sequence[Record], letters: Sequence[str], bad: int) -> None:
        """Each record is the next one of its part that was not read yet; so is each bad one."""
        raws = [orjson.loads(letter)["raw"].encode().rstrip(b"\n") for letter in letters]
        check(len(raws) == bad, "bad records were counted", bad, "and there are dead letters of", len(raws))
        schema = state.stream.schema
        parts: dict[str, list[Record]] = {part: [] for part in self.truth}
        for record in records:
            parts[self._part(schema.relations[record.relation].name, record.row)].append(record)
        for part, found in parts.items():
            state.read[part] = self._read_on(part, state.read.get(part, 0), found, raws, schema)
        check(not raws, "bad records were read that nobody wrote", raws)

    def _read_on(
        self, part: str, at: int, records: Sequence[Record], raws: list[bytes], schema: Schema
    ) -> int:
        """How far a part is read behind some of its records, and of ``raws`` those that are next."""
        given = self.truth[part]
        left = deque(records)
        while at < len(given):
            relation, record, raw = given[at]
            known = relation in schema.index  # also one that is gone: its records are passed over
            if left and known and left[0] == record._replace(relation=schema.index[relation]):
                left.popleft()
            elif raw in raws and not known:
                raws.remove(raw)
            else:
                break
            at += 1
        told = given[at] if at < len(given) else "nothing"
        check(not left, f"{part}: next came", told, "and it read", *list(left)[:1])
        return at

    def _take(self, state: State, records: list[Record], expected: Found) -> list[Record]:
        """Compute the results of records; gives those that are late."""
        gone = (
            state.stream.schema.evolution.removed_relations
        )  # whose records only have a time and a position
        if isinstance(self._window, CountWindow):
            size = self._window.size
            for record in records:
                counts = record.relation not in gone
                self._all(state, expected, partial(_counted, record=record, size=size, counts=counts))
            state.now = max([state.now, *(record.time for record in records)])
            return []
        records = sorted(records, key=lambda record: record.time)
        late = [record for record in records if record.time < state.now]
        for tick, together in instants(records[len(late) :]):
            counting = [record for record in together if record.relation not in gone]
            self._all(state, expected, partial(_at, tick=tick, records=counting, length=self.length))
            state.now = tick
        return late

    @staticmethod
    def _all(
        state: State,
        expected: Found,
        change: Callable[[KeywordOracle], tuple[Counter[Shape], Counter[Shape]]],
    ) -> None:
        """Change all oracles; queries of one text give a result once."""
        change(state.base)
        texts: set[str] = set()
        for oracle in state.oracles.values():
            retracted, appeared = change(oracle)
            if oracle.query.text not in texts:
                _add(expected, "-", oracle.query.text, retracted)
                _add(expected, "+", oracle.query.text, appeared)
            texts.add(oracle.query.text)

    def check_drained(self) -> None:
        """Everything that the source was given has been read."""
        for part, given in self.truth.items():
            read = self.state.read.get(part, 0)
            check(read == len(given), f"{part} has {len(given)} items, of which were read", read)


def _changed(oracle: KeywordOracle, tick: int, schema: Schema) -> tuple[Counter[Shape], Counter[Shape]]:
    return oracle.change(tick, schema)


def _counted(
    oracle: KeywordOracle, record: Record, size: int, *, counts: bool
) -> tuple[Counter[Shape], Counter[Shape]]:
    if counts:
        return oracle.record(record, size)
    tick = oracle.position - record.delete
    oracle.position += not record.delete
    return oracle.instant(tick, [], size + 1)


def _at(
    oracle: KeywordOracle, tick: int, records: Sequence[Record], length: float
) -> tuple[Counter[Shape], Counter[Shape]]:
    return oracle.instant(tick, records, length)


def _add(expected: Found, op: str, text: str, shapes: Mapping[Shape, int]) -> None:
    for shape, count in shapes.items():
        expected[op, text, shape] += count


def net(lines: Sequence[Line]) -> set[tuple[str, str]]:
    """The results that hold after all lines: query and id."""
    held: dict[tuple[str, str], None] = {}
    for op, query, name, _ in lines:
        if op == "+":
            held[query, name] = None
        else:
            held.pop((query, name), None)
    return set(held)
