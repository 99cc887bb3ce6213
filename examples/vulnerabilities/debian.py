"""Reads the data of a Debian system about its packages: dpkg's status, apt's lists, and changelogs.

The records conform to ``schema.yaml``. Names and addresses of people are removed.
"""

from __future__ import annotations

import gzip
import lzma
import re
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import Any, Final, NamedTuple

from examples.vulnerabilities.people import People

STATUS: Final = Path("var/lib/dpkg/status")
LISTS: Final = Path("var/lib/apt/lists")
DOCUMENTS: Final = Path("usr/share/doc")
CHANGELOG: Final = "changelog.Debian.gz"
HEADER: Final = re.compile(r"^(?P<source>\S+) \((?P<version>[^)\s]+)\)[^;]*;(?P<rest>.*)$")
_SIGNATURE: Final = re.compile(r"^ -- (?P<name>.*?)  ?(?P<date>\w{3}, +\d.*)$")
_HEADING: Final = re.compile(r"^\s*\[ (?P<name>.+) \]\s*$")
_URGENCY: Final = re.compile(r"urgency=(\w+)", re.IGNORECASE)
_LOWER: Final = re.compile(r"\b[^\W\dA-Z_]+\b")
_NAMED: Final = re.compile(r"^[\w.+-]+")
_PEOPLE: Final = ("Maintainer", "Original-Maintainer", "Uploaders")

Row = dict[str, Any]


class Entry(NamedTuple):
    """An entry of a changelog: an upload of a source package. ``text`` has no names of people."""

    source: str
    version: str
    urgency: str
    time: datetime
    text: str

    def row(self) -> Row:
        """The entry as a row of the relation ``change``."""
        return self._asdict()


@dataclass(slots=True)
class Machine:
    """The data of a machine. ``entries`` are in order of time.

    ``removed``: the words of removed names. ``notes``: the files that were not read, and why.
    ``logs``: the changelog of each package, and the versions in it.
    """

    packages: list[Row] = field(default_factory=list)
    depends: list[Row] = field(default_factory=list)
    entries: list[Entry] = field(default_factory=list)
    removed: set[str] = field(default_factory=set)
    notes: list[str] = field(default_factory=list)
    logs: dict[str, tuple[Path, frozenset[str]]] = field(default_factory=dict)


def read(root: Path) -> Machine:
    """Read the Debian system below a folder. Raises FileNotFoundError if dpkg's status is missing."""
    machine = Machine()
    installed = [
        paragraph for paragraph in paragraphs((root / STATUS).read_text("utf-8")) if _is_installed(paragraph)
    ]
    available, maintainers = _available(
        root / LISTS, {paragraph["Package"] for paragraph in installed}, machine.notes
    )
    for paragraph in installed:
        _read_package(paragraph, available, machine)
    sources = {row["name"]: row["source"] for row in machine.packages}
    entries_by_source = dict(_changelogs(root / DOCUMENTS, sources, machine))
    raw_entries = [entry for entries in entries_by_source.values() for entry in entries]
    people = {name for entry in raw_entries for name in entry.people}
    people |= {name for paragraph in (*installed, *maintainers) for name in _maintainers(paragraph)}
    known_people = People(people, {word for entry in raw_entries for word in entry.lower()})
    machine.entries = sorted(
        (entry.entry(known_people) for entry in raw_entries), key=lambda entry: entry.time
    )
    machine.removed = known_people.removed
    return machine


def paragraphs(text: str) -> Iterator[dict[str, str]]:
    """The paragraphs of a control file as values by field, without continuation lines."""
    for block in re.split(r"\n\s*\n", text):
        pairs = (line.partition(":") for line in block.splitlines() if line[:1].strip())
        fields = {name: value.strip() for name, _, value in pairs}
        if "Package" in fields:
            yield fields


def needed(dependencies: str) -> list[str]:
    """The names in a field such as ``Depends``, including alternatives, without versions."""
    names = (_NAMED.match(part.strip()) for part in re.split(r"[,|]", dependencies))
    return list(dict.fromkeys(match.group() for match in names if match is not None))


def _is_installed(paragraph: dict[str, str]) -> bool:
    return paragraph.get("Status", "").endswith(" installed")


def _maintainers(paragraph: dict[str, str]) -> Iterator[str]:
    for name in _PEOPLE:
        yield from paragraph.get(name, "").split(",")


