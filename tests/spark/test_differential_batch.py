"""A Spark job over replay files has the results of an in-process search, in the same order."""

from __future__ import annotations

from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from skws.formats import BadRecordLog, Replay
from skws.formats.jsonl_order import timed_blocks
from skws.queries.kinds import moment
from skws.queries.partitioning.slices import SMALL
from skws.replay_search import Search
from skws.results.result import Result
from skws.spark.replay import replay_run
from skws.spark.sliced_search import RangesRun, reading_blocks
from skws.spec.enums import EngineName, OnError
from skws.spec.job import Job
from skws.spec.query_spec import Query, RankingChoice, TopChoice
from skws_schema.errors import BadRecordsError
from skws_schema.model import Schema
from skws_windows.window import CountWindow, ExpressionWindow, TimeWindow, Unbounded, Window
from tests.formats.replays import write_replay
from tests.queries.random_streams import DIVIDED, STREAMS, TABLES, random_stream, without_dequeues
from tests.strategies import combinations, some
from tests.waiting import until

pytestmark = pytest.mark.spark

KEYWORDS = Query("alpha beta -no", 4)
PATTERN = Query.of_pattern("plain a ; keyed b where a.x = b.y")
RANKED = Query.of_keywords("alpha beta", RankingChoice(explain=True))
BEST = Query.of_keywords("alpha beta", RankingChoice(), TopChoice(3))


def compare(
    spark: SparkSession,
    path: Path,
    schema: Schema,
    query: Query,
    least_records: int = 20,
    least_results: int = 11,
    **options: Any,
) -> int:
    """Compare ``least_results`` or more on Spark with those in process; returns the number of slices."""
    search = Search(Job.search(query, schema, path, engine=EngineName.LOCAL, **options))
    expected = list(search.results())
    replay = Replay.open(path, schema, split_bytes=4_000)
    with replay_run(spark, search.query, search.job.stream, replay, least_records) as run:
        assert [one.parsed for one in run.results(BadRecordLog())] == expected
        assert run.counts == search.counts
        assert len(expected) >= least_results
        if query.kind == PATTERN.kind:
            assert sum(run.counted(BadRecordLog())) == len(expected)
    return len(run.slicing.slices)


@some(
    "window, count, cut",
    [(TimeWindow(12), 400, True), (Unbounded(), 400, False)],
    [(CountWindow(9), 400, True), (TimeWindow(60), 800, True), (CountWindow(40), 800, True)],
)
@some("query", [KEYWORDS], [PATTERN], ids=["keywords", "pattern"])
def test_spark_and_process_have_equal_results(
    spark: SparkSession, tmp_path: Path, query: Query, window: Window, count: int, cut: bool
) -> None:
    """With ties, NULLs, keys that are replaced and deleted, and a table."""
    stream = without_dequeues(TABLES, random_stream(TABLES, 4, count, 7, 0.01))
    path = write_replay(tmp_path / "r.jsonl", TABLES, stream)
    assert (compare(spark, path, TABLES, query, window=window) > 1) == cut


@pytest.mark.check
def test_deletions_of_rows_without_a_key_are_searched_in_one_piece(
    spark: SparkSession, tmp_path: Path
) -> None:
    path = write_replay(tmp_path / "r.jsonl", STREAMS, random_stream(STREAMS, 3, 400, 7))
    assert compare(spark, path, STREAMS, KEYWORDS, window=TimeWindow(12)) == 1


@pytest.mark.slow
@some("window", [Unbounded()], [TimeWindow(500)], ids=["endless", "long"])
def test_a_stream_that_time_cannot_split_is_split_by_key(
    spark: SparkSession, tmp_path: Path, window: Window
) -> None:
    """With replaced rows, and equal rows of which the oldest is deleted; each part has the table."""
    stream = random_stream(DIVIDED, 6, 900, 25, 0.003)
    search = Search(
        Job.search(
            KEYWORDS,
            DIVIDED,
            write_replay(tmp_path / "r.jsonl", DIVIDED, stream),
            engine=EngineName.LOCAL,
            window=window,
        )
    )
    expected = list(search.results())
    replay = Replay.open(tmp_path / "r.jsonl", DIVIDED, split_bytes=4_000)
    with replay_run(spark, search.query, search.job.stream, replay, 20) as run:
        results = [one.parsed for one in run.results(BadRecordLog())]
        assert len(run.slicing.slices) > 1
        assert run.slicing.keys is not None
        assert run.counts == search.counts
    assert sorted(results, key=moment) == results
    assert sorted(map(str, results)) == sorted(map(str, expected))
    assert sum(len(result.tuples) > 2 for result in results) > 50
    assert sum(result.start is None for result in results) > 5


