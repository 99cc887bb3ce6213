"""The picture in the README shows the current output of skws."""

from __future__ import annotations

from docs.pictures import DEMO, demo_picture


def test_the_picture_is_what_the_demo_prints() -> None:
    assert DEMO.read_text(encoding="utf-8") == demo_picture(), "draw it anew: python -m docs.pictures"
