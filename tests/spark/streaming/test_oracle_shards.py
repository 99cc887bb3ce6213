"""Shards together have the results of one engine, in any layout, and after losing their meshes."""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import asdict, replace
from itertools import cycle
from pathlib import Path
from typing import Any, Final, NamedTuple

import orjson
import pytest
from msgspec import convert, to_builtins
from msgspec.structs import replace as replace_struct

from skws.data.batch import Record, RecordBatch, batched
from skws.data.packing import pack, unpack
from skws.jobs.control import JobCommand
from skws.jobs.journal import JournalEntry
from skws.jobs.worker import BatchWorker
from skws.queries.keywords.updates import ShardUpdates
from skws.queries.kinds import moment
from skws.queries.operator import LoggedBatch
from skws.queries.partitioning.parts import KeyPartitioning, Part, Partitioning, plan_keys
from skws.results.result import LiveResult
from skws.sources.partitions import STREAM_TIME
from skws.spark.streaming.layout import (
    Blob,
    Layout,
    LayoutRequest,
    divide_chunk,
    divide_chunks,
    keys_for,
    merged_fronts,
    plan_move,
)
from skws.spark.streaming.messages import BatchHeader, Chunk, MicroBatch
from skws.spark.streaming.processor import ShardProgress
from skws.spark.streaming.shard_server import CHUNK_BYTES, FEW_BYTES
from skws.spec.enums import EvaluatorName
from skws.spec.job import Job
from skws.spec.query_spec import KEYWORDS, PATTERN, SIZE, TOP, WINDOW, Query
from skws.store.lifespan_resolver import fronts_of, fronts_to_bytes
from skws_mesh.mesh_kinds import MeshChoice, MeshKind
from skws_purging.lifespans import ALWAYS, Front
from skws_schema.errors import UsageError
from skws_schema.model import Join, Relation, Schema
from skws_schema.yaml.document import to_yaml
from skws_windows.window import CountWindow, TimeWindow, Unbounded, Window
from tests.queries.counted import counted
from tests.spark.streaming.shard_runs import KeptShard, all_shards, micro_batch_of
from tests.strategies import COLUMNS, combinations, length, seeds, some


@pytest.fixture(autouse=True)
def _counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    counted(tmp_path, monkeypatch)


SCHEMA: Final = Schema(
    "streams",
    (
        Relation("plain", COLUMNS, search=("t",)),
        Relation("keyed", COLUMNS, key=("x",), search=("t",)),
        Relation("link", COLUMNS),
        Relation("fixed", COLUMNS, search=("t",), table=True),
    ),
    (
        Join("pk", "plain", "keyed", (("x", "x"),)),
        Join("pl", "plain", "link", (("y", "y"),)),
        Join("lk", "link", "keyed", (("x", "y"),)),
        Join("self", "plain", "plain", (("x", "y"),)),
        Join("ft", "fixed", "plain", (("x", "x"),)),
    ),
)
DIVIDED: Final = replace(
    SCHEMA,
    joins=tuple(
        Join(name, left, right, (("x", "x"),))
        for name, left, right in (("pk", "plain", "keyed"), ("pl", "plain", "link"), ("ft", "fixed", "plain"))
    ),
)
"""All joins equate x, so x divides the tuples."""


def _without(schema: Schema, *names: str) -> Schema:
    """The schema without some relations or joins."""
    relations = tuple(r for r in schema.relations if r.name not in names)
    joins = tuple(j for j in schema.joins if not {j.name, j.left, j.right} & set(names))
    return replace(schema, relations=relations, joins=joins)


_MORE: Final = replace(
    SCHEMA,
    relations=(*SCHEMA.relations, Relation("extra", COLUMNS, search=("t",))),
    joins=(*SCHEMA.joins, replace(SCHEMA.joins[0], name="ek", left="extra")),
)
CHANGES: Final = [
    *(SCHEMA, _MORE, *(_without(SCHEMA, name) for name in ("pk", "self", "link", "keyed"))),
    *(_without(_MORE, "plain"), replace(_without(SCHEMA, "lk"), name="renamed")),
]
PAIRS: Final = "plain p AND link l where p.y = l.y within 8 us"  # the log covers this time
OTHERS: Final = (
    Query("plain p ; keyed k where p.x = k.x", kind=PATTERN),
    Query("plain p AND link l where p.y = l.y", kind=PATTERN),
    Query("5", kind="counted"),
)
WORDS: Final = ("alpha", "beta", "no", "pad", "(alpha OR no)", "al*", "alhpa~")
LIMITS: Final = ("", " -no", " -beta", " plain.x<3", " -keyed.y:0..1", " -link:", " -(no OR plain.y=2)")
MESHED: Final = ("alpha ; beta", "alpha !plain.x=1")
"""Queries that keep a separate mesh beside delta joins."""


def random_records(
    rng: random.Random, count: int, values: int = 5, *, truncated: bool = False
) -> list[Record]:
    """Ties, equal rows, NULLs, deletions of known and unknown rows, keyed replacements."""
    records: list[Record] = []
    time = 1_000_000
    for number in range(count):
        time += rng.choice([0, 0, 1, 1, 2, 3])
        if truncated and number % 90 == 89:
            records.append(Record.truncation(number % 3, time))
            continue
        if records and rng.random() < 0.2:
            earlier = rng.choice(records[-30:])
            records.append(earlier._replace(time=time, delete=earlier.truncates or rng.random() < 0.7))
            continue
        records.append(Record(rng.randrange(3), time, random_row(rng, values)))
    return records