@pytest.mark.slow
def test_fuzzy_terms_wildcards_and_conditions(spark: SparkSession, tmp_path: Path) -> None:
    path = write_replay(
        tmp_path / "r.jsonl", TABLES, without_dequeues(TABLES, random_stream(TABLES, 5, 600, 5))
    )
    query = Query("alhpa~ (b*ta OR !plain.x=1) keyed.y!=2 fixed.x<4 -n?e -link.x=0", 4)
    assert compare(spark, path, TABLES, query, window=TimeWindow(25)) > 1


@pytest.mark.check
def test_keywords_in_order(spark: SparkSession, tmp_path: Path) -> None:
    path = write_replay(
        tmp_path / "r.jsonl", STREAMS, without_dequeues(STREAMS, random_stream(STREAMS, 5, 400, 5))
    )
    assert compare(spark, path, STREAMS, Query("beta ; alpha", 4), window=TimeWindow(25)) > 1


@pytest.mark.parametrize("known_count", [0, 2])
def test_a_replay_in_order_is_read_by_the_searching_tasks(
    spark: SparkSession, tmp_path: Path, known_count: int
) -> None:
    stream = [record for record in random_stream(STREAMS, 6, 900, 5) if not record.delete]
    path = write_replay(tmp_path / "r.jsonl", STREAMS, sorted(stream, key=lambda record: record.time))
    lines = path.read_bytes().splitlines(keepends=True)
    for position in (0, 300, 301, 700):
        lines.insert(position, b"{nonsense\n")
    path.write_bytes(b"".join(lines))
    job = Job.search(
        KEYWORDS, STREAMS, path, engine=EngineName.LOCAL, window=TimeWindow(12), on_error=OnError.SKIP
    )
    search = Search(job)
    expected = list(search.results())
    replay = Replay.open(path, STREAMS, split_bytes=4_000)
    blocks = [timed_blocks(split) for split in replay.splits[:known_count]]
    with replay_run(spark, search.query, job.stream, replay, 20, first_blocks=blocks) as run:
        assert isinstance(run, RangesRun)
        assert len(run.slicing.slices) > 2
        bad_records = BadRecordLog(OnError.SKIP)
        assert [one.parsed for one in run.results(bad_records)] == expected
        assert [record.line for record in bad_records.first] == [1, 301, 302, 701]
        with pytest.raises(BadRecordsError, match=r"r.jsonl:1: "):
            list(run.results(BadRecordLog()))
        assert run.counts == search.counts
    assert len(expected) > 10


def test_looking_ahead_ends_where_files_are_out_of_order(tmp_path: Path) -> None:
    stream = [record for record in random_stream(STREAMS, 6, 900, 5) if not record.delete]
    path = write_replay(tmp_path / "r.jsonl", STREAMS, sorted(stream, key=lambda record: -record.time))
    splits = Replay.open(path, STREAMS, split_bytes=4_000).splits
    with reading_blocks(splits) as blocks:
        until(lambda: None in blocks)
    assert blocks == [None]
    assert len(splits) > 1


@pytest.mark.slow
def test_files_of_relations_are_merged_by_time(spark: SparkSession, tmp_path: Path) -> None:
    """Their pieces overlap, so slices cut through them."""
    stream = without_dequeues(STREAMS, random_stream(STREAMS, 5, 600, 5))
    folder = tmp_path / "relations"
    folder.mkdir()
    for number, relation in enumerate(STREAMS.relations):
        write_replay(folder / f"{relation.name}.jsonl", STREAMS, [r for r in stream if r.relation == number])
    assert compare(spark, folder, STREAMS, KEYWORDS, window=TimeWindow(12)) > 3


SCORED = {"all": RANKED, "best": BEST}


@pytest.mark.slow
@combinations("name, window", list(SCORED), [TimeWindow(40), CountWindow(25)])
def test_scores(spark: SparkSession, tmp_path: Path, name: str, window: Window) -> None:
    stream = without_dequeues(TABLES, random_stream(TABLES, 3, 600, 5))
    path = write_replay(tmp_path / "r.jsonl", TABLES, stream)
    assert compare(spark, path, TABLES, SCORED[name], window=window) > 1


