"""The repository contains no path of one machine, no third-party data and no large file."""

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
    listing = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True)
    return tuple(name for name in listing.stdout.split("\0") if name and (ROOT / name).is_file())


def test_no_file_mentions_a_machine_path_or_a_ticket() -> None:
    offenders = [
        name
        for name in tracked()
        if MACHINE.search((ROOT / name).read_text(encoding="utf-8", errors="replace"))
    ]
    assert offenders == []


def test_the_repository_contains_only_its_own_data() -> None:
    assert {name for name in tracked() if Path(name).suffix in DATA} == OWN_DATA


def test_no_file_exceeds_one_megabyte() -> None:
    assert [name for name in tracked() if (ROOT / name).stat().st_size > 1_000_000] == []


def test_names_of_test_files_are_unique() -> None:
    """Pytest can collect neither, since folders of tests are not packages."""
    names = Counter(Path(name).name for name in tracked() if re.search(r"^tests/.*/test_\w+\.py$", name))
    assert names.total() > 100
    assert [name for name, count in names.items() if count > 1] == []


def test_docs_readme_lists_every_page() -> None:
    docs = ROOT / "docs"
    page_list = (docs / "README.md").read_text()
    pages = [page.relative_to(docs) for page in docs.rglob("*.md") if page != docs / "README.md"]
    assert pages
    assert [page for page in pages if f"({page.as_posix()})" not in page_list] == []


def test_referenced_files_exist() -> None:
    """In pages, docstrings and comments, by their path or the end of their path."""
    path_ends = {
        "/".join(Path(name).parts[start:]) for name in tracked() for start in range(len(Path(name).parts))
    }
    sources = [name for name in tracked() if name.endswith((".md", ".py")) and not name.startswith("tests/")]
    references = {(name, file) for name in sources for file in REFERENCE.findall((ROOT / name).read_text())}
    assert len(references) > 500
    assert sorted((name, file) for name, file in references if file not in path_ends | CREATED) == []


REFERENCE = re.compile(r"(?<![\w/.\-*<{}$@:~+])((?:[\w-]+/)*[\w-]+\.(?:py|md))(?![\w/*(-])")
CREATED = {
    # created by a reader
    *("export.py", "follow.py", "mail.py", "slack.py"),
    *("skws_fresh/__init__.py", "skws_fresh/kind.py", "skws_fresh/sink.py", "skws_fresh/source.py"),
    *("build/fresh/test_fresh.py", "build/fresh/skws_fresh/kind.py"),
    # files of other repositories
    *("docs/index.md", "parse/lexer.py"),
}