def random_row(rng: random.Random, values: int) -> tuple[str, int | None, int | None]:
    words = [word for word in ("alpha", "beta", "no") if rng.random() < 0.4]
    numbers = [rng.choice([None, *range(values)]) for _ in range(2)]
    return " ".join([*words, "pad"]), numbers[0], numbers[1]


def equal_rows(rng: random.Random, count: int) -> list[Record]:
    """Few rows, so a deletion matches several equal ones."""
    rows = [random_row(rng, 2) for _ in range(3)] + [("alpha pad", 1, 1), ("beta pad", 1, 1)]
    records, time = [], 1_000_000
    for _ in range(count):
        time += rng.choice([0, 1, 1, 2, 3])
        records.append(Record(rng.randrange(3), time, rng.choice(rows), rng.random() < 0.4))
    return records


def cut(rng: random.Random, records: list[Record]) -> list[list[Record]]:
    batches: list[list[Record]] = []
    remaining = records
    while remaining:
        size = rng.randrange(1, 25)
        batches.append(remaining[:size])
        remaining = remaining[size:]
    return batches


def out_of_order(rng: random.Random, records: Sequence[Record]) -> list[Record]:
    """Sorted records in the order in which partitions that are out of step return them."""
    lags = [rng.choice((0, 5, 40)) for _ in range(3)]
    return sorted(records, key=lambda record: record.time + rng.choice(lags))


def stream_times(rng: random.Random, batches: Sequence[Sequence[Record]], in_step: int) -> list[int | None]:
    """The stream time after each batch: no later record is earlier. None during the first records."""
    times: list[int | None] = []
    count, latest, final = 0, ALWAYS, ALWAYS
    for number, batch in enumerate(batches):
        count += len(batch)
        latest = max([latest, *(record.time for record in batch)])
        if count <= in_step:
            times.append(None)
            continue
        least = min(
            [latest, *(record.time for later_batch in batches[number + 1 :] for record in later_batch)]
        )
        if rng.random() < 0.7:  # otherwise, an empty partition is awaited
            final = max(final, least)
        times.append(final)
    return times


def random_query(rng: random.Random) -> Query:
    if rng.random() < 0.15:
        return Query(rng.choice(MESHED))
    words = rng.sample(WORDS, rng.choice([1, 2, 2, 2, 3, 4]))
    # A query may not exclude its own keyword.
    return Query(" ".join(words) + rng.choice([each for each in LIMITS if each[2:] not in words]))


def any_query(rng: random.Random) -> Query:
    return rng.choice(OTHERS) if rng.random() < 0.12 else random_query(rng)


class Shards:
    """The shards of a job in any layout, with the state that Spark would keep.

    ``few_bytes``: as for ``Shard``. ``replaced``: how often live tuples replaced a log.
    """

    def __init__(self, job: Job, few_bytes: int) -> None:
        self.job = job
        self.few_bytes = few_bytes
        self.replaced = 0
        self.layout = Layout(Partitioning.ROOTS, (0,))
        self.number = 0
        self.updates = ShardUpdates(replaces=False)
        self.shards = {group: self._new(share) for group, share in self.layout.shares.items()}

    def _new(self, share: Part) -> KeptShard:
        return KeptShard(self.job, share, few_bytes=self.few_bytes)

    def move(self, layout: Layout) -> None:
        """Like ``layout.initial_state``, without Spark."""
        blobs = list(self._rest())
        chunks = [
            (group, *chunk)
            for group, shard in self.shards.items()
            for chunk in [*shard.chunks.values(), *([shard.live] if shard.live else [])]
        ]
        moved_blobs, undivided = plan_move(
            blobs, [(group, chunk) for group, chunk, _ in chunks], self.layout, layout
        )
        parts = [(chunk, body) for _, chunk, body in chunks]
        moved_blobs += divide_chunks(undivided, parts, self.layout, layout, self.job.lateness or 0)
        self.layout = layout
        self.shards = {
            group: self._begun(self._new(share), [one for one in moved_blobs if one[0] == group])
            for group, share in layout.shares.items()
        }

    def work(
        self,
        batch: list[Record],
        commands: list[JobCommand],
        tables: list[Record],
        final: int | None,
        *,
        ended: bool,
    ) -> tuple[list[LiveResult], int]:
        """The results of all shards, and the number of late records."""
        self.number += 1
        records = RecordBatch.of(batch)
        latest = int(records.time.max()) if len(records) and self.layout.keys else None
        header = BatchHeader(
            0.0, tuple(commands), number=self.number, final=final, reached=latest, ended=ended
        )
        parts = self.layout.pack(records)
        parts *= 1 if self.layout.keys else self.layout.shards
        results_by_group: list[tuple[int, LiveResult]] = []
        late_counts = []
        for group, (part, shard) in enumerate(zip(parts, self.shards.values(), strict=True)):
            shard.next = self.number
            answer = shard.work(MicroBatch(header, pack(RecordBatch.of(tables)), part))
            results_by_group += [(group, result) for result in answer.results]
            late_counts.append(answer.stats.get("late", 0))
            self.replaced += bool(answer.live)
        assert len({shard.shard.now for shard in self.shards.values()}) == 1
        for command in commands:
            if command.op == "remove":
                self.updates.remove(command.name)
        if len({group for group, _ in results_by_group}) > 1:
            results_by_group.sort(
                key=lambda one: (not one[1].snapshot, moment(one[1]), one[1].op != "-", one[1].id)
            )
        return self.updates.take(results_by_group), sum(late_counts)

    def _rest(self) -> Iterator[Blob]:
        for group, shard in self.shards.items():
            mark = ShardProgress(
                position=shard.shard.position,
                now=shard.shard.now,
                final=shard.final,
                next=self.number + 1,
                ended=shard.ended,
            )
            yield group, "mark", "", b"", orjson.dumps(asdict(mark))
            for number, (text, chunk) in enumerate(shard.schemas):
                yield group, "schema", str(number), b"%d" % chunk, text.encode()
            for number, blob in enumerate(shard.tables):
                yield group, "table", str(number), b"", blob
            for name, state in shard.states.items():
                yield group, "state", name, b"", state
            for name, (query, first_batch) in shard.queries.items():
                yield group, "query", name, b"", orjson.dumps({**query.to_dict(), "since": first_batch})

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
                    description = orjson.loads(body)
                    first_batch = description.pop("since")
                    query = Query.from_dict(description)
                    shard.queries[query.name] = query, first_batch
                case "chunk":
                    shard.chunks[int(name)] = Chunk(**orjson.loads(head)), body
                case "live":
                    shard.live = Chunk(**orjson.loads(head)), body
        shard.replay(mark.log_end)
        shard.final, shard.ended = mark.final, mark.ended
        shard.shard.seek(mark.position, mark.now, mark.final)
        return shard


