"""``skws bench floor`` runs both programs over the same stream and reports on these runs."""

from __future__ import annotations

import re

import pytest

from bench.floor import FORMATS, run
from skws.cli.main import run as skws


@pytest.mark.parametrize("file_format", FORMATS)
def test_engine_and_floor_over_one_stream(file_format: str) -> None:
    told: list[str] = []
    report = run(0.25, file_format, 2, 60, told.append)
    assert report.tuples == 20 * 900
    assert len(told) == 2
    assert report.results > 10
    assert report.floor_seconds > 0
    assert report.ratio == report.engine_seconds / report.floor_seconds
    assert 0 < report.fastest_ratio < 100
    assert report.peak_bytes > 1 << 20


def test_the_command_tells_medians_and_the_fastest(capsys: pytest.CaptureFixture[str]) -> None:
    assert skws(["bench", "floor", "--hours", "0.01", "--runs", "1"]) == 0
    shown = capsys.readouterr().out
    ((median, fastest),) = re.findall(r"engine / floor +([0-9.]+) \(of the fastest runs ([0-9.]+)\)", shown)
    assert median == fastest, "of one run they are the same"
