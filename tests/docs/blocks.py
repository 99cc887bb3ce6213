"""The fenced blocks of a Markdown page that the tests run, and the output shown with them."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from docs.page_files import write_files
from tests.places import ROOT

_FOLDERS: Final = ("*.md", "[!.]*/README.md", "docs/**/*.md", "examples/*/*.md")
PAGES: Final = tuple(dict.fromkeys(page for folder in _FOLDERS for page in sorted(ROOT.glob(folder))))
_BLOCK: Final = re.compile(
    r"^(?:<!-- (?:not run: (?P<why>.*?)|run by (?P<test>\S+)|exit code (?P<code>\d)) -->\n)?"
    r"```(?P<kind>sh|console)\n(?P<text>.*?)^```\n(?:\n```\n(?P<output>.*?)^```\n)?",
    re.M | re.S,
)
# A bar or an arrow in quotes is part of the command.
_COMMAND: Final = re.compile(r"""(?:"[^"]*"|'[^']*'|[^"'])*?(?= [|>] |$)""")
FENCE: Final = re.compile(r"^(?P<mark>```+)(?P<kind>[^\n]*)\n(?P<text>.*?)^(?P=mark)\n", re.M | re.S)


@dataclass(frozen=True, slots=True)
class Block:
    """Commands to run in sequence; ``...`` in their output matches anything.

    ``test``: the test file that runs them, if they need more than a folder. ``why_not``: why no test does.
    ``code``: the exit code of the last command.
    """

    commands: tuple[str, ...]
    output: str | None
    why_not: str | None
    test: str | None
    code: int


def blocks(page: Path) -> Iterator[Block]:
    for match in _BLOCK.finditer(page.read_text(encoding="utf-8")):
        text, output = match["text"].replace("\\\n", " "), match["output"]
        lines = text.splitlines()
        if match["kind"] == "console":
            output = "".join(f"{line}\n" for line in lines if not line.startswith("$ "))
            lines = [line[2:] for line in lines if line.startswith("$ ")]
        yield Block(tuple(lines), output, match["why"], match["test"], int(match["code"] or 0))


def steps(page: Path, test: str, folder: Path) -> list[Block]:
    """The blocks of a page that ``test`` runs; also writes the page's files to ``folder``."""
    write_files(page, folder)
    return [block for block in blocks(page) if block.test and ROOT / block.test == Path(test)]


def words(command: str) -> list[str]:
    """The words of a command, up to a redirection or a pipe."""
    return shlex.split(_COMMAND.match(command)[0], comments=True)  # type: ignore[index]  # matches any text


def matches(expected: str, output: str) -> bool:
    """True if the shown lines are the whole output; ``...`` matches anything."""
    pattern = re.escape(expected).replace(re.escape("..."), ".*")
    return re.fullmatch(pattern.rstrip("\\\n") + r"\s*", output, re.S) is not None