class Comparison(NamedTuple):
    """What occurred during a comparison."""

    results: int
    retractions: int
    spreads: set[Partitioning]
    changes: int
    replaced: int


LAYOUTS: Final = (
    *(LayoutRequest(1), LayoutRequest(2), LayoutRequest(3)),
    *(
        LayoutRequest(2, Partitioning.QUERIES),
        LayoutRequest(3, Partitioning.QUERIES),
        LayoutRequest(3, Partitioning.ROOTS),
    ),
)


def commands_of(
    rng: random.Random,
    single: BatchWorker,
    draw: Callable[[random.Random], Query],
    most: int,
    schemas: bool,
    stay: Collection[str] = (),
) -> list[JobCommand]:
    """Commands that add and remove random queries: about ``most`` run, sometimes only those in ``stay``.

    Some schema changes are rejected.
    """
    queries = [query for query in single.standing_queries.all_queries() if query.name not in stay]
    removes_all = rng.random() < 0.05
    commands = [
        JobCommand("remove", query.name)
        for query in queries
        if removes_all or rng.random() < len(queries) / most / 4
    ]
    for _ in range(rng.randrange(4) if len(queries) < most else 0):
        query = draw(rng)
        commands.append(JobCommand.add(Query(query.text, kind=query.kind, name=f"q{rng.randrange(10_000)}")))
    if schemas and rng.random() < 0.3:
        commands.append(JobCommand("schema", "", schema=to_yaml(rng.choice(CHANGES))))
    return single.standing_queries.validate(commands)[0]


def lines(results: Iterable[LiveResult]) -> list[bytes]:
    """The results as sorted JSON lines."""
    return sorted(orjson.dumps(result.to_dict()) for result in results)


def standing_after(results: Sequence[LiveResult]) -> list[bytes]:
    """Like ``lines``, with only the last report of each result; updates count as new results.

    Corrections may move a result from root to root, and so through several shards, which report each step;
    one engine reports only the last.
    """
    last = {(r.parsed.name, r.id): r for r in sorted(results, key=lambda r: (moment(r), r.op != "-"))}
    return lines(
        replace_struct(r, op="+", at=None, changed=()) if r.op == "~" else r
        for r in (one.parsed for one in last.values())
    )


def compare(
    job: Job,
    records: list[Record],
    seed: int,
    *,
    layouts: tuple[LayoutRequest, ...] = LAYOUTS,
    draw: Callable[[random.Random], Query] = any_query,
    theirs: Job | None = None,
    schemas: bool = False,
    few_bytes: int = FEW_BYTES,
    stay: Collection[str] = (),
    out_of_step: int = 0,
) -> Comparison:
    """Compare shards with one worker, batch by batch; layouts take turns.

    ``theirs``: the job of the shards. ``few_bytes``: as for ``Shard``. ``stay``: queries of the job
    that are not removed. ``out_of_step``: the number of last records read from partitions out of step.
    """
    rng = random.Random(seed)
    tables = [Record(3, 0, random_row(rng, 5)) for _ in range(6)]
    log: list[LoggedBatch] = []
    single, shards = BatchWorker(job, lambda _: log), Shards(theirs or job, few_bytes)
    single.load_tables(batched(tables))
    results = retractions = changes = 0
    spreads: set[Partitioning] = set()
    turns = cycle(rng.sample(layouts, len(layouts)))
    batches = cut(
        rng, [*records[:-out_of_step], *out_of_order(rng, records[-out_of_step:])] if out_of_step else records
    )
    finals = stream_times(rng, batches, len(records) - out_of_step)
    for number, (drawn, final) in enumerate(zip(batches, finals, strict=True)):
        commands = commands_of(rng, single, draw, 15, schemas, stay)
        if not number:
            commands = [*map(JobCommand.add, job.named().values()), *commands]
        changes += sum(command.op == "schema" for command in commands)
        has_extra = len(single.standing_queries.stream.schema.relations) > len(SCHEMA.relations)
        batch = [
            r._replace(relation=4) if has_extra and rng.random() < 0.2 and not r.delete else r for r in drawn
        ]
        is_last = number == len(batches) - 1
        was_in_step = single.live.final is None and final is not None
        before = single.live.position, single.live.now
        record_batch = RecordBatch.of(batch)
        logged = LoggedBatch(*before, record_batch, single.live.now if was_in_step else single.live.final)
        end = {} if final is None else {STREAM_TIME: {"final": final}}
        outcome = single.work(JournalEntry(number + 1, end, 0, tuple(commands), record_batch, ended=is_last))
        log.append(logged)
        layout_choice = next(turns) if number and rng.random() < 0.5 else LayoutRequest(shards.layout.shards)
        standing_queries, window = single.standing_queries, job.plan_window
        layout = layout_choice.layout(
            list(standing_queries.all_queries()), standing_queries.stream, window, shards.layout, number
        )
        if layout != shards.layout:
            shards.move(layout)
        for shard in shards.shards.values():
            if rng.random() < 0.2:
                shard.rebuild()
        results_of_shards, late = shards.work(batch, commands, [] if number else tables, final, ended=is_last)
        spreads.add(layout.spread)
        assert late == len(outcome.late), number
        comparable = standing_after if job.lateness or final is not None else lines
        assert comparable(results_of_shards) == comparable(outcome.results), number
        assert sum(each.shard.position for each in shards.shards.values()) in (
            single.live.position,
            single.live.position * layout.shards,
        )
        results += sum(each.op == "+" for each in outcome.results)
        retractions += sum(each.op == "-" for each in outcome.results)
    return Comparison(results, retractions, spreads, changes, shards.replaced)


