"""Counts of tuples, deletions, late and bad records add up to the lines read."""

from __future__ import annotations

import gzip
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skws.jobs.local import LocalWatch
from skws.jobs.metrics import Metrics
from skws.replay_search import Search
from skws.sources.stdin import StdinSource
from skws.spec.enums import EngineName, OnError
from skws.spec.job import Job
from skws.spec.query_spec import Query
from skws_mesh.mesh_kinds import MeshChoice, MeshKind
from skws_windows.window import CountWindow, ExpressionWindow, Window
from tests.jobs.watching import QUERY, SCHEMA, Collected, Notes, opened, request, steps
from tests.spark.streaming.spark_runs import running
from tests.strategies import combinations, examples, some

ORDER: Final = b'{"relation": "order", "time": %d, "row": {"cid": 7, "item": "lamp"}}'
GOOD: Final = (
    ORDER,
    b'{"relation": "customer", "time": %d, "row": {"cid": 7, "name": "ada"}}',
    b'{"relation": "customer", "op": "-", "time": %d, "row": {"cid": 7}}',
    b'{"row": {"item": null, "cid": "8"}, "time": "%d", "op": "+", "relation": "order"}',
    b"  " + ORDER + b"\r",
)
BAD: Final = (
    b"{}",
    b"null",
    b"[]",
    b"1",
    b'""',
    b"true",
    b"NaN",
    b"nonsense",
    b'{"foo": 1}',
    b'{"foo": 1, "row": {}}',
    b'{"relation": null}',
    b'{"relation": "nobody", "time": 1, "row": {}}',
    b'{"relation": ["order"], "time": 1, "row": {}}',
    b'{"relation": "order", "time": 1}',
    b'{"relation": "order", "row": {"cid": 7, "item": "no time"}}',
    b'{"payload": null}',
    b'{"payload": {"op": "c", "source": {"table": "nobody"}, "after": {}}}',
    b'{"key": null, "value": null}',
    b"\xff\xfe{\x00}\x00",
    b'{"relation": "order", "time": 1, "row": {"cid": 7, "item": "\xff"}}',
    b"\x00\x00",
    ORDER % 5 + b"\x00",
    ORDER % 5 + ORDER % 5,
    b"{" + ORDER % 5,
    (ORDER % 5)[:-3],
    b" \xef\xbb\xbf",
)
BLANK: Final = (b"", b"  ", b"\t\r")
BOM: Final = b"\xef\xbb\xbf"
WINDOWS: Final = (None, CountWindow(3), ExpressionWindow("open when cid > 7 close when cid < 8"))


@st.composite
def dirty_lines(draw: st.DrawFn) -> tuple[bytes, int]:
    """Lines, and the number of lines that are not blank."""
    kinds = st.one_of(st.sampled_from(GOOD), st.sampled_from(BAD), st.sampled_from(BLANK))
    lines = draw(st.lists(kinds, min_size=1, max_size=12))
    lines.insert(draw(st.integers(0, len(lines))), ORDER)
    times = draw(st.lists(st.integers(1, 40), min_size=len(lines), max_size=len(lines)))
    if draw(st.booleans()):
        times.sort()
    timed_lines = [line % time if b"%d" in line else line for line, time in zip(lines, times, strict=True)]
    prefix = draw(st.sampled_from([b"", BOM]))
    return prefix + b"\n".join(timed_lines) + b"\n", sum(bool(line.strip()) for line in timed_lines)


def search_total(path: Path, window: Window | None, **changes: object) -> int:
    job = Job.search(QUERY, SCHEMA, path, window=window, engine=EngineName.LOCAL, on_error=OnError.SKIP)
    search = Search(replace(job, **changes))  # type: ignore[arg-type]
    for _ in search.results():
        pass
    counts = search.counts
    return counts.tuples + counts.static + counts.deletions + counts.late + search.bad.count


def pattern_total(path: Path, engine: EngineName = EngineName.LOCAL) -> int:
    text = "customer c ; order o where c.cid = o.cid within 10 s"
    search = Search(Job.search(Query.of_pattern(text), SCHEMA, path, engine=engine, on_error=OnError.SKIP))
    for _ in search.results():
        pass
    return search.counts.tuples + search.counts.deletions + search.bad.count


def metrics_total(metrics: Metrics) -> int:
    return metrics.tuples + metrics.deletions + metrics.late + metrics.bad


def watch_total(source: str | Path, window: Window | None = None) -> int:
    watch = opened(request(source, window=window, on_error=OnError.SKIP, speed=None), Collected())
    steps(watch)
    watch.close()
    return metrics_total(watch.metrics())


def stdin_total(path: Path) -> int:
    with path.open("rb") as file:
        job = request("-", on_error=OnError.SKIP)
        watch = LocalWatch(job, [Collected()], Notes().log, source=StdinSource(file))
        watch.run()
    return metrics_total(watch.metrics())


COMMANDS: Final[Sequence[Callable[[Path], int]]] = (
    *(lambda path, w=window: search_total(path, w) for window in WINDOWS),
    *(lambda path, w=window: watch_total(path, w) for window in WINDOWS),
    *(lambda path, w=window: watch_total(f"replay:{path}?speed=1e9", w) for window in WINDOWS),
    lambda path: search_total(path, None, lateness=0),
    lambda path: search_total(path, None, mesh=MeshChoice(MeshKind.FULL)),
    lambda path: search_total(path, None, mesh=MeshChoice(MeshKind.FULL), lateness=3_000_000),
    pattern_total,
    stdin_total,
)


