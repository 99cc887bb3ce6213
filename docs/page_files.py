"""Writes the files on a page into a folder: `python -m docs.page_files docs/extending.md FOLDER`."""

from __future__ import annotations

import argparse
import re
from pathlib import Path
from typing import Final

_FILE: Final = re.compile(r"^```\w+ (\S+)\n(.*?)^```\n", re.M | re.S)


def files(page: Path) -> dict[str, str]:
    """The code blocks of a page that are files, by file name."""
    return dict(_FILE.findall(page.read_text(encoding="utf-8")))


def write_files(page: Path, folder: Path) -> None:
    """Write the files of a page into a folder, which is created if it is missing."""
    for name, text in files(page).items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("page", type=Path)
    parser.add_argument("folder", type=Path)
    arguments = parser.parse_args()
    write_files(arguments.page, arguments.folder)


if __name__ == "__main__":
    main()
