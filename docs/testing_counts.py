"""Counts the tests, and writes the table of `docs/testing.md`: `python -m docs.testing_counts`."""

from __future__ import annotations

import contextlib
import io
import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).parents[1]
PAGE: Final = Path(__file__).with_name("testing.md")
BEGIN: Final = "<!-- counts: python -m docs.testing_counts -->"
END: Final = "<!-- end of counts -->"

_MEMBERS: Final = (
    "schema",
    "windows",
    "purging",
    "mesh",
    "patterns",
    "bounds",
    "skws",
    "tui",
    "pyspark_skws",
)


def _name_contains(part: str) -> Callable[[pytest.Item], bool]:
    return lambda item: part in item.path.name


_KINDS: Final[dict[str, Callable[[pytest.Item], bool]]] = {
    "tests": lambda _: True,
    "of them in `make check`, not in `make test`": lambda item: item.get_closest_marker("check") is not None,
    "of them slow, in `make test-all` only": lambda item: item.get_closest_marker("slow") is not None,
    "of them on Spark": lambda item: item.get_closest_marker("spark") is not None,
    "properties of random input": lambda item: hasattr(getattr(item, "obj", None), "hypothesis"),
    "comparisons with an oracle": _name_contains("oracle"),
    "differentials": _name_contains("differential"),
    "golden scripts, each on each of its hosts": _name_contains("golden_scripts"),
    "tests of kills": _name_contains("killed"),
    "tests of full disks and damaged files": lambda item: bool(
        re.search("full_disk|damaged|durable", item.path.name)
    ),
}


def of_items(items: Iterable[pytest.Item]) -> dict[str, int]:
    """The counts of collected tests."""
    collected = list(items)
    return {name: sum(map(is_counted, collected)) for name, is_counted in _KINDS.items()}


def of_tree() -> dict[str, int]:
    """The counts of files and lines."""
    from tests.fuzz.languages import LANGUAGES  # noqa: PLC0415 - loads the whole product

    return {
        "golden scripts": sum(1 for _ in (ROOT / "tests" / "scripts").rglob("*.skws")),
        "grammars for fuzzing": len(LANGUAGES),
        "lines of tests": _lines(ROOT / "tests"),
        "lines of the product": sum(_lines(ROOT / member) for member in _MEMBERS),
    }


def _lines(folder: Path) -> int:
    return sum(len(path.read_text(encoding="utf-8").splitlines()) for path in folder.rglob("*.py"))


def shown(counts: dict[str, int]) -> str:
    """The table as Markdown, between its marks."""
    rows = [f"| {name} | {count:,} |" for name, count in counts.items()]
    return "\n".join([BEGIN, "", "| | |", "|---|---:|", *rows, "", END])


def read(page: str) -> dict[str, int]:
    """The table of a page; inverse of ``shown``."""
    table = page[page.index(BEGIN) : page.index(END)]
    return {
        name: int(count.replace(",", ""))
        for name, count in re.findall(r"^\| (.+) \| ([\d,]+) \|$", table, re.M)
    }


class _Collected:
    """A plugin that counts what pytest collects."""

    counts: dict[str, int]

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        self.counts = of_items(session.items)


def main() -> None:
    plugin = _Collected()
    with contextlib.redirect_stdout(io.StringIO()):
        if pytest.main(["--collect-only", "--quiet", str(ROOT / "tests")], plugins=[plugin]):
            raise SystemExit("the tests cannot be collected: run pytest --collect-only")
    page = PAGE.read_text(encoding="utf-8")
    start, end = page.index(BEGIN), page.index(END) + len(END)
    PAGE.write_text(page[:start] + shown(plugin.counts | of_tree()) + page[end:], encoding="utf-8")


if __name__ == "__main__":
    main()
