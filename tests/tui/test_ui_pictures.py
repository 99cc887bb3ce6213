"""The pictures in the docs show the current screens, cell by cell."""

from __future__ import annotations

import pytest

from docs.pictures import IMAGES
from docs.ui_pictures import SCENES, screen_picture


@pytest.mark.parametrize("name", SCENES)
def test_a_picture_is_what_the_screen_looks_like(name: str) -> None:
    kept = (IMAGES / f"{name}.svg").read_text(encoding="utf-8")
    assert kept == screen_picture(name), "draw it anew: python -m docs.pictures"
