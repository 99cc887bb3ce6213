"""Asks ``zgrep`` for what a sample of saved searches should have found."""

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
"""Headings and signatures, which are names of people."""


class Difference(NamedTuple):
    """Versions whose entry only one of both has found."""

    search: str
    missing: frozenset[str]
    extra: frozenset[str]


def chosen(machine: Machine, saved: list[Saved], number: int, random: Random) -> list[Saved]:
    """Searches for a single word and a package whose changelog is there; the word is in no name of people."""
    fit = [
        one
        for one in saved
        if one.kind != "dependency"
        and one.package in machine.logs
        and one.words.isalpha()
        and one.words not in machine.removed
    ]
    return random.sample(fit, min(number, len(fit)))


def compare(machine: Machine, sample: list[Saved], found: dict[str, set[str]]) -> Iterator[Difference]:
    """Where they differ. ``found``: by search, the versions of the package's own changes that it found.

    A changelog may lack entries of its source that another one has, and entries without a date are not read.
    """
    for one in sample:
        path, versions = machine.logs[one.package]
        expected = _versions(path, one.words) & versions
        told = found.get(one.text, set()) & versions
        if expected != told:
            yield Difference(one.text, frozenset(expected - told), frozenset(told - expected))


def _versions(path: Path, word: str) -> set[str]:
    """The versions whose entries have a line with the word."""
    letters = "[-_']?".join(word)  # a compound is found with and without what joins it, but no possessive
    letters = re.sub(r"\[-_'\]\?s$", "[-_]?s", letters)
    form = rf"^[^ ]+ \(|(^|[^[:alnum:]]){letters}([^[:alnum:]]|$)"
    command = ["zgrep", "-iE", form, str(path)]
    done = subprocess.run(command, capture_output=True, check=False)  # noqa: S603 - words are letters
    if done.returncode > 1:
        raise SystemExit(f"zgrep: {done.stderr.decode('utf-8', 'replace').strip()}")
    version, found = "", set()
    for line in done.stdout.decode("utf-8", "replace").splitlines():
        if header := HEADER.match(line):
            version = header["version"]
        elif line.startswith(" ") and not _NOT_TEXT.match(line):
            found.add(version)
    return found