def shards_job(window: Window, schema: Schema = SCHEMA, lateness: int = 0, **more: Query) -> Job:
    """``more``: queries from the start on, beside two keyword queries."""
    queries: dict[str, str | Query] = {"a": "alpha beta -no", "b": "alpha", **more}
    return Job(
        queries,
        schema,
        "nowhere",
        window=window,
        max_size=4,
        lateness=lateness,
        control=Path("none"),
    )


@combinations(
    "stream_of_case, divided",
    [
        *((window, 0, False) for window in (TimeWindow(12), TimeWindow(60), CountWindow(40), Unbounded())),
        (TimeWindow(30), 5, False),
        *((window, 0, True) for window in (TimeWindow(12), CountWindow(9))),
    ],
    [False, True],
)
@seeds(1, 4)
def test_shards_have_the_results_of_one_engine(
    stream_of_case: tuple[Window, int, bool], divided: bool, seed: int
) -> None:
    """With a lateness, records are out of order, and some too late. ``equal``: few rows, repeatedly."""
    window, lateness, equal = stream_of_case
    schema = DIVIDED if divided else SCHEMA
    rng = random.Random(seed)
    count = 100 if isinstance(window, Unbounded) else length(120, 250)
    records = equal_rows(rng, count) if equal else random_records(rng, count, truncated=True)
    if lateness:
        records.sort(key=lambda record: record.time + rng.uniform(0, 9))
    comparison = compare(shards_job(window, schema, lateness), records, seed)
    assert comparison.results > 20
    assert comparison.retractions > 0
    assert {Partitioning.ROOTS, Partitioning.QUERIES} <= comparison.spreads


@pytest.mark.slow
@some("divided, equal", [(False, True), (True, False)], [(False, False), (True, True)])
@some("lateness", [0], [5])
@seeds(1, 12)
def test_shards_over_partitions_that_are_out_of_step(
    divided: bool, lateness: int, equal: bool, seed: int
) -> None:
    """From some record on, while layouts change, meshes are lost, and live tuples replace logs."""
    rng = random.Random(seed)
    records = equal_rows(rng, 250) if equal else random_records(rng, 250, truncated=True)
    longer = Query("keyed k ; link l within 20 us", kind=PATTERN)
    best = Query("alpha beta", kind=TOP, options={SIZE: "2"})
    job = shards_job(TimeWindow(12), DIVIDED if divided else SCHEMA, lateness, longer=longer, best=best)
    out_of_step = rng.choice((120, 200, 249))
    permanent = ("longer", "best") if rng.random() < 0.5 else ()
    comparison = compare(
        job, records, seed, few_bytes=FEW_BYTES // 4, out_of_step=out_of_step, stay=permanent
    )
    assert comparison.results > 20
    assert comparison.retractions > 0


@pytest.mark.check
@seeds(1, 4)
def test_patterns_with_windows_longer_than_that_of_the_job(seed: int) -> None:
    """One shard has each pattern, and so a longer log; positions are those of one engine."""
    longer = Query("keyed k ; link l within 60 us", kind=PATTERN)
    records = random_records(random.Random(seed), length(150, 300))
    job = shards_job(TimeWindow(6), DIVIDED, longer=longer)
    comparison = compare(
        job, records, seed, draw=lambda rng: rng.choice((Query(PAIRS, kind=PATTERN), Query("beta")))
    )
    assert comparison.results > 100


@pytest.mark.slow
@some("window", [TimeWindow(40)], [CountWindow(40)])
@seeds(1, 4)
def test_shards_change_their_schemas_like_one_worker(window: Window, seed: int) -> None:
    best = Query("alpha beta", kind=TOP, options={SIZE: "3"})
    over_tuples = Query("plain p ; plain q where p.y = q.y within 6 tuples", kind=PATTERN)
    over_all = Query("plain p ; * b where p.x = b.x", kind=PATTERN)
    job = shards_job(window, best=best, own=over_tuples, any=over_all)
    comparison = compare(
        job, random_records(random.Random(seed), length(150, 300)), seed, draw=random_query, schemas=True
    )
    assert comparison.results > 5
    assert comparison.changes > (0 if isinstance(window, CountWindow) else 1)


