"""The log of tuples that never expire is replaced by the live ones, however large its micro-batches are."""

from __future__ import annotations

from pathlib import Path

import pytest

from skws.jobs import journal, local
from skws_windows.window import Unbounded
from tests.jobs.watching import Collected, append, customer, opened, order, request, steps

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
