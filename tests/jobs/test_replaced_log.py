"""The log of tuples that never expire is replaced by the live ones, however large its micro-batches are.

So is a log of tuples that expire late, if it is mostly of bad records.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from skws.jobs import journal, local
from skws.spec.enums import OnError
from skws_windows.window import MICROSECOND, TimeWindow, Unbounded
from tests.jobs.watching import QUERY, Collected, append, customer, opened, order, request, steps

ROWS = 40
BATCHES = 24
MAX_GROWTH = 5  # times the size of the log after the first commit


@pytest.mark.parametrize("per_commit", [1, 2, 3])
@pytest.mark.parametrize("segment_bytes", [100, 3_000, 1 << 20])
def test_a_log_of_large_batches_is_bounded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, per_commit: int, segment_bytes: int
) -> None:
    """A segment has room for no batch, for one, or for all; commits follow each batch or several."""
    monkeypatch.setattr(journal, "SEGMENT_BYTES", segment_bytes)
    monkeypatch.setattr(local, "TAIL_BYTES", 1_000)
    source, folder = tmp_path / "in.jsonl", tmp_path / "kept"
    source.touch()
    job = request(source, window=Unbounded(), checkpoint=folder)
    watch = opened(job, Collected(every=3_600.0))
    sizes = []  # after each commit
    for batch in range(BATCHES):
        append(source, *(customer(batch, cid, f"ada {batch}") for cid in range(ROWS)))
        steps(watch)
        if batch % per_commit == per_commit - 1:
            watch.commit()
            sizes.append(sum(path.stat().st_size for path in (folder / "journal").iterdir()))
    watch.close()
    assert max(sizes) <= MAX_GROWTH * sizes[0]
    second_sink = Collected()
    watch = opened(job, second_sink)
    append(source, order(BATCHES, 3))
    steps(watch)
    watch.close()
    assert [result.tuples[0].row["name"] for result in second_sink.results] == [f"ada {BATCHES - 1}"]


@pytest.mark.parametrize("restarts", [False, True])
def test_a_log_does_not_grow_with_bad_records(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, restarts: bool
) -> None:
    monkeypatch.setattr(journal, "SEGMENT_BYTES", 2_000)
    monkeypatch.setattr(local, "TAIL_BYTES", 2_000)
    source, folder, dead_letters = tmp_path / "in.jsonl", tmp_path / "kept", tmp_path / "letters.jsonl"
    append(source, customer(1, 7), order(2, 7))
    job = request(
        source,
        window=TimeWindow(1_000_000 * MICROSECOND),
        checkpoint=folder,
        on_error=OnError.DEAD_LETTER,
        dead_letters=dead_letters,
    )
    watch, sink = opened(job, Collected(every=3_600.0)), Collected(every=3_600.0)
    sizes = []  # after each commit
    for _ in range(30):
        with source.open("a") as file:
            file.write("nonsense\n" * 20)
        steps(watch)
        watch.commit()
        sizes.append(sum(path.stat().st_size for path in (folder / "journal").iterdir()))
        if restarts:
            watch.close()
            watch = opened(job, sink)
    append(source, order(3, 7))
    steps(watch)
    watch.close()
    assert max(sizes) < 20_000
    assert len(dead_letters.read_bytes().splitlines()) == 600
    assert sink.told() == [("+", QUERY)] * restarts
