"""Files planned and read in parts have the records of polls, in the order of a replay."""

from __future__ import annotations

import pickle
import random
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import orjson
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from skws.data.batch import BadRecord, Chunk, Item, Record
from skws.sources.feed import Feed, FeedPart, Offset, SystemClock
from skws.sources.growing_files import FilesFeed, FilesSource
from skws.sources.horizon import BoundedSource, Horizon
from skws.sources.partitions import PartitionedFeed, latest_by_partition
from skws_schema.errors import SourceError
from skws_windows.window import MICROSECOND
from tests.sources.followed_files import SCHEMA, line, numbers
from tests.strategies import seeds


def parts_between(feed: Feed, start: Offset, end: Offset, number: int) -> list[FeedPart] | None:
    """The parts as another process gets them."""
    parts = feed.parts(start, end, number)
    received: list[FeedPart] | None = pickle.loads(pickle.dumps(parts))
    return received


def read(parts: list[FeedPart]) -> list[Item]:
    return list(Chunk.concat(chunk for part in parts for chunk in part.read(SCHEMA)))


def plans_of(feed: Feed, limit: int) -> Iterator[tuple[Offset, Offset]]:
    """Plans from the start of the source to its end; each knows the latest times of files in order.

    The time is unknown if only bad records of a file are in the batch.
    """
    start = feed.start()
    while (plan := feed.plan(start, limit)) is not None:
        end = orjson.loads(orjson.dumps(plan.end))
        latest = latest_by_partition(feed.replay(start, end))
        assert latest.keys() <= plan.reached.keys()
        assert {number: latest.get(number) for number in plan.reached} == {
            number: latest.get(number) if time is None else time for number, time in plan.reached.items()
        }
        yield start, end
        start = end


def write_lines(path: Path, rng: random.Random, number: int) -> None:
    lines = [line(n, "x" * rng.choice([0, 1, 50, 3000])) for n in range(number)]
    for _ in range(rng.randrange(3)):
        lines.insert(rng.randrange(len(lines)), rng.choice([b"\n", b"no json\n", b"null\n"]))
    path.write_bytes(b"".join(lines))


def write_rows(path: Path, rng: random.Random, number: int) -> None:
    table = pa.table(
        {"mid": range(number), "title": ["x"] * number, "time": [float(n) for n in range(number)]}
    )
    pq.write_table(table, path, row_group_size=rng.choice([1, 7, 1000]))


@pytest.mark.check
@seeds(8, 60)
def test_oracle_parts_have_the_records_of_polls(seed: int, tmp_path: Path) -> None:
    rng = random.Random(seed)
    for file in range(rng.randrange(1, 4)):
        write_lines(tmp_path / f"{file}.jsonl", rng, rng.randrange(1, 300))
    if rng.random() < 0.5:
        (tmp_path / "movie").mkdir()
        write_rows(tmp_path / "movie" / "rows.parquet", rng, rng.randrange(300))
    feed = FilesFeed(tmp_path, SCHEMA)
    items_by_partition: dict[str, list[Item]] = defaultdict(list)
    end_of_plans = feed.start()
    for start, end in plans_of(feed, rng.choice([4, 20, 1000])):
        parts = parts_between(feed, start, end, rng.randrange(1, 9))
        assert parts is not None
        assert read(parts) == list(feed.replay(start, end))
        for part in parts:
            items_by_partition[str(part.partition)] += read([part])
        end_of_plans = end
    remaining = feed.poll(end_of_plans, 1_000_000).read
    expected = FilesFeed(tmp_path, SCHEMA).poll(feed.start(), 1_000_000).read
    # Bad records of parts have their positions in the whole files.
    actual = sorted(
        map(repr, [*(item for items in items_by_partition.values() for item in items), *remaining])
    )
    assert actual == sorted(map(repr, expected))
    for items in items_by_partition.values():
        records = list(map(str, numbers([one for one in items if not isinstance(one, BadRecord)])))
        assert records == sorted(records, key=int)  # records of a file are in order


@pytest.mark.parametrize(
    ("times", "expected"),
    [
        ((range(2000), range(0, 2000, 10)), (1000, 100)),  # in parallel
        ((range(2000), range(2000, 4000)), (1100, 0)),  # one after the other
        ((range(1000, 3000), range(300)), (800, 300)),  # one is behind
    ],
)
def test_a_batch_ends_at_one_time_in_all_files(
    tmp_path: Path, times: tuple[range, range], expected: tuple[int, int]
) -> None:
    for name, file_times in zip("ab", times, strict=True):
        (tmp_path / f"{name}.jsonl").write_bytes(b"".join(line(n, name) for n in file_times))
    feed = FilesFeed(tmp_path, SCHEMA)
    start, end = next(plans_of(feed, 1100))
    titles = [item.row[1] for item in feed.replay(start, end) if not isinstance(item, BadRecord)]
    for name, number in zip("ab", expected, strict=True):
        assert titles.count(name) == pytest.approx(number, abs=50)


