"""The repository holds no path of one machine, no foreign data and no large file."""

from __future__ import annotations

import re
import subprocess
from collections import Counter
from functools import cache
from pathlib import Path

import pytest

from tests.places import ROOT

DATA = {".csv", ".parquet", ".xml", ".jsonl", ".json", ".zip", ".gz", ".7z"}
OWN_DATA = {"examples/movies/replay.jsonl", "examples/movies/demo/announced.jsonl"}
MACHINE = re.compile(r"(?<![\w.\-~$}])/(?:work|root)\b|\b(?:issue|task|ticket) #?\d", re.I)


@cache
def tracked() -> tuple[str, ...]:
    if not (ROOT / ".git").exists():
        pytest.skip("not a git checkout")
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True)
    return tuple(name for name in listed.stdout.split("\0") if name and (ROOT / name).is_file())


def test_no_file_names_a_path_of_one_machine_or_a_ticket() -> None:
    found = [
        name
        for name in tracked()
        if MACHINE.search((ROOT / name).read_text(encoding="utf-8", errors="replace"))
    ]
    assert found == []


def test_the_only_data_is_the_projects_own() -> None:
    assert {name for name in tracked() if Path(name).suffix in DATA} == OWN_DATA


def test_no_file_is_large() -> None:
    assert [name for name in tracked() if (ROOT / name).stat().st_size > 1_000_000] == []


def test_no_two_files_of_tests_have_one_name() -> None:
    """Pytest collects neither: folders of tests are no packages."""
    names = Counter(Path(name).name for name in tracked() if re.search(r"^tests/.*/test_\w+\.py$", name))
    assert names.total() > 100
    assert [name for name, count in names.items() if count > 1] == []


def test_every_page_is_in_the_list_of_pages() -> None:
    docs = ROOT / "docs"
    listed = (docs / "README.md").read_text()
    pages = [page.relative_to(docs) for page in docs.rglob("*.md") if page != docs / "README.md"]
    assert pages
    assert [page for page in pages if f"({page.as_posix()})" not in listed] == []


def test_files_that_the_glossary_names_are_there() -> None:
    named = re.findall(r"`([\w/]+\.py)`", (ROOT / "docs" / "glossary.md").read_text())
    assert named
    assert [name for name in named if not (ROOT / name).is_file()] == []


def test_files_that_pages_on_the_architecture_name_are_there() -> None:
    pages = [name for name in tracked() if name.startswith("docs/architecture/") or _is_of_a_package(name)]
    ends = {
        "/" + "/".join(Path(name).parts[at:]) for name in tracked() for at in range(len(Path(name).parts))
    }
    named = {(page, name) for page in pages for name in _NAMED.findall((ROOT / page).read_text())}
    assert len(named) > 100
    assert sorted((page, name) for page, name in named if f"/{name}" not in ends) == []


_NAMED = re.compile(r"`([\w/]+\.py)`")


def _is_of_a_package(name: str) -> bool:
    return name.endswith("README.md") and name.count("/") == 1 and not name.startswith(("docs/", "bench/"))