BY_QUERY: Final = (LayoutRequest(3, Partitioning.QUERIES),)
ANY_LAYOUT: Final = (
    LayoutRequest(1),
    *(LayoutRequest(number, spread) for number in (2, 3) for spread in Partitioning),
)


FULL_MESH: Final = {"mesh": MeshChoice(MeshKind.FULL)}
BY_DELTA: Final = {"evaluator": EvaluatorName.DELTA}


@pytest.mark.slow
@some(
    "window, schema, layouts, lateness, values, by",
    [
        (TimeWindow(30), SCHEMA, BY_QUERY, 0, 5, FULL_MESH),
        (TimeWindow(30), SCHEMA, BY_QUERY, 0, 2, BY_DELTA),
        (TimeWindow(30), DIVIDED, (LayoutRequest(3, Partitioning.KEYS),), 0, 5, BY_DELTA),
        (TimeWindow(30), DIVIDED, ANY_LAYOUT, 5, 5, FULL_MESH),
    ],
    [
        (TimeWindow(30), SCHEMA, BY_QUERY, 0, 5, BY_DELTA),
        (TimeWindow(30), SCHEMA, BY_QUERY, 0, 2, FULL_MESH),
        (TimeWindow(30), DIVIDED, (LayoutRequest(3, Partitioning.KEYS),), 0, 5, FULL_MESH),
        (TimeWindow(30), DIVIDED, ANY_LAYOUT, 5, 5, BY_DELTA),
        *(
            (window, SCHEMA, BY_QUERY, 0, values, by)
            for window in (CountWindow(20), Unbounded())
            for values in (5, 2)
            for by in (FULL_MESH, BY_DELTA)
        ),
    ],
)
@seeds(1, 3)
def test_shards_with_other_evaluators(
    window: Window,
    schema: Schema,
    layouts: tuple[LayoutRequest, ...],
    lateness: int,
    values: int,
    by: dict[str, Any],
    seed: int,
) -> None:
    """Shards by roots never use delta joins. With few join values, a tuple has many join partners."""
    rng = random.Random(seed)
    is_dense = values == 2 or isinstance(window, Unbounded)
    records = random_records(rng, length(80, 120) if is_dense else length(150, 180), values)
    if lateness:
        records.sort(key=lambda record: record.time + rng.uniform(0, 9))
    job = shards_job(window, schema, lateness)
    job_of_shards = replace(job, **by)
    comparison = compare(job, records, seed, layouts=layouts, draw=random_query, theirs=job_of_shards)
    assert comparison.results > 100
    assert comparison.retractions > 0
    assert {want.spread for want in layouts} - {None} <= comparison.spreads


def test_the_log_drops_expired_records() -> None:
    shard = all_shards(shards_job(TimeWindow(10)), 1)[0]
    shard.work(micro_batch_of((), [JobCommand.add(Query("alpha", name="a"))]))
    for time in range(0, 200, 2):
        shard.work(micro_batch_of([Record(0, time, ("alpha", 1, 1))]))
    assert [chunk.latest for chunk, _ in shard.chunks.values()] == list(range(178, 200, 2))


def test_without_a_window_the_log_keeps_everything_and_reports_its_size() -> None:
    shard = all_shards(shards_job(Unbounded()), 1)[0]
    for time in range(50):
        answer = shard.work(micro_batch_of([Record(0, time, ("alpha", 1, 1))]))
    assert len(shard.chunks) == 50
    size = sum(len(records) for _, records in shard.chunks.values())
    assert answer.stats["log_bytes"] == size > 0
    shard.rebuild()
    answer = shard.work(micro_batch_of([]))
    assert answer.stats["log_bytes"] == size


def many_updates(rng: random.Random, count: int) -> list[Record]:
    """Most rows are dead: there are few keys and few rows without a key, which are deleted."""
    records: list[Record] = []
    time = 1_000_000
    for _ in range(count):
        time += rng.choice([0, 1, 1, 2])
        row = random_row(rng, 3)
        deletable = [each for each in records if each.relation == 0 and not each.delete][-8:]
        if deletable and rng.random() < 0.3:
            records.append(rng.choice(deletable)._replace(time=time, delete=True))
        else:
            records.append(Record(rng.choice([0, 1, 1, 1]), time, row))
    return records


@pytest.mark.slow
@combinations("window, lateness, divided", [Unbounded(), TimeWindow(200)], [0, 5], [False, True])
@seeds(1, 8)
def test_logs_are_replaced_by_live_tuples(window: Window, lateness: int, divided: bool, seed: int) -> None:
    rng = random.Random(seed)
    records = many_updates(rng, length(150, 300))
    if lateness:
        records.sort(key=lambda record: record.time + rng.uniform(0, 9))
    job = shards_job(window, DIVIDED if divided else SCHEMA, lateness)
    comparison = compare(job, records, seed, draw=random_query, few_bytes=10_000)
    assert comparison.results > 20
    assert comparison.replaced > 1


@pytest.mark.slow
@some(
    "lateness, seed",
    [(0, 7), (5, 3)],
    [(5, 7), *((lateness, seed) for lateness in (0, 5) for seed in (9, 14, 19, 21))],
)
def test_logs_are_replaced_by_live_tuples_across_schema_changes(lateness: int, seed: int) -> None:
    rng = random.Random(seed)
    records = many_updates(rng, length(150, 300))
    if lateness:
        records.sort(key=lambda record: record.time + rng.uniform(0, 9))
    job = shards_job(Unbounded(), SCHEMA, lateness)
    comparison = compare(job, records, seed, draw=random_query, schemas=True, few_bytes=10_000)
    assert comparison.changes > 1
    assert comparison.replaced > 1