@seeds(8, 60)
def test_no_record_after_a_batch_is_earlier_than_its_records(seed: int, tmp_path: Path) -> None:
    """Otherwise a file that adds no record to a batch would have late records afterwards."""
    rng = random.Random(seed)
    for file in range(rng.randrange(2, 5)):
        times = sorted(rng.sample(range(10_000), rng.choice([3, 100, 1000])))
        (tmp_path / f"{file}.jsonl").write_bytes(b"".join(line(n, "x" * rng.choice([1, 200])) for n in times))
    if rng.random() < 0.5:
        times = sorted(rng.sample(range(10_000), rng.choice([3, 300])))
        rows = {"mid": times, "time": pa.array([n * 1_000_000 for n in times], pa.timestamp("us", "UTC"))}
        (tmp_path / "movie").mkdir()
        pq.write_table(
            pa.table(rows), tmp_path / "movie" / "rows.parquet", row_group_size=rng.choice([10, 100])
        )
    feed = FilesFeed(tmp_path, SCHEMA)
    all_times = [
        one.time for one in feed.poll(feed.start(), 1_000_000).read if not isinstance(one, BadRecord)
    ]
    latest, count = -1, 0
    for start, end in plans_of(feed, rng.choice([5, 20, 100])):
        batch_times = [one.time for one in feed.replay(start, end) if not isinstance(one, BadRecord)]
        assert min(batch_times) >= latest
        latest, count = max(batch_times), count + len(batch_times)
        later_times = sorted(all_times)[count:]
        for part in parts_between(feed, start, end, 3) or ():
            assert part.until == (later_times[0] if later_times else None)
        assert latest <= min(later_times, default=latest)


def test_row_groups_are_read_in_order_of_time(tmp_path: Path) -> None:
    for relation, first in (("movie", 500), ("play", 0)):
        (tmp_path / relation).mkdir()
        numbers = range(first, first + 1000)
        rows = {
            "mid": numbers,
            "time": pa.array([n * 1_000_000 for n in numbers], pa.timestamp("us", "UTC")),
        }
        pq.write_table(pa.table(rows), tmp_path / relation / "rows.parquet", row_group_size=100)
    feed = FilesFeed(tmp_path, SCHEMA)
    start, end = next(plans_of(feed, 500))
    relations = [item.relation for item in feed.replay(start, end) if not isinstance(item, BadRecord)]
    assert relations == [2] * 500


def test_a_file_that_a_plan_reads_to_its_end_does_not_hold_the_stream_time_back(tmp_path: Path) -> None:
    """The stream time after planned and polled batches is the same."""
    folder = tmp_path / "movie"
    folder.mkdir()
    for name, rows in (("first", 300), ("second", 1_000)):
        times = pa.array(range(rows), pa.timestamp("s"))
        table = pa.table({"mid": range(rows), "title": ["x"] * rows, "time": times})
        pq.write_table(table, folder / f"{name}.parquet", row_group_size=50)
    feed = PartitionedFeed(FilesFeed(tmp_path, SCHEMA), SystemClock(), 0, idle=60 * MICROSECOND)
    polled = feed.poll(feed.start(), 2_000).end
    planned = feed.start()
    while (plan := feed.plan(planned, 200)) is not None:
        planned = plan.end
    assert planned == polled


def test_a_time_outside_of_the_calendar_does_not_prevent_a_plan(tmp_path: Path) -> None:
    """Parquet allows such a time, also in the statistics of a row group."""
    (tmp_path / "movie").mkdir()
    times = pa.array([1_000_000, 2**60], pa.timestamp("us", "UTC"))
    pq.write_table(pa.table({"mid": [1, 2], "time": times}), tmp_path / "movie" / "rows.parquet")
    feed = FilesFeed(tmp_path, SCHEMA)
    ((start, end),) = plans_of(feed, 1)
    parts = parts_between(feed, start, end, 1)
    assert parts is not None
    assert numbers(read(parts)) == numbers(list(feed.replay(start, end)))
    assert sum(isinstance(item, BadRecord) for item in read(parts)) == 1


def test_a_plan_uses_the_times_of_records_not_those_inside_objects(tmp_path: Path) -> None:
    for relation, first in (("movie", 500), ("play", 0)):
        (tmp_path / relation).mkdir()
        seconds = pa.array([n * 1_000_000 for n in range(first, first + 100)], pa.timestamp("us", "UTC"))
        other = pa.StructArray.from_arrays([seconds.take(pa.array([99] * 100))], ["time"])
        rows = {"note": other, "mid": range(first, first + 100), "time": seconds}
        pq.write_table(pa.table(rows), tmp_path / relation / "rows.parquet", row_group_size=10)
    feed = FilesFeed(tmp_path, SCHEMA)
    ends = [end["files"] for _, end in plans_of(feed, 50)]
    rows_read = [(files["play/rows.parquet"][1], files["movie/rows.parquet"][1]) for files in ends]
    assert rows_read == [(50, 0), (100, 0), (100, 50), (100, 100)]


