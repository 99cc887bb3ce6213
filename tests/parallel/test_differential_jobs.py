"""A search by several processes has the same records, counts, bad records and notes as one process."""

from __future__ import annotations

import gzip
import os
import random
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from skws.data.batch import Record
from skws.formats.splits import Holds, PackedPiece
from skws.parallel import overlap
from skws.queries.kinds import moment
from skws.replay_search import Cuts, Search
from skws.results.result import LiveResult
from skws.spec.enums import EngineName, OnError
from skws.spec.job import Job
from skws.spec.query_spec import SQL, Query, RankingChoice, TopChoice
from skws_schema.errors import BadRecordsError
from skws_schema.model import Schema
from skws_windows.window import CountWindow, ExpressionWindow, TimeWindow, Unbounded, Window
from tests.formats.replays import write_replay
from tests.queries.random_streams import DIVIDED, STREAMS, TABLES, random_stream, without_dequeues
from tests.strategies import combinations, examples, seeds, some

KEYWORDS = Query("alpha beta -no", 4)
PATTERN = Query.of_pattern("plain a ; keyed b where a.x = b.y")
RANKED = Query.of_keywords("alpha beta", RankingChoice(explain=True))
FUZZY = Query("alhpa~ (b*ta OR !plain.x=1) keyed.y!=2 -n?e -link.x=0", 4)
BEST = Query.of_keywords("alpha beta", RankingChoice(), TopChoice(3))
QUERIES = {
    "keywords": KEYWORDS,
    "in order": Query("beta ; alpha", 3),
    "fuzzy terms": FUZZY,
    "pattern": PATTERN,
    "scores": RANKED,
    "best": BEST,
}


SMALL = Cuts(split_bytes=4_000, min_slice=20)
"""Limits by which even a small replay is cut."""


class Outcome:
    """The visible outcome of a search."""

    def __init__(
        self, query: Query, schema: Schema, path: Path, jobs: int, *, cuts: Cuts = SMALL, **options: Any
    ) -> None:
        self.notes: list[str] = []
        job = Job.search(query, schema, path, engine=EngineName.LOCAL, jobs=jobs, **options)
        self.search = search = Search(job, self.notes.append, cuts=cuts)
        self.error = ""
        self.results: list[LiveResult] = []
        try:
            self.results += search.results()
        except BadRecordsError as error:
            self.error = str(error)
        self.summary = (search.found, search.retracted, search.bad.count, search.bad.first, self.error)


@combinations("window, in_order", [Unbounded(), TimeWindow(500)], [True, False])
def test_a_stream_that_time_cannot_split_is_split_by_key(
    tmp_path: Path, window: Window, in_order: bool
) -> None:
    stream = random_stream(DIVIDED, 5, 900, 25, 0.003)
    assert any(record.truncates for record in stream)
    if not in_order:
        random.Random(1).shuffle(stream)
    path = write_replay(tmp_path / "r.jsonl", DIVIDED, stream)
    lines = path.read_bytes().splitlines(keepends=True)
    lines.insert(300, b"{nonsense\n")
    path.write_bytes(b"".join(lines))
    single, shared = (
        Outcome(KEYWORDS, DIVIDED, path, jobs, window=window, on_error=OnError.SKIP) for jobs in (1, 3)
    )
    assert shared.notes == []
    assert shared.summary == single.summary
    assert shared.search.counts == single.search.counts
    assert sorted(shared.results, key=moment) == shared.results
    assert sorted(map(str, shared.results)) == sorted(map(str, single.results))
    assert sum(len(result.tuples) > 2 for result in shared.results) > 50


def compare(
    query: Query,
    schema: Schema,
    path: Path,
    *jobs: int,
    limited: bool = False,
    may_be_empty: bool = False,
    **options: Any,
) -> list[str]:
    """Compare searches by several numbers of processes with one process; returns the last one's notes."""
    single = Outcome(query, schema, path, 1, **options)
    assert single.results or may_be_empty
    assert single.notes == []
    for number in jobs or (2,):
        shared = Outcome(query, schema, path, number, **options)
        assert shared.results == single.results
        assert shared.summary == single.summary
        assert limited or shared.search.counts == single.search.counts
    return shared.notes


def shuffled(records: Sequence[Record], seed: int) -> list[Record]:
    shuffled_records = list(records)
    random.Random(seed).shuffle(shuffled_records)
    return shuffled_records


def insertions(records: Sequence[Record]) -> list[Record]:
    return [record for record in records if not record.delete]