@pytest.mark.slow
@pytest.mark.parametrize(
    "window",
    ["open when x > 4 and plain close when x = 0", "longest match [plain] .* [keyed] within 60 us per x"],
)
def test_queries_with_a_state_are_searched_in_one_piece(
    spark: SparkSession, tmp_path: Path, window: str
) -> None:
    path = write_replay(tmp_path / "r.jsonl", STREAMS, random_stream(STREAMS, 3, 500, 7))
    assert compare(spark, path, STREAMS, KEYWORDS, window=ExpressionWindow(window)) == 1


@pytest.mark.check
@pytest.mark.parametrize("count", [0, 1])
def test_empty_replays_and_single_records(spark: SparkSession, tmp_path: Path, count: int) -> None:
    path = write_replay(tmp_path / "r.jsonl", STREAMS, random_stream(STREAMS, 1, count, 5))
    compare(spark, path, STREAMS, Query("alpha -no"), least_results=0, window=TimeWindow(30))


def test_tables_without_a_stream(spark: SparkSession, tmp_path: Path) -> None:
    rows = [record for record in random_stream(TABLES, 3, 90, 7) if TABLES.relations[record.relation].table]
    path = write_replay(tmp_path / "r.jsonl", TABLES, rows)
    compare(spark, path, TABLES, Query("alpha"), least_results=3, window=TimeWindow(30))


@pytest.mark.slow
def test_a_limit_returns_the_first_results(spark: SparkSession, tmp_path: Path) -> None:
    stream = without_dequeues(STREAMS, random_stream(STREAMS, 7, 200, 3))
    path = write_replay(tmp_path / "r.jsonl", STREAMS, stream)
    search = Search(Job.search("alpha beta", STREAMS, path, window=TimeWindow(10)))
    replay = Replay.open(path, STREAMS, split_bytes=4_000)
    with replay_run(spark, search.query, search.job.stream, replay, 20) as run:
        results = [one.parsed for one in run.results(BadRecordLog())]
        assert len(run.slicing.slices) > 1
        assert [one.parsed for one in islice(run.results(BadRecordLog()), 5)] == results[:5]
    assert len(results) > 5


@pytest.mark.check
def test_bad_records_are_in_order_with_their_positions(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "r.jsonl"
    good_line = b'{"relation": "plain", "time": 1, "row": {"t": "alpha", "x": 1, "y": 2}}\n'
    path.write_bytes(good_line * 50 + b"{nonsense\n" + good_line * 50 + b"\xff\xfe\n" + good_line)
    search = Search(Job.search("alpha", STREAMS, path, window=TimeWindow(30)))
    replay = Replay.open(path, STREAMS, split_bytes=500)
    with replay_run(spark, search.query, search.job.stream, replay) as run:
        bad_records = BadRecordLog(OnError.SKIP)
        assert len([one.parsed for one in run.results(bad_records)]) == 101
    assert [(record.line, record.raw.strip()) for record in bad_records.first] == [
        (51, b"{nonsense"),
        (102, b"\xff\xfe"),
    ]


@pytest.mark.usefixtures("spark")
def test_a_pattern_is_counted_up_to_the_limit(tmp_path: Path) -> None:
    path = write_replay(tmp_path / "r.jsonl", TABLES, random_stream(TABLES, 4, 400, 7))
    job = Job.search(PATTERN, TABLES, path, window=TimeWindow(12), limit=3)
    search = Search(job)
    assert len(list(search.results())) == search.found == 3
    assert Search(job).count() == 3
    bad_path = tmp_path / "bad.jsonl"
    bad_path.write_text(path.read_text() + "{broken\n")
    with pytest.raises(Exception, match=r"bad.jsonl:401"):
        Search(Job.search(PATTERN, TABLES, bad_path, window=TimeWindow(12))).count()


@pytest.mark.check
def test_a_small_replay_is_searched_in_one_piece(spark: SparkSession, tmp_path: Path) -> None:
    path = write_replay(tmp_path / "r.jsonl", STREAMS, random_stream(STREAMS, 3, 200, 5))
    assert compare(spark, path, STREAMS, KEYWORDS, SMALL, window=TimeWindow(12)) == 1


def test_a_packed_result_is_unpacked_unchanged(tmp_path: Path) -> None:
    path = write_replay(tmp_path / "r.jsonl", STREAMS, random_stream(STREAMS, 3, 200, 5))
    job = Job.search(RANKED, STREAMS, path, window=TimeWindow(40), engine=EngineName.LOCAL)
    results = list(Search(job).results())
    assert results
    assert [Result.from_json(result.pack()) for result in results] == results