def _read_package(paragraph: dict[str, str], available: dict[str, str], machine: Machine) -> None:
    name = paragraph["Package"]
    machine.packages.append(
        {
            "name": name,
            "source": paragraph.get("Source", name).partition(" ")[0],
            "version": paragraph.get("Version"),
            "available": available.get(name),
            "section": paragraph.get("Section"),
        }
    )
    fields = ", ".join(filter(None, map(paragraph.get, ("Pre-Depends", "Depends"))))
    machine.depends += [
        {"package": name, "needs": name_of_dependency} for name_of_dependency in needed(fields)
    ]


def _available(
    folder: Path, installed: set[str], notes: list[str]
) -> tuple[dict[str, str], list[dict[str, str]]]:
    """The versions of installed packages in apt's lists, and their paragraphs."""
    versions: dict[str, str] = {}
    installed_paragraphs: list[dict[str, str]] = []
    for path in sorted(folder.glob("*_Packages*")):
        text = _unpacked(path)
        if text is None:
            notes.append(f"{path.name} was not read: apt-helper or lz4cat is needed")
            continue
        for paragraph in paragraphs(text):
            if paragraph["Package"] in installed:
                versions[paragraph["Package"]] = paragraph.get("Version", "")
                installed_paragraphs.append(paragraph)
    return versions, installed_paragraphs


def _unpacked(path: Path) -> str | None:
    """The text of a list, which apt may have compressed; None if no program can decompress it."""
    match path.suffix:
        case ".gz":
            return gzip.decompress(path.read_bytes()).decode("utf-8", "replace")
        case ".xz":
            return lzma.decompress(path.read_bytes()).decode("utf-8", "replace")
        case ".lz4" | ".zst" | ".bz2":
            helper = Path("/usr/lib/apt/apt-helper")
            lz4 = shutil.which("lz4cat") if path.suffix == ".lz4" else None
            if not (helper.exists() or lz4):
                return None
            command = [str(helper), "cat-file", str(path)] if helper.exists() else [str(lz4), str(path)]
            process = subprocess.run(command, capture_output=True, check=True)  # noqa: S603 - tools of Debian
            return process.stdout.decode("utf-8", "replace")
        case _:
            return path.read_text("utf-8", "replace")


class _RawEntry(NamedTuple):
    """An entry before names are removed."""

    source: str
    version: str
    urgency: str
    time: datetime
    lines: list[str]
    people: list[str]

    def lower(self) -> list[str]:
        """The words in lower case."""
        return _LOWER.findall(" ".join(self.lines))

    def entry(self, people: People) -> Entry:
        text = people.without(" ".join(" ".join(self.lines).split()))
        return Entry(self.source, self.version, self.urgency, self.time, text)


def _changelogs(
    folder: Path, sources: dict[str, str], machine: Machine
) -> Iterator[tuple[str, list[_RawEntry]]]:
    """The entries of each source package, once each: its binary packages have the same changelog."""
    entries_by_source: dict[str, dict[str, _RawEntry]] = {}
    for path in sorted(folder.glob(f"*/{CHANGELOG}")):
        package = path.parent.name
        if package not in sources:
            continue
        text = gzip.decompress(path.read_bytes()).decode("utf-8", "replace")
        versions = set()
        for entry in entries_of(text, sources[package]):
            versions.add(entry.version)
            entries_by_source.setdefault(entry.source, {}).setdefault(entry.version, entry)
        machine.logs[package] = path, frozenset(versions)
    for source, entries in entries_by_source.items():
        yield source, list(entries.values())


def entries_of(text: str, source: str) -> Iterator[_RawEntry]:
    """The entries of a changelog, without those whose date cannot be parsed.

    ``source``: the present name of the source package; old entries may have another one.
    """
    header: re.Match[str] | None = None
    lines: list[str] = []
    people: list[str] = []
    for line in text.splitlines():
        if line[:1].strip():
            header, lines, people = HEADER.match(line), [], []
        elif (signature := _SIGNATURE.match(line)) and header:
            time = _time(signature["date"])
            urgency = _URGENCY.search(header["rest"])
            if time is not None:
                people_of_entry = [signature["name"], *people]
                level = urgency[1].lower() if urgency else ""
                yield _RawEntry(source, header["version"], level, time, lines, people_of_entry)
            header = None
        elif heading := _HEADING.match(line):
            people.append(heading["name"])
        elif header:
            lines.append(line)


def _time(text: str) -> datetime | None:
    try:
        time = parsedate_to_datetime(text)
    except (ValueError, IndexError):
        return None
    return time.replace(tzinfo=UTC) if time.tzinfo is None else time.astimezone(UTC)
