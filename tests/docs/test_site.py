"""The documentation is a site: its links hold, it is searchable, and it loads nothing from other hosts."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.places import ROOT


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(folder)]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return folder


def test_every_page_is_there_and_found_by_the_search(site: Path) -> None:
    places = {
        entry["location"] for entry in json.loads((site / "search" / "search_index.json").read_text())["docs"]
    }
    pages = {path.parent.relative_to(site).as_posix() + "/" for path in site.rglob("index.html")} - {"./"}
    assert {"tutorial/", "schema/", "checkout/mesh/", "architecture/streaming/"} <= pages
    assert pages <= {place.partition("#")[0] for place in places}


def test_pages_load_nothing_from_other_hosts(site: Path) -> None:
    pages = list(site.rglob("*.html"))
    assert len(pages) > 50
    foreign = re.compile(r"""<(?:script|img|link|iframe)\b[^>]*(?:src|href)=["']?(https?:)?//""")
    assert [page for page in pages if foreign.search(page.read_text(encoding="utf-8"))] == []


def test_the_api_page_has_signatures_and_docstrings(site: Path) -> None:
    text = re.sub(r"<[^>]+>", "", (site / "api" / "index.html").read_text(encoding="utf-8"))
    assert {"skws.library.search", "skws.spark.library.search", "SchemaError"} <= set(
        re.findall(r"[\w.]+", text)
    )
    assert "Queries over a stream that is fed batch by batch." in text