@examples(300)
@given(dirty_lines(), st.booleans(), st.sampled_from(COMMANDS))
def test_counts_of_json_lines_add_up(
    case: tuple[bytes, int], compressed: bool, command: Callable[[Path], int]
) -> None:
    text, count = case
    compressed = compressed and command is not stdin_total
    with TemporaryDirectory() as folder:
        path = Path(folder) / f"lines.jsonl{'.gz' * compressed}"
        path.write_bytes(gzip.compress(text) if compressed else text)
        assert command(path) == count


@pytest.mark.check
@combinations(
    "first, name",
    [line for line in (*BAD, *BLANK) if line],
    ["lines.jsonl", "order.jsonl", "rows/order/part-0.jsonl"],
)
def test_a_bad_line_at_any_position_does_not_change_the_format(
    tmp_path: Path, first: bytes, name: str
) -> None:
    """In files of records, and in files of bare rows named after their relation."""
    path, source = tmp_path / name, tmp_path / name.split("/")[0]
    path.parent.mkdir(parents=True, exist_ok=True)
    row = (
        b'{"cid": %d, "item": "lamp", "time": %d}' if name.startswith("rows") else ORDER.replace(b"7", b"%d")
    )
    if name.startswith("rows") and b"no time" in first:
        pytest.skip("a record of a known relation marks a file of records")
    lines = [row % (n, n) for n in range(1, 6)]
    for text in ([first, *lines], [*lines[:2], first, *lines[2:]], [*lines, first]):
        path.write_bytes(b"\n".join(text) + b"\n")
        job = Job.search("lamp", SCHEMA, source, engine=EngineName.LOCAL, on_error=OnError.SKIP)
        search = Search(job)
        assert len(list(search.results())) == 5
        assert (search.counts.tuples, search.bad.count) == (5, bool(first.strip()))
        sink = Collected()
        watch = opened(request(source, queries={"lamp": "lamp"}, on_error=OnError.SKIP, lateness=10**7), sink)
        steps(watch)
        watch.close()
        assert (len(sink.results), metrics_total(watch.metrics())) == (5, 5 + bool(first.strip()))


CSV_LINES: Final = (
    b"order,%d,7,,lamp",
    b"customer,%d,7,ada,",
    b"order,%d,7",
    b"nobody,%d,7,,lamp",
    b"order,%d,x,,lamp",
    b"order,%d,7,ada,lamp",
    b"order,%d,7,,\xff",
    b"{}",
    b"null",
    b"   ",
    b"\x00",
    b"",
    b"\r",
)


@examples(100)
@given(st.lists(st.tuples(st.sampled_from(CSV_LINES), st.integers(1, 40))), st.sampled_from(COMMANDS[:-1]))
def test_counts_of_csv_lines_add_up(lines: list[tuple[bytes, int]], command: Callable[[Path], int]) -> None:
    timed_lines = [line % time if b"%d" in line else line for line, time in lines]
    with TemporaryDirectory() as folder:
        path = Path(folder) / "lines.csv"
        path.write_bytes(
            b"\n\nrelation,time,cid,name,item\n" + b"".join(line + b"\n" for line in timed_lines)
        )
        assert command(path) == sum(line.strip(b"\r") != b"" for line in timed_lines)


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, int]:
    return write_dirty_files(tmp_path_factory.mktemp("dirty"), 40)


def write_dirty_files(folder: Path, files: int) -> tuple[Path, int]:
    """Writes dirty files; returns their folder and the number of lines that are not blank."""
    rng, count = Random(5), 0
    for number in range(files):
        lines = [rng.choice((*GOOD, *BAD, *BLANK)) for _ in range(rng.randint(1, 30))]
        lines.insert(rng.randint(0, len(lines)), ORDER)
        timed_lines = [line % rng.randint(1, 40) if b"%d" in line else line for line in lines]
        text = rng.choice([b"", BOM]) + b"\n".join(timed_lines) + b"\n"
        (folder / f"{number}.jsonl").write_bytes(text)
        (folder / f"{number}.jsonl.gz").write_bytes(gzip.compress(text))
        count += 2 * sum(bool(line.strip()) for line in timed_lines)
    return folder, count


@pytest.mark.check
@pytest.mark.parametrize("command", COMMANDS[:-1])
def test_counts_over_many_files_add_up(files: tuple[Path, int], command: Callable[[Path], int]) -> None:
    folder, count = files
    assert command(folder) == count


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.usefixtures("spark")
@some("number", [4], [40])
def test_counts_on_spark_add_up(tmp_path: Path, number: int) -> None:
    folder, count = write_dirty_files(tmp_path, number)
    assert search_total(folder, None, engine=EngineName.SPARK) == count
    assert pattern_total(folder, EngineName.SPARK) == count


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.usefixtures("spark")
def test_counts_of_window_expressions_on_spark_add_up(tmp_path: Path) -> None:
    folder, count = write_dirty_files(tmp_path, 40)
    window = ExpressionWindow("open when cid > 7 close when cid < 8")
    assert search_total(folder, window, engine=EngineName.SPARK) == count


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.usefixtures("spark")
def test_counts_of_a_live_search_on_spark_add_up(files: tuple[Path, int]) -> None:
    folder, count = files
    for source in (f"replay:{folder}?speed=1e9", str(folder)):
        with running(request(source, on_error=OnError.SKIP)) as run:
            run.until(lambda run=run: metrics_total(run.watch.metrics()) >= count)  # type: ignore[misc]
            run.watch.control.stop()
            run.end()
        assert metrics_total(run.watch.metrics()) == count
