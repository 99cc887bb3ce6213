"""Runs the cases of live joins that other systems get wrong, on a PostgreSQL server."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from examples.joins.play import Play, WrongError, cases
from examples.joins.play import steps as steps_of_case
from tests.docs.blocks import steps
from tests.docs.shell import Shell, with_places
from tests.forked import forked_skws
from tests.places import ROOT
from tests.postgres import Database, Server
from tests.strategies import some

pytestmark = pytest.mark.check

PAGE = ROOT / "docs" / "joins-that-stay-right.md"


CASES = cases(PAGE)
FEW = ("moved-out", "both-sides", "another-key", "truncate", "restart", "renamed")
"""One case of each kind of change; the others are slow tests."""


def play(database: Database, folder: Path, report: Callable[[str], None]) -> Play:
    return Play(database.uri(), folder, report, program=forked_skws())


@some("name", FEW, [name for name in CASES if name not in FEW])
def test_each_case_of_the_joins_page_gives_its_events(name: str, database: Database, tmp_path: Path) -> None:
    lines: list[str] = []
    play(database, tmp_path, lines.append).run(CASES[name])
    expected = re.findall(r"^-- ([+~-]) ", CASES[name], re.M)
    assert sorted(line[5] for line in lines if re.match("--   [+~-] ", line)) == sorted(expected)


@some(
    "right, wrong",
    [("-- nothing\n", "-- + a kettle, The lid leaks.\n")],
    [("-- - travel", "-- + travel"), ("leaks'\n", "lid'\n")],
)
def test_a_deviation_from_the_expected_events_is_detected(
    right: str, wrong: str, database: Database, tmp_path: Path
) -> None:
    """A different operation, a missing event, a different join in SQL."""
    text = CASES["moved-out"]
    assert right in text
    with pytest.raises(WrongError):
        play(database, tmp_path, lambda _: None).run(text.replace(right, wrong, 1))


def test_the_command_of_the_joins_page_runs(tmp_path: Path, postgres_server: Server) -> None:
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    shell = Shell(tmp_path)
    try:
        (step,) = steps(PAGE, __file__, tmp_path)
        output = shell.run(
            with_places(step, {"postgresql://localhost/postgres": postgres_server.uri("postgres")})
        )
    finally:
        shell.close()
    assert output.startswith("-- moved-out\n")
    assert output.endswith("-- as expected\n\n")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("-- + ada", "before the first event"),
        ("-- nothing", "before the first event"),
        ("-- added", "expected an event"),
    ],
)
def test_an_invalid_line_of_a_case_is_rejected(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        steps_of_case(f"{text}\n")


def test_the_joins_page_has_cases() -> None:
    assert len(CASES) > 10
    assert all(re.search(r"^-- [+~-] ", text, re.M) for text in CASES.values())