@pytest.mark.check
@combinations("query, jobs", list(QUERIES), [2, 3])
@given(
    seed=st.integers(0, 10_000),
    window=st.sampled_from([TimeWindow(5), TimeWindow(12), TimeWindow(40), CountWindow(5), CountWindow(20)]),
    is_shuffled=st.booleans(),
    insertions_only=st.booleans(),
    schema=st.sampled_from([STREAMS, STREAMS, TABLES]),
)
@examples(7, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_random_streams_have_the_results_of_one_process(
    tmp_path: Path,
    query: str,
    jobs: int,
    seed: int,
    window: Window,
    is_shuffled: bool,
    insertions_only: bool,
    schema: Schema,
) -> None:
    """Every slice includes the tables."""
    stream = without_dequeues(schema, random_stream(schema, seed, 250, 5, 0 if seed % 2 else 0.02))
    stream = insertions(stream) if insertions_only else stream
    path = write_replay(tmp_path / "r.jsonl", schema, shuffled(stream, seed) if is_shuffled else stream)
    compare(QUERIES[query], schema, path, jobs, window=window, may_be_empty=True)


@pytest.mark.slow
@pytest.mark.parametrize("with_op", [True, False], ids=["with op", "without"])
def test_a_replay_in_order_is_split_into_ranges(tmp_path: Path, with_op: bool) -> None:
    path = write_replay(tmp_path / "r.jsonl", STREAMS, insertions(random_stream(STREAMS, 4, 900, 7)))
    if not with_op:
        path.write_bytes(path.read_bytes().replace(b'"op":"+",', b""))
    assert compare(KEYWORDS, STREAMS, path, 2, 3, window=TimeWindow(12)) == []


@pytest.mark.slow
@some("is_shuffled", [True], [False])
def test_a_replay_of_several_blocks_has_the_results_of_one_process(tmp_path: Path, is_shuffled: bool) -> None:
    stream = insertions(random_stream(STREAMS, 4, 16_000, 400))
    path = write_replay(tmp_path / "r.jsonl", STREAMS, shuffled(stream, 1) if is_shuffled else stream)
    assert path.stat().st_size > 1 << 20
    cuts = replace(SMALL, split_bytes=400_000)
    assert compare(KEYWORDS, STREAMS, path, 3, window=TimeWindow(60), cuts=cuts) == []


@pytest.mark.check
@combinations("is_shuffled, on_error", [False, True], list(OnError))
@seeds(1, 4)
def test_bad_records_are_reported_in_order_and_once(
    tmp_path: Path, seed: int, on_error: OnError, is_shuffled: bool
) -> None:
    rng = random.Random(seed)
    stream = insertions(random_stream(STREAMS, seed, 500, 7))
    path = write_replay(tmp_path / "r.jsonl", STREAMS, shuffled(stream, seed) if is_shuffled else stream)
    lines = path.read_bytes().splitlines(keepends=True)
    bad_lines = (
        b"{nonsense\n",
        b"\xff\xfe\n",
        b"[1, 2]\n",
        b"\n",
        b"null\n",
        b'{"relation": "z", "time": 1.0, "row": {}}\n',
    )
    for _ in range(12):
        lines.insert(rng.randrange(len(lines)), rng.choice(bad_lines))
    record = orjson.loads(lines[300]) if lines[300].startswith(b'{"r') else {"relation": "plain", "row": {}}
    lines[300] = orjson.dumps({**record, "time": None}) + b"\n"
    path.write_bytes(b"".join([*bad_lines[:1], *lines, *bad_lines]))
    outcomes = []
    for jobs in (1, 2, 3):
        file = tmp_path / f"letters-{jobs}.jsonl"
        options: dict[str, Any] = {"dead_letters": file} if on_error is OnError.DEAD_LETTER else {}
        outcome = Outcome(KEYWORDS, STREAMS, path, jobs, window=TimeWindow(12), on_error=on_error, **options)
        results = outcome.results if on_error is not OnError.FAIL else []
        outcomes.append((file.read_bytes() if options else b"", outcome.summary[2:], results))
    assert outcomes[0] == outcomes[1] == outcomes[2]
    assert outcomes[0][1][0] > (0 if on_error is OnError.FAIL else 12)


@pytest.mark.check
def test_blocks_without_records_change_no_result(tmp_path: Path) -> None:
    stream = insertions(random_stream(STREAMS, 2, 300, 7))
    path = write_replay(tmp_path / "r.jsonl", STREAMS, stream)
    bad_block = (b"{nonsense\n" + b"\n" * 50) * 40
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(bad_block + b"".join(lines[:150]) + bad_block + b"".join(lines[150:]) + bad_block)
    assert compare(KEYWORDS, STREAMS, path, 2, 3, window=TimeWindow(12), on_error=OnError.SKIP) == []


def test_change_events_are_not_mistaken_for_insertions(tmp_path: Path) -> None:
    path = write_replay(tmp_path / "r.jsonl", STREAMS, insertions(random_stream(STREAMS, 2, 300, 7)))
    row = {"t": "alpha beta", "x": 1, "y": 2}
    event = {
        "time": 1.0003,
        "payload": {"op": "d", "before": row, "source": {"table": "plain"}, "ts_ms": 1_000},
    }
    with path.open("ab") as file:
        file.write(orjson.dumps(event) + b"\n")
    options: dict[str, Any] = {"window": TimeWindow(12), "on_error": OnError.SKIP}
    compare(KEYWORDS, STREAMS, path, **options)
    assert Outcome(KEYWORDS, STREAMS, path, 2, **options).search.bad.count == 1


INDIVISIBLE: dict[str, tuple[Query, Window]] = {
    "best": (replace(BEST, max_size=2), Unbounded()),
    "windows per key": (
        KEYWORDS,
        ExpressionWindow("longest match [plain] .* [keyed] within 60 us per x"),
    ),
    "keywords": (KEYWORDS, Unbounded()),
    "pattern": (PATTERN, Unbounded()),
    "a long window": (KEYWORDS, TimeWindow(5_000)),
}


@pytest.mark.check
@combinations("name, order", list(INDIVISIBLE), ["in order", "out of order"])
def test_one_process_searches_a_stream_that_cannot_be_split(tmp_path: Path, name: str, order: str) -> None:
    """The search reports that, unless reading is shared."""
    query, window = INDIVISIBLE[name]
    is_shuffled = order == "out of order"
    stream = insertions(random_stream(STREAMS, 3, 400, 7))
    path = write_replay(tmp_path / "r.jsonl", STREAMS, shuffled(stream, 1) if is_shuffled else stream)
    notes = compare(query, STREAMS, path, window=window)
    assert len(notes) == (not is_shuffled)
    assert is_shuffled or notes[0].startswith("--jobs 2: one process searches: ")


def test_sql_queries_have_the_results_of_one_process(tmp_path: Path) -> None:
    stream = insertions(random_stream(STREAMS, 3, 300, 7))
    path = write_replay(tmp_path / "r.jsonl", STREAMS, shuffled(stream, 1))
    text = "select p.x from plain p, keyed k where p.x = k.x and p.x = 3 and k.y = 2"
    compare(Query(text, kind=SQL), STREAMS, path)


def test_deletions_of_rows_without_a_key_have_the_results_of_one_process(tmp_path: Path) -> None:
    path = write_replay(tmp_path / "r.jsonl", STREAMS, random_stream(STREAMS, 3, 400, 7))
    compare(KEYWORDS, STREAMS, path, window=TimeWindow(12))


@pytest.mark.check
def test_several_files_and_formats_have_the_results_of_one_process(tmp_path: Path) -> None:
    """JSON lines of records and of bare rows, compressed or not, CSV and Parquet, merged by time."""
    stream = insertions(random_stream(STREAMS, 5, 900, 5))
    folder = tmp_path / "replay"
    folder.mkdir()
    write_replay(folder / "a.jsonl", STREAMS, stream[:300])
    uncompressed = write_replay(tmp_path / "b.jsonl", STREAMS, stream[300:450])
    (folder / "b.jsonl.gz").write_bytes(gzip.compress(uncompressed.read_bytes()))
    plain_records = [record for record in stream[450:] if record.relation == 0]
    with (folder / "plain.csv").open("w") as file:
        file.write("time,t,x,y\n")
        for record in plain_records:
            file.write(",".join(map(_field, (record.time / 1e6, *record.row))) + "\n")
    link_records = [record for record in stream[450:] if record.relation == 2]
    columns = {"time": [record.time / 1e6 for record in link_records]}
    columns |= {name: [r.row[column] for r in link_records] for column, name in enumerate("txy")}  # type: ignore[misc]
    pq.write_table(pa.table(columns), folder / "link.parquet", row_group_size=40)
    for query in (KEYWORDS, PATTERN):
        assert compare(query, STREAMS, folder, 2, 3, window=TimeWindow(25)) == []


def _field(value: object) -> str:
    return "" if value is None else str(value)


@pytest.mark.check
def test_parquet_in_order_has_the_results_of_one_process(tmp_path: Path) -> None:
    stream = [record for record in insertions(random_stream(STREAMS, 5, 900, 5)) if record.relation == 0]
    columns: dict[str, Any] = {"time": [record.time / 1e6 for record in stream]}
    columns |= {name: [r.row[column] for r in stream] for column, name in enumerate("txy")}
    path = tmp_path / "plain.parquet"
    pq.write_table(pa.table(columns), path, row_group_size=50)
    compare(Query("alpha beta", 3), STREAMS, path, 2, 3, window=TimeWindow(12))


@pytest.mark.parametrize("count", [0, 1])
def test_one_process_searches_a_replay_of_one_piece(tmp_path: Path, count: int) -> None:
    path = write_replay(tmp_path / "r.jsonl", STREAMS, insertions(random_stream(STREAMS, 1, count, 5)))
    notes = compare(Query("alpha"), STREAMS, path, window=TimeWindow(12), may_be_empty=True)
    assert notes == ["--jobs 2: one process searches: the replay is one piece"]


def test_one_process_searches_a_small_replay(tmp_path: Path) -> None:
    path = write_replay(tmp_path / "r.jsonl", STREAMS, insertions(random_stream(STREAMS, 1, 200, 5)))
    job = Job.search("alpha", STREAMS, path, engine=EngineName.LOCAL)
    assert Search(job).jobs == 1
    large_search = Search(job, cuts=replace(SMALL, large=100))
    assert large_search.jobs == min(len(os.sched_getaffinity(0)), len(large_search.replay.splits))
    limited_job = Job.search("alpha", STREAMS, path, engine=EngineName.LOCAL, limit=3)
    assert Search(limited_job, cuts=replace(SMALL, large=100)).jobs == 1


@pytest.mark.parametrize("limit", [1, 7])
def test_a_limit_returns_the_same_results(tmp_path: Path, limit: int) -> None:
    path = write_replay(tmp_path / "r.jsonl", STREAMS, insertions(random_stream(STREAMS, 4, 900, 7)))
    assert compare(KEYWORDS, STREAMS, path, limited=True, window=TimeWindow(12), limit=limit) == []


@pytest.mark.check
@pytest.mark.parametrize("limit", [None, 5])
def test_counts_of_a_pattern_are_the_same(tmp_path: Path, limit: int | None) -> None:
    stream = without_dequeues(STREAMS, random_stream(STREAMS, 4, 600, 7))
    path = write_replay(tmp_path / "r.jsonl", STREAMS, stream)
    counts = [
        Search(
            Job.search(
                PATTERN, STREAMS, path, engine=EngineName.LOCAL, jobs=jobs, limit=limit, window=TimeWindow(12)
            ),
            cuts=SMALL,
        ).count()
        for jobs in (1, 2, 3)
    ]
    assert counts[0] == counts[1] == counts[2] > 4


@pytest.mark.slow
@some("query", list(QUERIES)[::2], list(QUERIES)[1::2])
def test_json_lines_are_the_results_as_json(tmp_path: Path, query: str) -> None:
    path = write_replay(tmp_path / "r.jsonl", STREAMS, insertions(random_stream(STREAMS, 4, 600, 7)))
    lines = []
    for jobs in (1, 2):
        options = {"engine": EngineName.LOCAL, "jobs": jobs, "window": TimeWindow(12)}
        job = Job.search(QUERIES[query], STREAMS, path, **options)
        lines.append(list(Search(job, cuts=SMALL).json_lines()))
        assert [result.to_json() for result in Search(job, cuts=SMALL).results()] == lines[-1]
    assert lines[0] == lines[1]
    assert lines[0]


@pytest.mark.check
@pytest.mark.parametrize("held_limit", [0, 1_000])
def test_pieces_that_overlap_too_much_are_left_to_fewer_processes(tmp_path: Path, held_limit: int) -> None:
    """Fewer processes hold them, or one process sorts the replay on disk; bad records are reported once."""
    stream = shuffled(insertions(random_stream(STREAMS, 4, 900, 7)), 2)
    path = write_replay(tmp_path / "r.jsonl", STREAMS, stream)
    path.write_bytes(b"{nonsense\n" + path.read_bytes() + b"{nonsense\n")
    cuts = replace(SMALL, max_held=held_limit)
    notes = compare(KEYWORDS, STREAMS, path, 3, window=TimeWindow(12), on_error=OnError.SKIP, cuts=cuts)
    assert notes == (
        ["--jobs 3: one process searches: too many parts of it overlap in time"] if not held_limit else []
    )


@given(st.lists(st.tuples(st.integers(0, 30), st.integers(0, 9), st.integers(1, 5)), max_size=12))
def test_the_overlap_is_the_largest_size_at_one_time(spans: list[tuple[int, int, int]]) -> None:
    pieces = [
        PackedPiece(number, 0, Holds.RECORDS, first, first + length, size)
        for number, (first, length, size) in enumerate(spans)
    ]
    expected = [sum(p.size for p in pieces if p.first <= time <= p.last) for time in range(50)]
    assert overlap(pieces) == max(expected)