SHORT: Final = (
    Query("plain p ; keyed k where p.x = k.x within 20 us", kind=PATTERN),
    Query("keyed a ; keyed b where a.x = b.x within 9 tuples", kind=PATTERN),
    Query(PAIRS, kind=PATTERN),
)
LONGER: Final = Query("* p ; * k where p.x = k.x within 30 us", kind=PATTERN)
"""Each shard has some of its matches, so added patterns begin with an unreplaced log."""


@pytest.mark.slow
@some(
    "lateness, schemas, seed",
    [(0, True, 1), (5, True, 7)],
    [
        *((0, False, 1), (5, False, 1), (5, True, 1), (5, False, 5)),
        *(
            (lateness, schemas, seed)
            for lateness in (0, 5)
            for schemas in (False, True)
            for seed in range(8, 12)
        ),
        *(
            (lateness, schemas, seed)
            for lateness in (0, 5)
            for schemas in (False, True)
            for seed in range(3, 7)
        ),
        *((lateness, False, 2) for lateness in (0, 5)),
    ],
)
def test_logs_are_replaced_despite_patterns_with_their_own_windows(
    lateness: int, schemas: bool, seed: int
) -> None:
    rng = random.Random(seed)
    records = many_updates(rng, length(200, 400))
    if lateness:
        records.sort(key=lambda record: record.time + rng.uniform(0, 9))
    best = Query("alpha beta", kind=TOP, options={SIZE: "2", WINDOW: "25 us"})
    job = shards_job(Unbounded(), SCHEMA, lateness, longer=LONGER, counted=SHORT[1], best=best)

    def draw(rng: random.Random) -> Query:
        return rng.choice((SHORT[0], SHORT[2])) if rng.random() < 0.3 else random_query(rng)

    few_bytes = length(4_000, 10_000)
    comparison = compare(job, records, seed, draw=draw, schemas=schemas, few_bytes=few_bytes, stay={"longer"})
    assert comparison.results > 100
    assert comparison.replaced


@pytest.mark.check
@some(
    "divided, seed",
    [(True, 2), (False, 18)],
    [(divided, seed) for divided in (False, True) for seed in (8, 10)],
)
def test_late_records_meet_logs_of_live_tuples_in_other_layouts(divided: bool, seed: int) -> None:
    """Shards by key learn the times of others; they replace their logs at different times."""
    rng = random.Random(seed)
    records = many_updates(rng, length(150, 300))
    records.sort(key=lambda record: record.time + rng.uniform(0, 9))
    job = shards_job(Unbounded(), DIVIDED if divided else SCHEMA, 5)
    assert compare(job, records, seed, draw=random_query, few_bytes=10_000).replaced > 1


@pytest.mark.slow
@pytest.mark.parametrize("window", [Unbounded(), TimeWindow(10_000)])
def test_a_log_has_live_tuples_and_two_windows_of_patterns(window: Window) -> None:
    shard = all_shards(shards_job(window), 1)[0]
    shard.few_bytes = 20_000
    shard.rebuild()
    query = Query("keyed a ; keyed b where a.x = b.x within 20 us", name="p", kind=PATTERN)
    shard.work(micro_batch_of((), [JobCommand.add(query)]))
    sizes, chunks = [], []
    for number in range(400):
        records = [Record(1, 10 * number, ("alpha", x, number)) for x in range(20)]
        shard.work(micro_batch_of(records))
        if number % 50 == 49:
            shard.rebuild()
        sizes.append(shard.size)
        chunks.append(len(shard.chunks))
    assert max(sizes[200:]) <= max(sizes[:200]) < 400 * len(pack(RecordBatch.of(records))) / 8
    assert max(chunks) < 30
    shard.work(micro_batch_of(records, [JobCommand("remove", "p")]))
    assert all(number > shard.live[0].number for number in shard.chunks if shard.live)


@pytest.mark.slow
def test_live_tuples_are_the_past_of_a_pattern_until_its_windows_end() -> None:
    """An added pattern reads the live tuples that replaced the log, also if it is rebuilt later."""
    (shard,) = all_shards(shards_job(Unbounded()), 1)
    shard.few_bytes = 20_000
    shard.rebuild()
    for time in range(40):
        shard.work(micro_batch_of([Record(1, time, ("alpha", 1, time % 2))]))
    assert shard.live is not None
    first = shard.live[0].number
    query = Query("keyed a ; plain b within 100 us", name="p", kind=PATTERN)
    shard.work(micro_batch_of((), [JobCommand.add(query)]))
    for time in range(first, 90):
        shard.work(micro_batch_of([Record(1, time, ("alpha", 2, time))]))
    assert shard.live[0].number == first
    shard.rebuild()
    results = shard.work(micro_batch_of([Record(0, 90, ("beta", 1, 1))])).results
    assert {one.parsed.tuples[0].row["x"] for one in results if one.parsed.name == "p"} == {1, 2}
    while shard.live[0].number == first:
        time += 1
        assert time < 1_000
        shard.work(micro_batch_of([Record(1, time, ("alpha", 2, time))]))


