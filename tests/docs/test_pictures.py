"""The recording in the README: a small animated picture of the demo, and its recorder."""

from __future__ import annotations

import json
from pathlib import Path
from xml.etree import ElementTree

from docs.record_demo import COLUMNS, MOST_BYTES, PICTURE, Output, frames, picture, write_cast
from skws.cli.demo import DEMO_QUERIES

_SVG = "{http://www.w3.org/2000/svg}"
OUTPUTS = [
    Output(0.1, "\x1b[?2026h\x1b[1;31mred\x1b[0m <plain>"),
    Output(2.2, "\r\n\x1b[48;2;1;2;3mbehind\x1b[0m"),
    Output(4.1, "\x1b[2J"),
]


def test_the_recording_is_small_and_shows_the_queries() -> None:
    text = PICTURE.read_text(encoding="utf-8")
    assert len(text.encode()) <= MOST_BYTES
    root = ElementTree.fromstring(text)
    assert not list(root.iter(f"{_SVG}script"))
    shown = " ".join(part.text or "" for part in root.iter(f"{_SVG}tspan"))
    assert [query for query in DEMO_QUERIES if query.rpartition(": ")[2] not in shown] == []


def test_frames_follow_the_screen() -> None:
    shown = frames(OUTPUTS, every=1.0)
    assert [at for at, _ in shown] == [1.0, 3.0]
    first, second = (frame for _, frame in shown)
    red, plain = first[0]
    assert (red[1], red[2].bold, plain[0], plain[1].rstrip()) == ("red", True, 3, " <plain>")
    column, text, style = second[1][0]
    assert (column, text, style.paper) == (0, "behind", "#010203")
    root = ElementTree.fromstring(picture(shown))
    assert [rect.get("fill") for rect in root.iter(f"{_SVG}rect") if rect.get("y") == "-12"] == ["#010203"]
    assert {part.text for part in root.iter(f"{_SVG}tspan")} == {"red", "<plain>", "behind"}


def test_the_cast_is_one_that_players_read(tmp_path: Path) -> None:
    write_cast(OUTPUTS, tmp_path / "a.cast")
    head, *events = map(json.loads, (tmp_path / "a.cast").read_text().splitlines())
    assert (head["version"], head["width"]) == (2, COLUMNS)
    assert events == [[output.at, "o", output.text] for output in OUTPUTS]
