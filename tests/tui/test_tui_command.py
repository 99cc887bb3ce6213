"""The command line of the terminal UI."""

from __future__ import annotations

from pathlib import Path

import pytest

from skws.cli.main import run
from skws.movie_stream import movie_files

SCHEMA = str(movie_files()[0])


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        ((), 2, "needs a terminal"),
        (("--source", "a", "--replay", "b"), 2, "mean the same"),
        (("--source", "-"), 2, "reads keys from standard input"),
        (("--master", "local[2]"), 2, "--engine spark"),
        (("--serve", "--host", "0.0.0.0"), 2, "--open-to-others"),
        (("--export-to", "."), 2, "--serve"),
        (("--serve", "--export-to", "no/such/folder"), 2, "expected a folder that is there"),
        (("--lateness", "soon"), 2, "lateness"),
        (("studio:x",), 2, "studio"),
    ],
)
def test_what_makes_no_sense_is_refused_before_anything_is_drawn(
    arguments: tuple[str, ...], code: int, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["tui", "--schema", SCHEMA, *arguments]) == code
    shown = capsys.readouterr()
    assert message in shown.err
    assert shown.out == ""


def test_a_broken_schema_is_told_with_its_lines(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "s.yaml").write_text("version: 1\nrelations: {a: {attributes: {x: txet}}}\n")
    assert run(["tui", "--schema", str(tmp_path / "s.yaml")]) == 3
    assert "s.yaml:2:" in capsys.readouterr().err