def test_a_plan_continues_after_polled_rows_with_ignored_values(tmp_path: Path) -> None:
    """A note on ignored values is no row."""
    (tmp_path / "movie").mkdir()
    table = pa.table(
        {"mid": range(100), "ignored": ["x"] * 100, "time": pa.array(range(100), pa.timestamp("s"))}
    )
    pq.write_table(table, tmp_path / "movie" / "rows.parquet", row_group_size=10)
    feed = FilesFeed(tmp_path, SCHEMA)
    first = feed.poll(feed.start(), 50)
    assert any(bad.passed_over for bad in first.read.bad)
    plan = feed.plan(first.end, 50)
    assert plan is not None
    parts = parts_between(feed, first.end, plan.end, 2)
    assert parts is not None
    items = [*first.read.records.records(), *read(parts)]
    assert numbers([item for item in items if isinstance(item, Record)]) == list(range(100))


def test_files_that_cannot_be_divided_are_polled(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_bytes(b"".join(line(n) for n in range(100)))
    feed = FilesFeed(tmp_path, SCHEMA)
    assert feed.plan(feed.start(), 401) is None  # too few
    assert feed.plan(feed.start(), 100) is not None
    (tmp_path / "movie.csv").write_text("mid,title,time\n" + "1,x,1\n" * 100)
    feed = FilesFeed(tmp_path, SCHEMA)
    assert feed.plan(feed.start(), 100) is None
    batch = feed.poll(feed.start(), 100)
    assert feed.parts(feed.start(), batch.end, 2) is None
    assert len(batch.read) == 100


def test_a_poll_has_the_notices_of_an_attempt_to_plan(tmp_path: Path) -> None:
    (tmp_path / "other.jsonl").write_text('{"a":1}\n')
    (tmp_path / "stream.jsonl").write_bytes(line(1)[:-5])
    feed = FilesFeed(tmp_path, SCHEMA)
    start = feed.start()
    assert feed.plan(start, 1) is None
    (notice,) = feed.poll(start, 1).notices
    assert notice.startswith("other.jsonl is skipped")


def test_an_incomplete_line_waits(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    content = b"".join(line(n) for n in range(50))
    path.write_bytes(content + line(50)[:-5])
    feed = FilesFeed(path, SCHEMA)
    start, end = next(plans_of(feed, 50))
    parts = parts_between(feed, start, end, 3)
    assert parts is not None
    assert numbers(read(parts)) == list(range(50))
    path.write_bytes(content + line(50))
    assert numbers(list(feed.poll(end, 10).read)) == [50]


def test_a_file_rotated_after_the_plan_is_found(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(b"".join(line(n) for n in range(50)))
    feed = FilesFeed(path, SCHEMA)
    start, end = next(plans_of(feed, 50))
    parts = parts_between(feed, start, end, 3)
    assert parts is not None
    path.rename(tmp_path / "a.jsonl.1")
    path.write_bytes(b"".join(line(n) for n in range(100, 200)))
    assert numbers(read(parts)) == list(range(50))


def test_a_missing_or_truncated_file_is_reported(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(b"".join(line(n) for n in range(20_000)))
    feed = FilesFeed(path, SCHEMA)
    start, end = next(plans_of(feed, 20_000))
    parts = parts_between(feed, start, end, 1)
    assert parts is not None
    chunks = parts[0].read(SCHEMA)
    next(chunks)
    path.write_bytes(b"")  # while it is read
    with pytest.raises(SourceError, match=r"a\.jsonl is gone or has changed since its records were planned"):
        list(chunks)
    path.write_bytes(b"".join(line(n) for n in range(100, 20_200)))
    with pytest.raises(SourceError, match="is gone or has changed"):
        read(parts)


def test_parts_use_the_horizon_of_their_plan(tmp_path: Path) -> None:
    """The clock advances between the plan, its parts, and a restart."""
    path = tmp_path / "a.jsonl"
    path.write_bytes(b"".join(line(n) for n in range(100)))
    clock_time = 50_000_000
    source = BoundedSource(FilesSource(path), Horizon(10_000_000, lambda: clock_time))
    feed = source.open(SCHEMA)
    start, end = next(plans_of(feed, 100))
    clock_time = 80_000_000
    for reader in (feed, source.open(SCHEMA)):
        parts = parts_between(reader, start, end, 4)
        assert parts is not None
        items = read(parts)
        assert sorted(map(repr, items)) == sorted(map(repr, reader.replay(start, end)))
        assert len([one for one in items if not isinstance(one, BadRecord)]) == 61