@pytest.mark.parametrize("rebuilt", [False, True])
def test_a_longer_pattern_begins_with_chunks_of_a_shorter_one_and_live_tuples(rebuilt: bool) -> None:
    (shard,) = all_shards(shards_job(Unbounded()), 1)
    shard.few_bytes = 20_000
    shard.rebuild()
    short = Query("keyed a ; keyed b where a.x = b.x within 20 us", name="short", kind=PATTERN)
    shard.work(micro_batch_of([Record(1, 0, ("alpha", 900, 0))], [JobCommand.add(short)]))
    number = 0
    while shard.live is None or shard.live[0].number < shard.next - 1 or number < 30:
        number += 1
        shard.work(micro_batch_of([Record(1, 10 * number, ("alpha", x, number)) for x in range(20)]))
    live_number = shard.live[0].number
    assert 0 < len(shard.chunks) < 10
    longer = Query("keyed a ; plain b within 10 ms", name="longer", kind=PATTERN)
    shard.work(micro_batch_of((), [JobCommand.add(longer)]))
    if rebuilt:
        shard.rebuild()
    results = shard.work(micro_batch_of([Record(0, 10 * number + 10, ("beta", 1, 1))])).results
    rows = [(one.parsed.tuples[0].row["x"], one.parsed.tuples[0].row["y"]) for one in results]
    assert (900, 0) in rows
    assert len(set(rows)) == len(rows)
    assert {y for x, y in rows if x == 3} == set(range(number - len(shard.chunks) + 2, number + 1))
    for later_number in range(number + 2, number + 100):
        shard.work(
            micro_batch_of([Record(1, 10 * later_number, ("alpha", x, later_number)) for x in range(20)])
        )
    assert shard.live[0].number == live_number


def test_a_rebuilt_query_does_not_retract_results_that_ended_before_it() -> None:
    """A late record changes a result that ended before the query was added, so the result is new to it."""
    (rebuilt,) = all_shards(shards_job(Unbounded(), lateness=5), 1)
    (undisturbed,) = all_shards(shards_job(Unbounded(), lateness=5), 1)
    first = [Record(1, 40, ("alpha", 1, 1)), Record(1, 42, ("alpha", 1, 1), delete=True)]
    added = [JobCommand.add(Query("alpha", name="added")), JobCommand.add(Query("pad", name="other"))]
    outputs = []
    for shard in (undisturbed, rebuilt):
        shard.work(micro_batch_of(first))
        shard.work(micro_batch_of([Record(0, 43, ("no", 7, 7))], added))
        if shard is rebuilt:
            shard.rebuild()
        outputs.append(lines(shard.work(micro_batch_of([Record(1, 40, ("alpha late", 1, 2))])).results))
    assert outputs[0] == outputs[1] != []


@pytest.mark.slow
@seeds(4, 20)
def test_a_shard_is_rebuilt_from_a_log_of_many_chunks(seed: int) -> None:
    """Chunks may end within an instant; adjacent chunks are replayed together."""
    rng = random.Random(seed)
    schema, insertions_only = rng.choice((SCHEMA, DIVIDED)), rng.random() < 0.5
    if insertions_only:
        schema = replace(schema, relations=tuple(replace(one, key=()) for one in schema.relations))
    (rebuilt,), (undisturbed,) = (all_shards(shards_job(TimeWindow(40), schema), 1) for _ in range(2))
    for shard in (rebuilt, undisturbed):
        shard.work(micro_batch_of((), [JobCommand.add(Query(one, name=one)) for one in ("alpha", "beta")]))
    records = [one for one in random_records(rng, 400) if not (insertions_only and one.delete)]
    count = 0
    while records:
        number = rng.choice((1, 3, 20))
        chunk, records = records[:number], records[number:]
        if rng.random() < 0.2:
            rebuilt.rebuild()
        actual, expected = (shard.work(micro_batch_of(chunk)) for shard in (rebuilt, undisturbed))
        assert lines(actual.results) == lines(expected.results)
        assert actual.dropped == expected.dropped
        count += len(actual.results)
    assert count > 20


@pytest.mark.check
@some("lateness", [0], [5])
@some("out_of_step", [False, True], [])
@seeds(3, 12)
def test_dead_chunks_are_not_replayed(out_of_step: bool, lateness: int, seed: int) -> None:
    """Unless a deletion may still end one of several equal rows, as in a quarter of the stream."""
    rng = random.Random(seed)
    records = [
        one
        for one in (equal_rows if rng.random() < 0.3 else random_records)(rng, 600)
        if not one.delete or one.time // 100 % 4 == 0
    ]
    if lateness:
        records.sort(key=lambda record: record.time + rng.uniform(0, 9))
    batches = cut(rng, out_of_order(rng, records) if out_of_step else records)
    finals = stream_times(rng, batches, 0 if out_of_step else len(records))
    schema = SCHEMA
    if lateness or out_of_step:  # otherwise, reports of versions within an instant depend on batches
        schema = replace(schema, relations=tuple(replace(one, key=()) for one in schema.relations))
    (rebuilt,), (undisturbed,) = (
        all_shards(shards_job(TimeWindow(12), schema, lateness), 1) for _ in range(2)
    )
    names = ["alpha", "beta"]
    added = list(map(JobCommand.add, (Query(one, name=one) for one in names)))
    count, patterns = 0, False
    for batch, final in zip(batches, finals, strict=True):
        if rng.random() < 0.3:
            rebuilt.rebuild()
        if len(names) < 5 and rng.random() < 0.1:
            new_texts = [one for one in ("no", "pad", "alpha -no", "beta -no", PAIRS) if one not in names]
            text = rng.choice(new_texts)
            names.append(text)
            kind = PATTERN if text == PAIRS else KEYWORDS
            added.append(JobCommand.add(Query(text, kind=kind, name=text)))
        elif len(names) > 2 and rng.random() < 0.3:
            added.append(JobCommand("remove", names.pop()))
        micro_batch = micro_batch_of(batch, added)
        micro_batch = replace(micro_batch, head=replace(micro_batch.head, final=final))
        actual, expected = (each.work(micro_batch) for each in (rebuilt, undisturbed))
        assert lines(actual.results) == lines(expected.results)
        assert actual.dropped == expected.dropped
        assert (actual.position, actual.now, actual.final) == (
            expected.position,
            expected.now,
            expected.final,
        )
        count, added = count + len(actual.results), []
        patterns |= PAIRS in names
    assert count > 20
    assert rebuilt.passed_over > 0 or patterns


