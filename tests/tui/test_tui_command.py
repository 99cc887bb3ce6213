"""The command line of the terminal UI."""

from __future__ import annotations

from pathlib import Path

import pytest

from skws.cli.demo import movie_files
from tests.commands import Skws

SCHEMA = str(movie_files()[0])


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        ((), 2, "needs a terminal"),
        (("--source", "a", "--replay", "b"), 2, "expected one of them"),
        (("--source", "-"), 2, "from which the terminal UI reads keys"),
        (("--engine", "local", "--master", "local[2]"), 2, "--master needs --engine spark"),
        (("--lateness", "soon"), 2, "expected a duration"),
        (("studio:x",), 2, "no relation or attribute 'studio'"),
        (("--source", SCHEMA, "--speed", "2"), 2, "--speed needs a source replay:PATH"),
        (("--source", "replay:x.jsonl?speed=3", "--speed", "1"), 2, "give only one of them"),
        (("--theme", "light"), 2, "expected one of skws-dark, skws-light, ansi-dark, "),
        (("--theme", "light"), 2, "did you mean 'skws-light'?"),
    ],
)
def test_invalid_arguments_are_rejected_before_the_app_starts(
    arguments: tuple[str, ...], code: int, message: str, skws: Skws
) -> None:
    outcome = skws("tui", "--schema", SCHEMA, *arguments)
    assert (outcome.code, outcome.out) == (code, "")
    assert message in outcome.err


def test_errors_in_the_schema_are_reported_with_their_lines(tmp_path: Path, skws: Skws) -> None:
    (tmp_path / "s.yaml").write_text("version: 1\nrelations: {a: {attributes: {x: txet}}}\n")
    outcome = skws("tui", "--schema", tmp_path / "s.yaml")
    assert (outcome.code, "s.yaml:2:" in outcome.err) == (3, True)
