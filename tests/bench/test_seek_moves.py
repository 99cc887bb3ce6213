"""The measurement of moves takes as many as it is asked for."""

from __future__ import annotations

import random
from pathlib import Path

from bench.seek import lines, moves


def test_each_move_is_measured(tmp_path: Path) -> None:
    rng = random.Random(1)
    path = tmp_path / "replay.jsonl"
    path.write_text("".join(lines(2_000, rng)), encoding="utf-8")
    found = list(moves(path, 2_000, 3, rng))
    assert len(found) == 3
    assert all(waited > 0 and worked >= 0 for waited, worked in found)