def test_a_row_updated_many_times_takes_few_chunks() -> None:
    shard = all_shards(shards_job(Unbounded()), 1)[0]
    for time in range(1_000):
        shard.work(micro_batch_of([Record(1, time, ("alpha", 1, time))]))
    assert len(shard.chunks) < 2 * FEW_BYTES / CHUNK_BYTES
    shard.rebuild()
    answer = shard.work(
        micro_batch_of([Record(1, 2_000, ("beta", 1, 1))], [JobCommand.add(Query("alpha", name="a"))])
    )
    assert [(one.op, one.parsed.tuples[0].row["y"]) for one in answer.results] == [("+", 999), ("-", 999)]


def test_a_window_of_tuples_is_not_divided_by_key() -> None:
    job = shards_job(CountWindow(9), DIVIDED)
    queries = list(job.named().values())
    assert LayoutRequest(3).layout(queries, job.stream, job.plan_window).spread is Partitioning.ROOTS
    with pytest.raises(UsageError, match="the window counts all tuples"):
        LayoutRequest(3, Partitioning.KEYS).layout(queries, job.stream, job.plan_window)


def test_a_fitting_layout_is_kept_and_fully_described() -> None:
    job = shards_job(TimeWindow(9), DIVIDED)
    queries, stream, window = list(job.named().values()), job.stream, job.plan_window
    first = LayoutRequest(3).layout(queries, stream, window)
    keys = plan_keys(queries, stream, window)
    assert first == Layout(Partitioning.KEYS, keys_for(3), keys if not isinstance(keys, str) else None)
    assert LayoutRequest().layout(queries, stream, window, first, 7) is first
    pattern = job.with_defaults("p", Query(PAIRS, kind=PATTERN))
    second = LayoutRequest().layout([*queries, pattern], stream, window, first, 7)
    assert (second.spread, second.generation, second.before) == (Partitioning.ROOTS, 1, 7)
    assert second.previous == first
    # A layout that never ran has the state of the previous one.
    third = LayoutRequest(2).layout(queries, stream, window, second, 7)
    assert (third.generation, third.previous) == (2, first)
    fourth = LayoutRequest(4).layout(queries, stream, window, third, 8)
    assert fourth.previous == replace(third, previous=None)
    for layout in (first, second, third, fourth):
        assert convert(orjson.loads(orjson.dumps(to_builtins(layout))), Layout) == layout


def test_divided_parts_of_a_chunk_merge_into_the_chunk() -> None:
    records = RecordBatch.of(random_records(random.Random(1), 50))
    job = shards_job(TimeWindow(9), DIVIDED)
    single_layout = Layout(Partitioning.ROOTS, (0,))
    layout = LayoutRequest(3).layout(list(job.named().values()), job.stream, job.plan_window)
    chunk = Chunk(7, 100, 5, 9, 150)
    parts = list(divide_chunk(chunk, [(chunk, pack(records))], single_layout, layout, 0))
    assert {name for _, _, name, _, _ in parts} == {"7"}
    (merged,) = divide_chunk(chunk, [(chunk, body) for *_, body in parts], layout, single_layout, 0)
    assert list(unpack(merged[-1]).records()) == list(records.records())


@pytest.mark.parametrize("live", [False, True])
@pytest.mark.parametrize("keys", [None, KeyPartitioning(((0,), (0,)))])
def test_begins_of_results_do_not_multiply_with_moves(keys: KeyPartitioning | None, live: bool) -> None:
    layout = Layout(Partitioning.ROOTS if keys is None else Partitioning.KEYS, (0, 1, 11), keys)
    begins = {"q": [["q", "a", 3.0, 1.0, None, None], ["q", "a", 4.0, 1.0, None, None]]}
    chunk = Chunk(7, 100, 5, 9, 150, begins=begins, live=live)
    mark = orjson.dumps(asdict(ShardProgress(position=150)))
    marks: list[Blob] = [(group, "mark", "", b"", mark) for group in layout.groups]
    for _ in range(3):
        _, chunks = plan_move(marks, [(group, chunk) for group in layout.groups], layout, layout)
        (chunk,) = chunks.values()
    assert chunk.begins == begins


def test_queue_heads_of_shards_are_merged_to_the_latest() -> None:
    """After a move, every shard has all queue heads, but only one shard advances each queue."""
    earlier_heads = fronts_to_bytes(
        [Front(1, (1, "lamp"), 500, 1, 1000), Front(1, (2, "lamp"), 100, 0, 1000)]
    )
    later_heads = fronts_to_bytes([Front(1, (1, "lamp"), 1000, 0, 1500)])
    other_heads = fronts_to_bytes([Front(1, (3, "lamp"), 400, 0, 1000)])
    assert sorted(fronts_of(merged_fronts([later_heads, earlier_heads, other_heads]))) == [
        Front(1, (1, "lamp"), 1000, 0, 1500),
        Front(1, (2, "lamp"), 100, 0, 1000),
        Front(1, (3, "lamp"), 400, 0, 1000),
    ]
