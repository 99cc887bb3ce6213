"""The first change that CONTRIBUTING.md walks through: it writes a package, runs it and corrects it."""

from __future__ import annotations

import tomllib
from pathlib import Path

import orjson

from docs.page_files import files
from tests.docs.blocks import steps
from tests.docs.shell import Shell, located
from tests.places import ROOT
from tests.queries.counted import installed

PAGE = ROOT / "CONTRIBUTING.md"
KIND = "build/fresh/skws_fresh/kind.py"
INSTALL = "python -m pip install --quiet --no-deps --editable build/fresh"


def test_a_package_is_written_run_and_corrected(tmp_path: Path) -> None:
    """Its metadata is written as an installer would: this environment stays as it is."""
    package = tmp_path / "build" / "fresh"
    for folder in ("docs", "examples"):
        (tmp_path / folder).symlink_to(ROOT / folder)
    run, test = steps(PAGE, __file__, tmp_path)
    assert INSTALL in run.commands
    project = tomllib.loads(files(ROOT / "docs" / "extending.md")["pyproject.toml"])["project"]
    installed(package, "skws_fresh", project["entry-points"])
    shell = Shell(tmp_path, PYTHONPATH=str(package))
    try:
        output = shell.run(located(run, {INSTALL: "true"}), notes=True)
        results = [orjson.loads(line) for line in output.splitlines() if line.startswith('{"op":')]
        assert {result["name"] for result in results} == {"duo", "actors"}
        report = shell.run(located(test, {"test_fresh.py": "test_fresh.py || true"}))
        assert "1 failed" in report
        correct(tmp_path / KIND, files(PAGE)[KIND])
        assert "1 passed" in shell.run(test)
    finally:
        shell.close()


def correct(file: Path, difference: str) -> None:
    """Change a file as the lines of a difference say."""
    before, after = (
        "".join(f"{line[1:]}\n" for line in difference.splitlines() if line[0] in (" ", sign))
        for sign in "-+"
    )
    text = file.read_text()
    assert text.count(before) == 1
    file.write_text(text.replace(before, after))
