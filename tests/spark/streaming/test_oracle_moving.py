"""Shards whose layout changes in mid-stream, again and again, give what one engine gives."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import asdict, replace

import orjson
import pytest
from msgspec import convert, to_builtins

from skws.data.batch import RecordBatch
from skws.data.packing import packed, unpacked
from skws.data.record import Record
from skws.jobs.control import Command
from skws.jobs.journal import Entry
from skws.jobs.worker import Worker
from skws.queries.keys import plan_keys
from skws.queries.keywords.lifespan_resolver import fronts_of, fronts_to_bytes
from skws.queries.partitioning import Partitioning
from skws.queries.stream_state import LoggedBatch
from skws.results.model import LiveResult
from skws.spark.streaming.layout import Layout, Wanted, keys_for
from skws.spark.streaming.messages import BatchHeader, Chunk, MicroBatch
from skws.spark.streaming.moving import Blob, divided, merged_fronts, planned
from skws.spark.streaming.processor import ShardProgress
from skws.spec.job import Job
from skws.spec.query import PATTERN, Query
from skws_purging.lifespans import Front
from skws_schema.errors import UsageError
from skws_schema.model import Join
from skws_windows.window import CountWindow, TimeWindow, Unbounded, Window
from tests.spark.streaming.shard_runs import KeptShard, lines
from tests.spark.streaming.test_oracle_shards import PAIRS, cut, random_records, random_row, shuffled
from tests.spark.streaming.test_oracle_shards import SCHEMA as UNDIVIDED
from tests.strategies import seeds

SCHEMA = replace(
    UNDIVIDED,
    joins=(
        Join("pk", "plain", "keyed", (("x", "x"),)),
        Join("pl", "plain", "link", (("x", "x"),)),
        Join("ft", "fixed", "plain", (("x", "x"),)),
    ),
)
"""All joins equate x, so tuples can be divided by it."""

_BEGIN = Layout(Partitioning.ROOTS, (0,))
_SHARDS = [Wanted(1), Wanted(2), Wanted(3), Wanted(3, Partitioning.ROOTS), Wanted(2, Partitioning.QUERIES)]


class Moving:
    """Shards of a job, whatever their layout; what Spark keeps of them is kept here."""

    def __init__(self, job: Job, lateness: int) -> None:
        self.job = job
        self.layout = _BEGIN
        self.lateness = lateness
        self.number = 0
        self.shards = {group: KeptShard(job, share) for group, share in _BEGIN.shares.items()}

    def move(self, layout: Layout) -> None:
        """As ``moving.moved``, without Spark."""
        rest = list(self._rest())
        old = [(chunk, body) for shard in self.shards.values() for chunk, body in shard.chunks.values()]
        kept, whole = planned(rest, [chunk for chunk, _ in old], self.layout, layout)
        for number, chunk in whole.items():
            bodies = [body for one, body in old if one.number == number]
            kept += divided(chunk, bodies, self.layout, layout, self.lateness)
        self.layout = layout
        self.shards = {
            group: self._begun(KeptShard(self.job, share), [one for one in kept if one[0] == group])
            for group, share in layout.shares.items()
        }

    def work(
        self, batch: list[Record], commands: list[Command], tables: list[Record], *, ended: bool
    ) -> tuple[list[LiveResult], int]:
        """The results of all shards, and how many records were too late."""
        self.number += 1
        records = RecordBatch.of(batch)
        reached = int(records.time.max()) if len(records) and self.layout.keys else None
        head = BatchHeader(0.0, tuple(commands), number=self.number, reached=reached, ended=ended)
        parts = self.layout.packed(records)
        parts *= 1 if self.layout.keys else self.layout.shards
        results: list[LiveResult] = []
        late = 0
        for part, shard in zip(parts, self.shards.values(), strict=True):
            shard.next = self.number
            worked = shard.work(MicroBatch(head, packed(RecordBatch.of(tables)), part))
            results += worked.results
            late += worked.stats.get("late", 0)
        assert len({shard.shard.now for shard in self.shards.values()}) == 1
        return results, late

    def _rest(self) -> Iterator[Blob]:
        for group, shard in self.shards.items():
            mark = ShardProgress(position=shard.shard.position, now=shard.shard.now, next=self.number + 1)
            yield group, "mark", "", b"", orjson.dumps(asdict(mark))
            for number, (text, chunk) in enumerate(shard.schemas):
                yield group, "schema", str(number), b"%d" % chunk, text.encode()
            for number, blob in enumerate(shard.tables):
                yield group, "table", str(number), b"", blob
            for name, state in shard.states.items():
                yield group, "state", name, b"", state
            for name, one in shard.queries.items():
                yield group, "query", name, b"", orjson.dumps(one.to_dict())

    def _begun(self, shard: KeptShard, blobs: list[Blob]) -> KeptShard:
        mark = ShardProgress()
        for _, kind, name, head, body in blobs:
            match kind:
                case "mark":
                    mark = ShardProgress(**orjson.loads(body))
                case "schema":
                    shard.schemas.append((body.decode(), int(head)))
                case "table":
                    shard.tables.append(body)
                case "state":
                    shard.states[name] = body
                case "query":
                    one = Query.from_dict(orjson.loads(body))
                    shard.queries[one.name] = one
                case "chunk":
                    shard.chunks[int(name)] = Chunk(**orjson.loads(head)), body
        shard.shard.begin(shard.tables, shard.queries.values(), shard.schemas, shard.states)
        for number in sorted(shard.chunks):
            shard.shard.replay(*shard.chunks[number])
        shard.shard.seek(mark.position, mark.now)
        return shard


def compare(
    job: Job, records: list[Record], seed: int, lateness: int = 0
) -> tuple[int, int, set[Partitioning]]:
    """Hold moving shards against one worker; gives results, retractions, and the layouts that there were."""
    rng = random.Random(seed)
    tables = [Record(3, 0, random_row(rng, 5)) for _ in range(6)]
    log: list[LoggedBatch] = []
    one, several = Worker(job, lambda _: log), Moving(job, lateness)
    one.load_tables(tables)
    expected: list[bytes] = []
    found: list[bytes] = []
    told: list[LiveResult] = []
    spreads = set()
    standing: dict[str, Query] = {}
    batches = cut(rng, records)
    for number, batch in enumerate(batches):
        commands: list[Command] = []
        if not number:
            commands = [Command.adding(query) for query in job.named().values()]
        if number == 5:
            commands = [Command("add", "late", "beta -no")]
        if number == 12:
            commands = [Command("add", "pairs", PAIRS, kind=PATTERN)]
        if number == 16:
            commands = [Command("remove", "pairs"), Command("remove", "late")]
        for command in commands:
            if command.op == "add":
                standing[command.name] = job.standing(command.name, command.asked)
            else:
                del standing[command.name]
        queries = list(standing.values())
        wanted = Wanted(several.layout.shards)
        if number and rng.random() < 0.4:
            wanted = rng.choice(_SHARDS)
        layout = wanted.layout(queries, job.stream, job.plan_window, several.layout, number)
        if layout != several.layout:
            several.move(layout)
        spreads.add(layout.spread)
        ended = number == len(batches) - 1
        before = one.live.position, one.live.now
        outcome = one.work(Entry(number + 1, {}, 0, tuple(commands), RecordBatch.of(batch), ended=ended))
        log.append(LoggedBatch(*before, RecordBatch.of(batch)))
        results, late = several.work(batch, commands, [] if number else tables, ended=ended)
        assert late == len(outcome.late), number
        assert lines(results) == lines(outcome.results), number
        assert sum(each.shard.position for each in several.shards.values()) in (
            one.live.position,
            one.live.position * several.layout.shards,
        )
        expected += lines(outcome.results)
        found += lines(results)
        told += results
    return sum(r.op == "+" for r in told), sum(r.op == "-" for r in told), spreads


def asked(window: Window, lateness: int = 0) -> Job:
    queries: dict[str, str | Query] = {"a": "alpha beta -no", "b": "alpha"}
    return Job(queries, SCHEMA, "nowhere", window=window, max_size=4, lateness=lateness, force_unbounded=True)


@pytest.mark.parametrize("window", [TimeWindow(12), TimeWindow(60), Unbounded()])
@seeds(2, 4)
def test_tuples_divided_by_key_and_not(window: Window, seed: int) -> None:
    records = random_records(random.Random(seed), 400)
    results, retractions, spreads = compare(asked(window), records, seed)
    assert results > 20
    assert retractions > 0
    assert {Partitioning.KEYS, Partitioning.ROOTS} <= spreads


@seeds(2, 4)
def test_records_out_of_order(seed: int) -> None:
    rng = random.Random(seed)
    records = shuffled(rng, random_records(rng, 400), 9)
    results, _, spreads = compare(asked(TimeWindow(30), 5), records, seed, 5)
    assert results > 20
    assert Partitioning.KEYS in spreads


@seeds(2, 4)
def test_a_pattern_that_looks_further_back_than_the_window(seed: int) -> None:
    """One shard has it, and a longer log than the others; its positions are those of one engine."""
    job = asked(TimeWindow(12))
    # Neither of two nor of three shards has it first.
    longer = Query("keyed k ; link l within 60 us", kind=PATTERN)
    job = replace(job, queries={**job.queries, "longer": longer})
    records = random_records(random.Random(seed), 400)
    results, _, spreads = compare(job, records, seed)
    assert results > 100
    assert spreads == {Partitioning.ROOTS, Partitioning.QUERIES}


@seeds(1, 4)
def test_equal_rows_that_queue(seed: int) -> None:
    rng = random.Random(seed)
    rows = [random_row(rng, 2) for _ in range(3)] + [("alpha pad", 1, 1), ("beta pad", 1, 1)]
    records, time = [], 1_000_000
    for _ in range(400):
        time += rng.choice([0, 1, 1, 2, 3])
        records.append(Record(rng.randrange(3), time, rng.choice(rows), rng.random() < 0.4))
    results, retractions, spreads = compare(asked(TimeWindow(12)), records, seed)
    assert results > 20
    assert retractions > 0
    assert Partitioning.KEYS in spreads


def test_a_window_of_tuples_is_not_divided_by_key() -> None:
    job = asked(CountWindow(9))
    queries = list(job.named().values())
    assert Wanted(3).layout(queries, job.stream, job.plan_window).spread is Partitioning.ROOTS
    with pytest.raises(UsageError, match="the window counts all tuples"):
        Wanted(3, Partitioning.KEYS).layout(queries, job.stream, job.plan_window)


def test_a_layout_stays_if_it_fits_and_is_told_whole() -> None:
    job = asked(TimeWindow(9))
    queries, stream, window = list(job.named().values()), job.stream, job.plan_window
    first = Wanted(3).layout(queries, stream, window)
    keys = plan_keys(queries, stream, window)
    assert first == Layout(Partitioning.KEYS, keys_for(3), keys if not isinstance(keys, str) else None)
    assert Wanted().layout(queries, stream, window, first, 7) is first
    pattern = job.standing("p", Query(PAIRS, kind=PATTERN))
    second = Wanted().layout([*queries, pattern], stream, window, first, 7)
    assert (second.spread, second.generation, second.before) == (Partitioning.ROOTS, 1, 7)
    assert second.previous == first
    # The state of a layout that never worked is that of the one before.
    third = Wanted(2).layout(queries, stream, window, second, 7)
    assert (third.generation, third.previous) == (2, first)
    fourth = Wanted(4).layout(queries, stream, window, third, 8)
    assert fourth.previous == replace(third, previous=None)
    for layout in (first, second, third, fourth):
        assert convert(orjson.loads(orjson.dumps(to_builtins(layout))), Layout) == layout


def test_unpacked_parts_of_a_chunk_are_the_chunk() -> None:
    rng = random.Random(1)
    records = RecordBatch.of(random_records(rng, 50))
    job = asked(TimeWindow(9))
    layout = Wanted(3).layout(list(job.named().values()), job.stream, job.plan_window)
    chunk = Chunk(7, 100, 5, 9, 150)
    parts = list(divided(chunk, [packed(records)], _BEGIN, layout, 0))
    assert {name for _, _, name, _, _ in parts} == {"7"}
    again = list(divided(chunk, [body for *_, body in parts], layout, _BEGIN, 0))
    assert len(again) == 1
    assert list(unpacked(again[0][-1]).records()) == list(records.records())


def test_fronts_of_shards_are_merged_to_the_latest() -> None:
    """After a move every shard has all fronts, but only one goes on with a queue and knows later ones."""
    copied = fronts_to_bytes([Front(1, (1, "lamp"), 500, 1, 1000), Front(1, (2, "lamp"), 100, 0, 1000)])
    known = fronts_to_bytes([Front(1, (1, "lamp"), 1000, 0, 1500)])
    former = b'[1000,[[1,[3,"lamp"],400,0]]]'
    assert sorted(fronts_of(merged_fronts([known, copied, former]))) == [
        Front(1, (1, "lamp"), 1000, 0, 1500),
        Front(1, (2, "lamp"), 100, 0, 1000),
        Front(1, (3, "lamp"), 400, 0, 1000),
    ]


@pytest.mark.parametrize("name", ["a", "b", "c", "d", "e"])
def test_a_state_is_that_of_the_shard_that_answers_the_query(name: str) -> None:
    """The others have one from before they were laid out anew."""
    before = Layout(Partitioning.ROOTS, keys_for(3))
    mark = orjson.dumps(asdict(ShardProgress()))
    rest: list[Blob] = [(group, "mark", "", b"", mark) for group in before.groups]
    for group, part in before.shares.items():
        rest.append((group, "state", name, b"", b"now" if part.owns(name) else b"once"))
    kept, _ = planned(rest, [], before, Layout(Partitioning.ROOTS, keys_for(2)))
    assert [body for _, kind, _, _, body in kept if kind == "state"] == [b"now", b"now"]
