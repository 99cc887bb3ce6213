"""The first change in CONTRIBUTING.md: write a package, run it and fix it."""

from __future__ import annotations

import tomllib
from pathlib import Path

import orjson
import pytest

from docs.page_files import files
from tests.docs.blocks import steps
from tests.docs.shell import Shell, with_places
from tests.places import ROOT
from tests.queries.counted import installed

pytestmark = pytest.mark.check

PAGE = ROOT / "CONTRIBUTING.md"
KIND = "build/fresh/skws_fresh/kind.py"
INSTALL = "python -m pip install --quiet --no-deps --editable build/fresh"


def test_the_first_change_of_contributing_can_be_followed(tmp_path: Path) -> None:
    """Writes the metadata that an installer would write, so that this environment does not change."""
    package = tmp_path / "build" / "fresh"
    for folder in ("docs", "examples"):
        (tmp_path / folder).symlink_to(ROOT / folder)
    run, test = steps(PAGE, __file__, tmp_path)
    assert INSTALL in run.commands
    project = tomllib.loads(files(ROOT / "docs" / "extending.md")["pyproject.toml"])["project"]
    installed(package, "skws_fresh", project["entry-points"])
    shell = Shell(tmp_path, PYTHONPATH=str(package))
    try:
        output = shell.run(with_places(run, {INSTALL: "true"}), notes=True)
        results = [orjson.loads(line) for line in output.splitlines() if line.startswith('{"op":')]
        assert {result["name"] for result in results} == {"duo", "actors"}
        report = shell.run(with_places(test, {"test_fresh.py": "test_fresh.py || true"}))
        assert "1 failed" in report
        apply_difference(tmp_path / KIND, files(PAGE)[KIND])
        assert "1 passed" in shell.run(test)
    finally:
        shell.close()


def apply_difference(file: Path, difference: str) -> None:
    """Applies a diff without line numbers to a file."""
    before, after = (
        "".join(f"{line[1:]}\n" for line in difference.splitlines() if line[0] in (" ", sign))
        for sign in "-+"
    )
    text = file.read_text()
    assert text.count(before) == 1
    file.write_text(text.replace(before, after))
