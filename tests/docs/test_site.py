"""The documentation builds as a site: its links are valid, and it loads nothing from other hosts."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

from docs.record_demo import COLUMNS, MOST_BYTES, PICTURE, Output, frames, picture, write_cast
from docs.testing_counts import PAGE, of_items, of_tree, read, shown
from skws.cli.demo import DEMO_QUERIES
from tests.places import ROOT

pytestmark = pytest.mark.check


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    # As in `make docs`: with --quiet, warnings would not be counted, and --strict would ignore them.
    process = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert process.returncode == 0, process.stderr
    return folder


def test_every_page_is_built_and_in_the_search_index(site: Path) -> None:
    locations = {
        entry["location"] for entry in json.loads((site / "search" / "search_index.json").read_text())["docs"]
    }
    pages = {path.parent.relative_to(site).as_posix() + "/" for path in site.rglob("index.html")} - {"./"}
    assert {"tutorial/", "schema/", "checkout/mesh/", "architecture/streaming/"} <= pages
    assert pages <= {location.partition("#")[0] for location in locations}


def test_pages_load_nothing_from_other_hosts(site: Path) -> None:
    pages = list(site.rglob("*.html"))
    assert len(pages) > 50
    foreign = re.compile(r"""<(?:script|img|link|iframe)\b[^>]*(?:src|href)=["']?(https?:)?//""")
    assert [page for page in pages if foreign.search(page.read_text(encoding="utf-8"))] == []


def test_the_api_page_has_signatures_and_docstrings(site: Path) -> None:
    text = re.sub(r"<[^>]+>", "", (site / "api" / "index.html").read_text(encoding="utf-8"))
    assert {"skws.library.search", "skws.spark.dataframe_search.search", "SchemaError"} <= set(
        re.findall(r"[\w.]+", text)
    )
    assert "Queries over a stream that is fed batch by batch." in text


_SVG = "{http://www.w3.org/2000/svg}"
OUTPUTS = [
    Output(0.1, "\x1b[?2026h\x1b[1;31mred\x1b[0m <plain>"),
    Output(2.2, "\r\n\x1b[48;2;1;2;3mbehind\x1b[0m"),
    Output(4.1, "\x1b[2J"),
]


def test_the_demo_recording_is_small_and_shows_its_queries() -> None:
    text = PICTURE.read_text(encoding="utf-8")
    assert len(text.encode()) <= MOST_BYTES
    root = ElementTree.fromstring(text)
    assert not list(root.iter(f"{_SVG}script"))
    screen_text = " ".join(part.text or "" for part in root.iter(f"{_SVG}tspan"))
    assert [query for query in DEMO_QUERIES if query.rpartition(": ")[2] not in screen_text] == []


def test_frames_show_the_screen_over_time() -> None:
    timed_frames = frames(OUTPUTS, every=1.0)
    assert [time for time, _ in timed_frames] == [1.0, 3.0]
    first, second = (frame for _, frame in timed_frames)
    red, plain = first[0]
    assert (red[1], red[2].bold, plain[0], plain[1].rstrip()) == ("red", True, 3, " <plain>")
    column, text, style = second[1][0]
    assert (column, text, style.paper) == (0, "behind", "#010203")
    root = ElementTree.fromstring(picture(timed_frames))
    assert [rect.get("fill") for rect in root.iter(f"{_SVG}rect") if rect.get("y") == "-12"] == ["#010203"]
    assert {part.text for part in root.iter(f"{_SVG}tspan")} == {"red", "<plain>", "behind"}


def test_the_cast_is_in_the_asciinema_format(tmp_path: Path) -> None:
    write_cast(OUTPUTS, tmp_path / "a.cast")
    head, *events = map(json.loads, (tmp_path / "a.cast").read_text().splitlines())
    assert (head["version"], head["width"]) == (2, COLUMNS)
    assert events == [[output.at, "o", output.text] for output in OUTPUTS]


@pytest.fixture(scope="module")
def table() -> dict[str, int]:
    return read(PAGE.read_text(encoding="utf-8"))


def test_the_testing_page_has_a_row_for_each_count(table: dict[str, int]) -> None:
    assert list(table) == [*of_items([]), *of_tree()]
    assert all(table.values())


def test_counts_on_the_testing_page_are_within_30_percent(table: dict[str, int]) -> None:
    """The tolerance saves running the command for each new test."""
    for name, count in of_tree().items():
        assert 0.7 * count <= table[name] <= 1.3 * count, name


def test_collected_tests_are_counted(request: pytest.FixtureRequest) -> None:
    counts = of_items([request.node, request.node])
    assert counts["tests"] == counts["of them in `make check`, not in `make test`"] == 2
    assert sum(counts.values()) == 4


def test_a_table_of_counts_is_read_back() -> None:
    assert read(shown({"tests": 12_345, "of them slow": 7})) == {"tests": 12_345, "of them slow": 7}
