"""Compares the results of a sample of saved searches with those of ``zgrep``."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Final, NamedTuple

from examples.vulnerabilities.debian import HEADER, Machine
from examples.vulnerabilities.searches import Saved

_NOT_TEXT: Final = re.compile(r"\s*\[ .+ \]\s*$| -- ")
"""Headings and signatures, which contain names of people."""


class Difference(NamedTuple):
    """Versions that only one of the two has found: ``missing`` only zgrep, ``extra`` only skws."""

    search: str
    missing: frozenset[str]
    extra: frozenset[str]


def chosen(machine: Machine, saved: list[Saved], number: int, random: Random) -> list[Saved]:
    """A sample of the searches for one word, in no removed name, and a package with a changelog."""
    candidates = [
        search
        for search in saved
        if search.kind != "dependency"
        and search.package in machine.logs
        and search.words.isalpha()
        and search.words not in machine.removed
    ]
    return random.sample(candidates, min(number, len(candidates)))


def compare(machine: Machine, sample: list[Saved], found: dict[str, set[str]]) -> Iterator[Difference]:
    """The searches with different results. ``found``: the versions of the package's own changes, by search.

    Only versions in the package's changelog are compared: another package of its source may have more.
    """
    for search in sample:
        path, versions = machine.logs[search.package]
        expected = _versions(path, search.words) & versions
        found_versions = found.get(search.text, set()) & versions
        if expected != found_versions:
            yield Difference(
                search.text, frozenset(expected - found_versions), frozenset(found_versions - expected)
            )


def _versions(path: Path, word: str) -> set[str]:
    """The versions whose entries have a line with the word."""
    letters = "[-_']?".join(
        word
    )  # words match compounds with or without a sign between letters, but no possessives
    letters = re.sub(r"\[-_'\]\?s$", "[-_]?s", letters)
    form = rf"^[^ ]+ \(|(^|[^[:alnum:]]){letters}([^[:alnum:]]|$)"
    command = ["zgrep", "-iE", form, str(path)]
    process = subprocess.run(command, capture_output=True, check=False)  # noqa: S603 - words are letters
    if process.returncode > 1:
        raise SystemExit(f"zgrep: {process.stderr.decode('utf-8', 'replace').strip()}")
    version, versions = "", set()
    for line in process.stdout.decode("utf-8", "replace").splitlines():
        if header := HEADER.match(line):
            version = header["version"]
        elif line.startswith(" ") and not _NOT_TEXT.match(line):
            versions.add(version)
    return versions
