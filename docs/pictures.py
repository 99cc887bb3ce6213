"""Draws the pictures of the terminal UI: `python -m docs.pictures`."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from docs.ui_pictures import draw_screens

IMAGES: Final = Path(__file__).with_name("images")


if __name__ == "__main__":
    IMAGES.mkdir(exist_ok=True)
    draw_screens(IMAGES)
