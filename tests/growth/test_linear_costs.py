"""Every cost that grows with its input is linear in it; each line of the table is one dimension.

A dimension prepares input of a given size, which is not counted, and returns the work to count.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from io import StringIO
from itertools import chain
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final
from unittest.mock import patch

import orjson
import pytest

import skws
from skws.data.batch import BATCH, Record, RecordBatch, align_to_timestamps, regroup
from skws.explain.explanation import explain
from skws.formats.tabular import column_names
from skws.jobs import local
from skws.jobs.control import RunControl
from skws.jobs.intake import BatchSizer
from skws.jobs.local import LocalWatch
from skws.jobs.log import Log
from skws.jobs.standing_queries import StandingQueries
from skws.keywords.parse import parse_query
from skws.keywords.plan import Plan, network_counts
from skws.queries.kinds import plan_of, plans_over
from skws.queries.partitioning.parts import key_partitioning
from skws.queries.session import Session
from skws.queries.windowed.window_plan import WindowPlan
from skws.sources.growing_files import FilesFeed
from skws.sources.kafka.topic_reader import final_rows
from skws.sources.replays import ReplaySource
from skws.spec.enums import EvaluatorName
from skws.spec.job import Job
from skws.spec.query_spec import HALF_LIFE, PATTERN, TOP, WINDOW, Query, RankingChoice, Stream, TopChoice
from skws_bounds.query_run import UnionRun
from skws_bounds.sql_reader import parse_sql
from skws_mesh.candidate_networks import _connectors
from skws_schema.graph import edges, edges_from
from skws_schema.infer.column_profile import profile
from skws_schema.infer.joins_by_values import find_possible
from skws_schema.infer.keys import SampledTable, find_key, find_references
from skws_schema.model import Schema
from skws_schema.yaml.document import to_yaml
from skws_schema.yaml.load import parse_schema
from skws_windows.guards.alphabet import StreamRecord
from skws_windows.window import MICROSECOND, Unbounded, parse_window
from tests.clocks import HandClock
from tests.growth.measurements import Cost, Work, cost, faster_than_linear
from tests.growth.streams import FEVER, MINUTE, PAIR, WARD
from tests.strategies import combinations, some

CHAIN: Final = parse_schema("""\
window: 10 hours
relations:
  a: {attributes: {t: text, k: integer}, search: [t]}
  b: {attributes: {t: text, k: integer, m: integer}, search: [t]}
  c: {attributes: {t: text, m: integer}, search: [t]}
joins: [a.k = b.k, b.m = c.m]
""")
KEYED: Final = parse_schema("""\
window: none
relations: {a: {attributes: {t: text, k: integer}, key: [k]}}
""")
REFERENCES: Final = parse_schema("""\
window: none
relations:
  a: {attributes: {t: text, k: integer}, key: [k]}
  b: {attributes: {t: text, k: integer, a: integer}, key: [k]}
