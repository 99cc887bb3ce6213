"""Streaming DataFrames are measured beside a search in process that finds as much."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.frames import in_process, on_spark, write


@pytest.mark.spark
def test_both_find_the_same(tmp_path: Path) -> None:
    assert write(tmp_path, 0.2, 2) == 14_400
    seconds, found = in_process(tmp_path)
    for form in ("relations", "records"):
        batches, on_two = on_spark(tmp_path, form, 2, 2)
        assert found == on_two > 0 < seconds
        assert len(batches) == 2
