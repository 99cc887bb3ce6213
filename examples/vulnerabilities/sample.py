"""Generates a small synthetic Debian system from a seed: packages with names of syllables, and changelogs."""

from __future__ import annotations

import gzip
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from pathlib import Path
from random import Random
from typing import Final

from examples.vulnerabilities.debian import CHANGELOG, DOCUMENTS, LISTS, STATUS

_SYLLABLES: Final = [first + vowel for first in "bdfgklmnprstvz" for vowel in "aeiou"]
_PEOPLE: Final = ("Ada Byron", "Grace Murray", "Kit van Dam")
_FLAWS: Final = ("use-after-free", "heap buffer overflow", "out-of-bounds read", "NULL pointer dereference")
_PLACES: Final = (
    "parser",
    "decoder",
    "resolver",
    "scheduler",
    "renderer",
    "serializer",
    "handshake",
    "cache",
)
_TASKS: Final = (
    "Rebuild with the new compiler",
    "Refresh patches",
    "Update translations",
    "Run the tests again",
)
_FIRST: Final = datetime(2015, 1, 5, 9, tzinfo=UTC)


def write(root: Path, *, packages: int = 40, uploads: int = 25, seed: int = 1) -> None:
    """Write dpkg's status, a list of apt, and changelogs below a folder.

    ``packages``: the number of source packages, with one to three binary packages each. ``uploads``: the most
    entries of a changelog.
    """
    random = Random(seed)  # noqa: S311 - names, not secrets
    names: list[str] = []
    status: list[str] = []
    lists: list[str] = []
    while len(names) < packages:
        source = "".join(random.choices(_SYLLABLES, k=3))
        if source in names:
            continue
        entries = [_entry(source, number, random) for number in range(random.randint(1, uploads))]
        for binary in (source, f"lib{source}", f"{source}-data")[: random.randint(1, 3)]:
            version, newer = f"1.{len(entries) - 1}-1", f"1.{len(entries)}-1"
            needs = ", ".join(
                f"{dependency} (>= 1.0-1)" for dependency in random.sample(names, min(len(names), 2))
            )
            fields = _fields(binary, source, random.choice(("libs", "net", "utils")), needs)
            status.append(f"{fields}Status: install ok installed\nVersion: {version}\n")
            lists.append(f"{fields}Version: {newer if random.random() < 0.3 else version}\n")
            folder = root / DOCUMENTS / binary
            folder.mkdir(parents=True)
            # Without the time of writing, so that a seed always gives the same file.
            text = "\n".join(reversed(entries))
            (folder / CHANGELOG).write_bytes(gzip.compress(text.encode(), mtime=0))
        names.append(source)
    for path, blocks in ((STATUS, status), (LISTS / "made.up_main_Packages", lists)):
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text("\n".join(blocks), "utf-8")


def _fields(binary: str, source: str, section: str, needs: str) -> str:
    text = f"Package: {binary}\nSection: {section}\nMaintainer: {_PEOPLE[0]} <ada@example.org>\n"
    text += f"Source: {source}\n" if binary != source else ""
    return text + (f"Depends: {needs}\n" if needs else "")


def _entry(source: str, number: int, random: Random) -> str:
    time = _FIRST + timedelta(days=140 * number + random.random() * 100)
    flaw, place = random.choice(_FLAWS), random.choice(_PLACES)
    name = f"CVE-{time.year}-{random.randint(1000, 9999)}"
    lines = [f"{source} (1.{number}-1) unstable; urgency={random.choice(('low', 'medium', 'high'))}", ""]
    if random.random() < 0.2:
        lines += [f"  [ {random.choice(_PEOPLE)} ]"]
    if random.random() < 0.5:
        part = "".join(random.choices(_SYLLABLES, k=3))
        lines += [
            f"  * {name}: {flaw} in the {part} {place}",
            f"    (Closes: #{random.randint(100_000, 999_999)})",
        ]
    lines += [f"  * {random.choice(_TASKS)} of the {place}. Thanks to Jo Poe <jo@example.org>.", ""]
    person = random.choice(_PEOPLE)
    lines += [f" -- {person} <{person.split()[0].lower()}@example.org>  {format_datetime(time)}", ""]
    return "\n".join(lines)