joins: [b.a = a.k]
""")
FEW: Final = 20
"""The number of join values, and of words."""


def rows(n: int) -> RecordBatch:
    """Rows of a chain of relations with few join values, so that each has many neighbours."""
    texts_and_keys = [(f"w{i % FEW}", i % FEW) for i in range(n)]
    values = [((t, k), (t, k, k), (t, k))[i % 3] for i, (t, k) in enumerate(texts_and_keys)]
    return RecordBatch.of([Record(i % 3, i * 1000, row) for i, row in enumerate(values)])


def session(n: int) -> Session:
    """A session with n rows, and a query without results."""
    live = Session(Stream(CHAIN, parse_window("10 hours"), finite=False, max_size=4))
    live.add(Query("none w1").named("first", 4))
    live.take(rows(n))
    return live


def truncations(n: int, lateness: int = 0) -> Work:
    """Repeated truncations; the first one deletes all rows."""
    live = Session(Stream(CHAIN, parse_window("none"), lateness=lateness, max_size=4))
    live.add(Query("none w1").named("first", 4))
    live.take(rows(100))
    batches = [RecordBatch.of([Record.truncation(0, 1_000_000 + i)]) for i in range(n)]
    return lambda: [live.take(batch) for batch in batches]


def truncations_of_late_rows(n: int) -> Work:
    return truncations(n, lateness=5)


def searches(n: int) -> list[Query]:
    """Searches without results."""
    return [Query(f"none{i} w{i % FEW}").named(f"query {i}", 4) for i in range(n)]


def adding_a_search_to_rows(n: int) -> Work:
    live = session(n)
    return lambda: live.add_all(plans_over(searches(2), live.stream))


def adding_searches(n: int) -> Work:
    live = session(300)
    return lambda: live.add_all(plans_over(searches(n), live.stream))


def removing_searches(n: int) -> Work:
    live = session(60)
    live.add_all(plans_over(searches(n), live.stream))

    def work() -> None:
        for query in searches(n):
            live.remove(query.name)

    return work


def removing_searches_that_exclude(n: int) -> Work:
    live = Session(Stream(CHAIN, parse_window("10 hours"), evaluator=EvaluatorName.DELTA))
    queries = [Query(f"w{i} -none{i}").named(f"query {i}", 4) for i in range(n)]
    live.add_all(plans_over(queries, live.stream))

    def work() -> None:
        for query in queries:
            live.remove(query.name)

    return work


def removing_patterns(n: int) -> Work:
    live = Session(Stream(CHAIN, parse_window("10 hours"), finite=False))
    texts = [f"a x ; b y where x.k = y.k within {number} s" for number in range(1, n + 1)]
    patterns = [Query(text, kind=PATTERN).named(text, 2) for text in texts]
    live.add_all(plans_over(patterns, live.stream))

    def work() -> None:
        for pattern in patterns:
            live.remove(pattern.name)

    return work


def pair(window: str, query: Query, before: list[Record]) -> Session:
    """Two relations, one with a key, with some records."""
    live = Session(Stream(PAIR, parse_window(window), finite=False))
    live.add(query.named("query", 3))
    live.take(RecordBatch.of(before))
    return live


LEAKS: Final = Query("ada leaks")
KEY: Final = [Record(1, 0, ("leaks", 1))]
"""The join partner of the rows with key 1."""


def micro_batches(live: Session, records: list[Record], *, with_results: bool = True) -> Work:
    """Micro-batches as in a job; a dimension with results must have some, so that their cost is measured."""
    batches = [RecordBatch.of(records[start : start + FEW]) for start in range(0, len(records), FEW)]

    def work() -> None:
        count = 0
        for batch in batches:
            count += len(live.take(batch))
            live.begins()
        assert (count > 0) is with_results

    return work


def updates_of_one_key(n: int) -> Work:
    return micro_batches(pair("none", LEAKS, KEY), [Record(0, i, (f"ada w{i}", 1)) for i in range(n)])


def updates_of_one_key_beside_others(n: int) -> Work:
    other_rows = [Record(0, 0, (f"ada w{i}", FEW + i)) for i in range(40 * n)]
    return micro_batches(
        pair("none", LEAKS, KEY + other_rows), [Record(0, i, (f"ada w{i}", 1)) for i in range(n)]
    )


def updates_of_one_key_in_an_instant(n: int) -> Work:
    return micro_batches(pair("10 hours", LEAKS, KEY), [Record(0, 1, (f"ada w{i}", 1)) for i in range(n)])


def updates_of_many_keys(n: int) -> Work:
    rows = [Record(relation, 0, ("ada leaks", i)) for i in range(n) for relation in (0, 1)]
    return micro_batches(pair("none", LEAKS, rows), [Record(0, i, (f"ada w{i}", i)) for i in range(n)])


def deletions_of_equal_rows(n: int, window: str = "none") -> Work:
    rows = [Record(0, 0, ("ada", 1)), *(Record(1, i, ("leaks", 1)) for i in range(n))]
    return micro_batches(pair(window, LEAKS, rows), [Record(1, n + i, ("leaks", 1), True) for i in range(n)])


def deletions_of_equal_rows_in_a_window(n: int) -> Work:
    return deletions_of_equal_rows(n, "10 hours")


def keyed_rows_inserted_and_deleted(n: int, window: str = "10 hours") -> Work:
    records = [Record(0, 2 * i + delete, ("ada", i), bool(delete)) for i in range(n) for delete in (0, 1)]
    return micro_batches(pair(window, LEAKS, KEY), records)


def keyed_rows_inserted_and_deleted_in_a_count_window(n: int) -> Work:
    return keyed_rows_inserted_and_deleted(n, "100000 tuples")


def results_inserted_and_retracted(n: int) -> Work:
    records = [Record(0, 2 * i + delete, ("ada", 1), bool(delete)) for i in range(n) for delete in (0, 1)]
    return micro_batches(pair("10 hours", LEAKS, KEY), records)


def truncation_of_many_rows(n: int) -> Work:
    rows = [Record(0, 0, ("ada", 1)), *(Record(1, i, ("leaks", 1)) for i in range(n))]
    return micro_batches(pair("none", LEAKS, rows), [Record.truncation(1, n)])


def late_records(n: int) -> Work:
    live = Session(Stream(PAIR, parse_window("1 hour"), lateness=100, finite=False))
    live.add(LEAKS.named("query", 3))
    return micro_batches(
        live, [Record(i % 2, 10 * i - i % 7 * 10, (("ada", "leaks")[i % 2], i // 2)) for i in range(n)]
    )


def best_of_many(n: int) -> Work:
    """Each result is the best so far, since it is the latest."""
    best = Query.of_keywords("ada leaks", RankingChoice(half_life=MINUTE), TopChoice(3))
    minutes = [Record(1, i * MINUTE, ("leaks", 1)) for i in range(n)]
    return micro_batches(pair("10 hours", best, [Record(0, 0, ("ada", 1))]), minutes)


def deletions_of_the_best(n: int) -> Work:
    best = Query.of_keywords("ada leaks", RankingChoice(), TopChoice(3))
    rows = [Record(relation, i, ("ada leaks", i)) for i in range(n) for relation in (0, 1)]
    return micro_batches(
        pair("none", best, rows), [Record(0, n, ("ada leaks", i), True) for i in reversed(range(n))]
    )


def patterns(n: int) -> Work:
    pattern = Query.of_pattern("a x ; b y where x.k = y.k within 1 hour")
    records = [Record(i % 2, i, ("ada", i // 2)) for i in range(n)]
    return micro_batches(pair("none", pattern, []), records)


def updates_under_a_pattern(n: int) -> Work:
    pattern = Query.of_pattern("a x ; b y where x.k = y.k within 1 hour")
    records = [Record(0, i, ("ada", 1)) for i in range(n)]
    return micro_batches(pair("none", pattern, []), records, with_results=False)


def temperatures(n: int) -> list[tuple[int, int]]:
    """Four per person, which open and close a window."""
    return [(i // 4, (37, 39, 40, 37)[i % 4]) for i in range(4 * n)]


def windows_of_keys(n: int) -> Work:
    processor = WindowPlan.of_text(WARD, FEVER.text).processor()
    records = [StreamRecord(0, time, row) for time, row in enumerate(temperatures(n))]
    return lambda: [list(processor.process(records[start : start + FEW])) for start in range(0, 4 * n, FEW)]


def windows_of_a_key(n: int) -> Work:
    processor = WindowPlan.of_text(WARD, FEVER.text).processor()
    records = [StreamRecord(0, time, (1, temp)) for time, (_, temp) in enumerate(temperatures(n))]
    return lambda: [list(processor.process(records[start : start + FEW])) for start in range(0, 4 * n, FEW)]


def searches_over_windows_of_keys(n: int) -> Work:
    live = Session(Stream(WARD, parse_window("1 hour"), finite=False))
    live.add(Query("hopper").over(FEVER, allowed=False).named("query", 3))
    visits = [Record(1, 4 * p + 2, (p, "dr hopper")) for p in range(n)]
    records = [Record(0, time, row) for time, row in enumerate(temperatures(n))]
    return micro_batches(live, sorted([*visits, *records], key=lambda record: record.time))


def learning_words(n: int) -> Work:
    live = Session(Stream(CHAIN, parse_window("10 hours"), finite=False))
    live.take(RecordBatch.of([Record(0, i, (f"word{i}", i)) for i in range(n)]))

    def work() -> None:
        while live.prepare_searches(FEW):
            pass

    return work


def small_batches(n: int) -> Work:
    batches = [RecordBatch.of([Record(0, i, ("word", i))]) for i in range(n)]
    return lambda: (list(regroup(batches, BATCH)), list(align_to_timestamps(batches)))


def batches_of_one_instant(n: int) -> Work:
    batches = [RecordBatch.of([Record(0, 0, ("word", i))] * 10_000) for i in range(n)]
    return lambda: list(align_to_timestamps(batches))


def completions(n: int) -> Work:
    live = Session(Stream(CHAIN, parse_window("10 hours"), finite=False))
    live.take(RecordBatch.of([Record(0, i, (f"word{i}", i)) for i in range(n)]))
    while live.prepare_searches(n):
        pass
    return lambda: live.completions("wor", 10)


def searches_of_live_rows(n: int) -> Work:
    rows = [Record(relation, i, ("ada leaks", i)) for i in range(n) for relation in (0, 1)]
    live = pair("none", LEAKS, rows)
    while live.prepare_searches(n):
        pass
    best = Query.of_keywords("ada leaks", RankingChoice()).named("search", 3)
    return lambda: live.search(plan_of(best, live.stream), 10)


def searches_of_one_text(n: int) -> Work:
    live = pair("none", LEAKS, KEY)
    queries = [LEAKS.named(f"query {i}", 3) for i in range(n)]

    def work() -> None:
        live.add_all(plans_over(queries, live.stream))
        live.take(RecordBatch.of([Record(0, 1, ("ada", 1))]))
        for query in queries:
            live.remove(query.name)

    return work


def patterns_added_and_removed(n: int) -> Work:
    live = pair("none", LEAKS, [])
    pattern_queries = [
        Query.of_pattern(f"a x ; b y where x.k = {i} within 1 hour").named(f"pattern {i}", 3)
        for i in range(n)
    ]

    def work() -> None:
        live.add_all(plans_over(pattern_queries, live.stream))
        for query in pattern_queries:
            live.remove(query.name)

    return work


def tuples_before_the_end_of_a_stream(n: int) -> Work:
    """Each joins one of the other stream, and only one."""
    schema = parse_schema("relations: {a: {attributes: {k: integer}}, b: {attributes: {k: integer}}}")
    union = parse_sql("SELECT a.k FROM a, b WHERE a.k = b.k AND a.time < '2030-01-01'", schema)
    run = UnionRun(union, schema, {})
    return lambda: [run.step(time, {"a": [(time,)], "b": [(time,)]}) for time in range(1, n)]


def schema_of_relations(n: int, joins: list[tuple[int, int]]) -> Schema:
    """Relations r0, r1, ..., some of which are joined."""
    lines = [f"  r{i}: {{attributes: {{k: integer, t: text}}, search: [t]}}" for i in range(n)]
    joined = ", ".join(f"r{i}.k = r{j}.k" for i, j in joins)
    return parse_schema("\n".join(["window: 1 hour", "relations:", *lines, f"joins: [{joined}]"]))


def frames_of_relations(n: int) -> Work:
    schema = schema_of_relations(n, [(i, i + 1) for i in range(n - 1)])
    live = skws.Session(schema)
    live.add("byron leaks")
    frames: dict[str, Any] = {f"r{i}": [{"k": i, "t": "ada", "time": 1}] for i in range(n)}
    return lambda: live.process(frames)


def joins_of_a_schema(n: int) -> Work:
    """Each relation joins three others; caches per schema are cleared."""
    schema = schema_of_relations(n, [(i, j) for i in range(n) for j in (i + 1, i + 2, i + 3) if j < n])
    edges(schema)
    return lambda: (edges_from.__wrapped__(schema), _connectors.__wrapped__(schema))


def division_of_a_chain(n: int) -> Work:
    schema = schema_of_relations(n, [(i, i + 1) for i in range(n - 1)])
    edges_from(schema)
    return lambda: key_partitioning(schema, 5)


def star(n: int) -> Schema:
    """Relations that all join the first one."""
    return schema_of_relations(n + 1, [(0, i) for i in range(1, n + 1)])


def counting_networks_of_a_star(n: int) -> Work:
    schema = star(n)
    plan = Plan(schema, parse_query("ada leaks", schema), Unbounded(), 5)
    return lambda: network_counts(plan)


def rows_of_a_star(n: int) -> Work:
    """Parses the schema and processes one row of each relation."""
    text = to_yaml(star(n))

    def work() -> None:
        live = Session(Stream(parse_schema(text), parse_window("1 hour"), finite=False))
        live.add(Query("byron leaks").named("query", 3))
        live.take(RecordBatch.of([Record(i, i, (i, "byron")) for i in range(n)]))

    return work


def explanations(n: int) -> Work:
    schema = star(4)
    parsed = [parse_query(f"ada{i} leaks", schema) for i in range(n)]
    return lambda: [explain(Plan(schema, query, Unbounded(), 3)) for query in parsed]


def columns_of_a_table(n: int) -> Work:
    """A schema inferred from a wide table with mostly unique columns."""
    values = [[f"v{i * k}" if i % 3 else i * k for k in range(1, FEW)] for i in range(n)]
    columns = {f"col{i}": profile(f"col{i}", column) for i, column in enumerate(values)}
    wide, other = (
        SampledTable("wide", columns),
        SampledTable("other", {"id": profile("id", list(range(FEW)))}),
    )

    def work() -> None:
        joins = find_references([wide, other])
        find_possible([wide, other], joins)
        find_key(wide, [wide, other], {})

    return work


def equal_names_of_columns(n: int) -> Work:
    return lambda: column_names(["x"] * n)


def equal_rows_of_a_topic(n: int) -> Work:
    records = [Record(0, 0, ("ada", None))] * n
    return lambda: list(final_rows(records, KEYED))


def bad_rows_of_a_growing_file(n: int) -> Work:
    """Bad rows at the end of a long file, whose lines are counted from its start."""

    def work() -> None:
        with TemporaryDirectory() as folder:
            path = Path(folder) / "a.csv"
            path.write_text("t,k,time\n" + f"{'ada ' * 15_000},1,1\n" * n)
            feed = FilesFeed(path, KEYED)
            end = feed.poll(feed.start(), 100 * n).end
            with path.open("a") as file:
                file.write("ada,x,1\n" * n)
            assert len(feed.poll(end, 100 * n).read.bad) == n

    return work


def bad_records_of_a_replay(n: int) -> Work:
    """Small polls of a replay whose records are all bad."""

    def work() -> None:
        with TemporaryDirectory() as folder:
            path = Path(folder) / "a.jsonl"
            path.write_text('{"relation": "none", "time": 1, "row": {}}\n' * n)
            feed = ReplaySource(path).open(KEYED)
            batch = feed.poll(feed.start(), 1)
            while not batch.ended:
                batch = feed.poll(batch.end, 1)

    return work


def starts_of_a_job(n: int) -> Work:
    """Restarts from one checkpoint, whose journal does not grow by a file per start."""

    def work() -> None:
        with TemporaryDirectory() as folder:
            path = Path(folder) / "in.jsonl"
            path.write_bytes(orjson.dumps({"relation": "a", "time": 1, "row": {"t": "ada", "k": 1}}))
            job = Job({"leaks": "byron leaks"}, KEYED, str(path), checkpoint=Path(folder) / "kept")
            for _ in range(n):
                watch = LocalWatch(job, [], Log(stream=StringIO()))
                watch.open()
                watch.step()
                watch.close()
            assert len(list((Path(folder) / "kept" / "journal").iterdir())) == 1

    return work


def queries_of_a_restart(n: int) -> Work:
    """The commands that turn the queries of an earlier run into those of a restart."""
    standing = StandingQueries(Job({}, KEYED, ""))
    queries = {f"leaks {number}": Query("leaks", name=f"leaks {number}") for number in range(n)}
    return lambda: standing.changes_to(queries, list(queries))


def live_rows_in_a_log(n: int) -> Work:
    """Live rows with distinct keys, in a job that regularly checks which part of the log is needed."""
    lines = [{"relation": "a", "time": i, "row": {"t": "ada", "k": i}} for i in range(n)]

    def work() -> None:
        with TemporaryDirectory() as folder, few_in_a_log():
            path = Path(folder) / "in.jsonl"
            path.write_bytes(b"".join(orjson.dumps(line) + b"\n" for line in lines))
            job = Job(
                {"leaks": "byron leaks"},
                KEYED,
                str(path),
                checkpoint=Path(folder) / "kept",
            )
            clock = HandClock()
            watch = LocalWatch(job, [], Log(stream=StringIO()), control=RunControl(job, clock))
            watch.open()
            while watch.metrics().tuples < n:
                watch.step()
                clock.sleep(MICROSECOND)  # a commit per step, however fast the machine
            watch.close()

    return work


@contextmanager
def few_in_a_log() -> Iterator[None]:
    """Micro-batches of a few records, and a log that is checked after as many."""
    small_batches = partial(BatchSizer, FEW, FEW)
    with patch.object(local, "FEW_RECORDS", FEW), patch.object(local, "BatchSizer", small_batches):
        yield


DIMENSIONS: Final[tuple[tuple[Callable[[int], Work], int], ...]] = (
    (adding_a_search_to_rows, 500),
    (adding_searches, 5),
    (removing_searches, 5),
    (removing_searches_that_exclude, 40),
    (removing_patterns, 20),
    (searches_of_one_text, 5),
    (patterns_added_and_removed, 5),
    (updates_of_one_key, 20),
    (updates_of_one_key_beside_others, 20),
    (updates_of_one_key_in_an_instant, 40),
    (updates_of_many_keys, 40),
    (deletions_of_equal_rows, 20),
    (deletions_of_equal_rows_in_a_window, 20),
    (keyed_rows_inserted_and_deleted, 40),
    (keyed_rows_inserted_and_deleted_in_a_count_window, 40),
    (results_inserted_and_retracted, 40),
    (truncation_of_many_rows, 40),
    (truncations, 10),
    (truncations_of_late_rows, 10),
    (late_records, 40),
    (tuples_before_the_end_of_a_stream, 20),
    (best_of_many, 20),
    (deletions_of_the_best, 20),
    (patterns, 40),
    (updates_under_a_pattern, 40),
    (windows_of_keys, 20),
    (windows_of_a_key, 20),
    (searches_over_windows_of_keys, 10),
    (learning_words, 50),
    (small_batches, 200),
    (batches_of_one_instant, 10),
    (completions, 50),
    (searches_of_live_rows, 20),
    (frames_of_relations, 10),
    (joins_of_a_schema, 20),
    (division_of_a_chain, 20),
    (rows_of_a_star, 5),
    (counting_networks_of_a_star, 5),
    (explanations, 3),
    (live_rows_in_a_log, 100),
    (starts_of_a_job, 2),
    (queries_of_a_restart, 500),
    (columns_of_a_table, 20),
    (equal_names_of_columns, 50),
    (equal_rows_of_a_topic, 200),
    (bad_rows_of_a_growing_file, 30),
    (bad_records_of_a_replay, 600),
)


@pytest.mark.slow
@pytest.mark.parametrize(("prepared", "n"), DIMENSIONS, ids=lambda each: getattr(each, "__name__", None))
def test_a_cost_is_linear_in_its_dimension(prepared: Callable[[int], Work], n: int) -> None:
    assert not faster_than_linear(prepared, n)


@pytest.mark.slow
@combinations(
    "query, evaluator, relation",
    [
        Query("ada leaks", name="found"),
        Query("ada none", name="nothing"),
        Query("ada -leaks", name="excluding"),
        Query("ada leaks", name="scored", options={HALF_LIFE: "1 hour"}),
        Query("ada leaks", name="best", kind=TOP, options={"size": "2"}),
    ],
    [EvaluatorName.MESH, EvaluatorName.DELTA],
    [0, 1],
)
def test_the_cost_of_an_update_does_not_depend_on_matching_rows(
    query: Query, evaluator: EvaluatorName, relation: int
) -> None:
    def update_cost(n: int) -> Cost:
        session = Session(Stream(REFERENCES, Unbounded(), evaluator=evaluator))
        session.add(query.named("asked", 3))
        rows = [(Record(0, 0, ("ada", k)), Record(1, 0, (("leaks", "x")[k % 2], k, k))) for k in range(n)]
        session.take(RecordBatch.of([*chain.from_iterable(rows)]))
        updates = (
            RecordBatch.of([Record(relation, time, (f"ada leaks {time}", time, time)[: 2 + relation])])
            for time in range(1, 9)
        )
        for _ in range(7):  # the first ones allocate space and indexes
            session.take(next(updates))
        last_update = next(updates)
        return cost(lambda: session.take(last_update))

    small, large = update_cost(2_000), update_cost(8_000)
    assert large.steps < 1.2 * small.steps
    assert large.allocated < 1.2 * small.allocated


@pytest.mark.check
def test_the_cost_of_polling_an_idle_folder_does_not_depend_on_its_files(tmp_path: Path) -> None:
    """Measured a minute after the files have grown."""

    def poll_steps(n: int) -> int:
        folder = tmp_path / str(n)
        folder.mkdir()
        for i in range(n):
            line = orjson.dumps({"relation": "b", "time": i, "row": {"t": "ada", "k": i}})
            (folder / f"{i}.jsonl").write_bytes(line + b"\n")
        clock = HandClock()
        feed = FilesFeed(folder, PAIR, clock)
        position = feed.start()
        while len((batch := feed.poll(position, n)).read):
            position = batch.end

        def polls() -> None:
            for _ in range(12):
                clock.sleep(100_000)
                feed.poll(position, n)

        clock.sleep(MINUTE)
        polls()
        return cost(polls).steps

    assert poll_steps(600) < 1.2 * poll_steps(200)


@pytest.mark.slow
def test_quadratic_growth_is_detected() -> None:
    """In executed lines, and in the bytes of a single line."""

    def many_lines(n: int) -> Work:
        return lambda: [sorted_keys(schema_of_relations(2, [(0, 1)])) for _ in range(n * n)]

    def much_in_a_line(n: int) -> Work:
        return lambda: [bytes(1000 * n) for _ in range(n)] and sorted_keys(schema_of_relations(2, [(0, 1)]))

    assert "steps" in faster_than_linear(many_lines, 4)
    assert "allocated" in faster_than_linear(much_in_a_line, 20)


def sorted_keys(schema: Schema) -> list[str]:
    return sorted(schema.index)


_SHORTER: Final = Query("a x ; a y where x.k = y.k within 90 milliseconds", kind=PATTERN)
_BEST: Final = Query.of_keywords("byron leaks", RankingChoice(), TopChoice(3))
_BEST_OF_A_WINDOW: Final = replace(_BEST, options={**_BEST.options, WINDOW: "90 milliseconds"})


@pytest.mark.check
@some(
    "queries",
    [{}, {"lately": _BEST_OF_A_WINDOW}, {"shorter": _SHORTER, "best": _BEST}],
    [{"shorter": _SHORTER}, {"best": _BEST}],
    ids="+".join,
)
def test_a_log_is_bounded_by_live_rows_and_query_windows(tmp_path: Path, queries: dict[str, Query]) -> None:
    """Updates of a few rows without a window, with queries that have windows; restarted twice."""
    source = tmp_path / "in.jsonl"
    source.touch()
    all_queries = {"leaks": Query("byron leaks"), **queries}
    job = Job(all_queries, KEYED, str(source), checkpoint=tmp_path / "kept")
    sizes = []
    with few_in_a_log():
        for first in (0, 40):
            clock = HandClock()
            watch = LocalWatch(job, [], Log(stream=StringIO()), control=RunControl(job, clock))
            watch.open()
            for second in range(first, first + 40):
                rows = [{"t": f"byron leaks {second}", "k": k} for k in range(FEW)]
                lines = [orjson.dumps({"relation": "a", "time": second / 100, "row": row}) for row in rows]
                with source.open("ab") as file:
                    file.write(b"\n".join([*lines, b""]))
                watch.step()
                clock.sleep(MICROSECOND)
                sizes.append(watch.metrics().log_bytes)
            watch.close()
    assert max(sizes[30:]) < 1.5 * max(sizes[:30])
