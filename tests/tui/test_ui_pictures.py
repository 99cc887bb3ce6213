"""The pictures in the docs show the current screens, cell by cell."""

from __future__ import annotations

import pytest

from docs.pictures import IMAGES
from docs.ui_pictures import GUIDE, SCENES, SIZES, screen_picture
from skws_tui.themes import DARK, LIGHT
from tests.strategies import some


@pytest.mark.check
@pytest.mark.parametrize("name", GUIDE)
def test_each_picture_shows_the_current_screen(name: str) -> None:
    stored_svg = (IMAGES / f"{name}.svg").read_text(encoding="utf-8")
    assert stored_svg == screen_picture(name), "redraw it: python -m docs.pictures"


@pytest.mark.slow
@some("size, theme", [(SIZES[0], DARK)], [(SIZES[1], LIGHT)])
def test_every_screen_can_be_drawn_in_each_size_and_theme(size: tuple[int, int], theme: str) -> None:
    for name in SCENES.keys() - set(GUIDE):
        assert screen_picture(name, size, theme).startswith("<svg")
