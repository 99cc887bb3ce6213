"""Replays the changes of a machine against saved searches, and measures times and counts."""

from __future__ import annotations

import gc
import resource
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from time import perf_counter
from typing import Any, Final

import skws
from examples.vulnerabilities.debian import Entry, Machine
from examples.vulnerabilities.searches import Saved

SCHEMA: Final = Path(__file__).with_name("schema.yaml")
SIZE: Final = 3
"""The maximum size of results: a change, a package of its source, and a dependency on that package."""
_TOGETHER: Final = 100


class About(StrEnum):
    """The kind of an alert: a change of the package itself, or of a package that it depends on."""

    PACKAGE = "of the package"
    DEPENDENCY = "of a dependency"


@dataclass(slots=True)
class Replayed:
    """Seconds and counts of a replay.

    ``times``: seconds of each change that was processed alone. ``found``: by search, the versions of changes
    of the package itself. ``about``: alert counts by kind. ``uploads``: pairs of a search and a change.
    """

    add_seconds: float = 0.0
    inventory_seconds: float = 0.0
    batch_seconds: float = 0.0
    times: list[float] = field(default_factory=list)
    about: Counter[About] = field(default_factory=Counter)
    uploads: int = 0
    found: dict[str, set[str]] = field(default_factory=dict)

    @property
    def alerts(self) -> int:
        return self.about.total()


def replay(machine: Machine, saved: list[Saved], sample: list[Saved], alone: int) -> Replayed:
    """Add the searches, the inventory and the changes; the last ``alone`` are processed one by one."""
    replayed = Replayed(found={search.text: set() for search in sample})
    sources = {row["name"]: row["source"] for row in machine.packages}
    sources_by_search = {search.text: sources[search.package] for search in sample}
    session = skws.Session(SCHEMA, max_size=SIZE)
    began = perf_counter()
    session.add({search.text: search.text for search in saved})
    replayed.add_seconds = perf_counter() - began
    gc.freeze()  # otherwise each full collection would scan all searches, which takes longer than the changes
    began = perf_counter()
    session.process({"package": machine.packages, "depends": machine.depends})
    replayed.inventory_seconds = perf_counter() - began
    first = max(0, len(machine.entries) - alone)
    for batch in _batches(machine.entries, first):
        rows = {"change": [entry.row() for entry in batch]}
        began = perf_counter()
        results = session.process(rows)
        seconds = perf_counter() - began
        if len(batch) == 1:
            replayed.times.append(seconds)
        else:
            replayed.batch_seconds += seconds
        _count(replayed, results, sources_by_search)
    return replayed


def peak_bytes() -> int:
    """The peak memory of this process, in bytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def _batches(entries: list[Entry], first: int) -> Iterator[list[Entry]]:
    for begin in range(0, first, _TOGETHER):
        yield entries[begin : min(begin + _TOGETHER, first)]
    for entry in entries[first:]:
        yield [entry]


def _count(replayed: Replayed, results: list[Any], sources_by_search: dict[str, str]) -> None:
    uploads = set()
    for result in results:
        rows = {result_tuple.relation: result_tuple.row for result_tuple in result.tuples}
        change = rows["change"]
        uploads.add((result.name, change["source"], change["version"]))
        about = About.DEPENDENCY if "depends" in rows else About.PACKAGE
        replayed.about[about] += 1
        if about is About.PACKAGE and sources_by_search.get(result.name) == change["source"]:
            replayed.found[result.name].add(change["version"])
    replayed.uploads += len(uploads)
