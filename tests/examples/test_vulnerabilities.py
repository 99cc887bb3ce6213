"""Changelogs of a synthetic Debian: their entries, removed names, and results of saved searches."""

from __future__ import annotations

import gzip
import subprocess
import sys
from pathlib import Path
from random import Random

import pytest

from examples.vulnerabilities import sample
from examples.vulnerabilities.debian import CHANGELOG, DOCUMENTS, Machine, entries_of, needed, read
from examples.vulnerabilities.people import People
from examples.vulnerabilities.replay import About, Replayed, replay
from examples.vulnerabilities.searches import Saved, searches
from examples.vulnerabilities.zgrep import Difference, chosen, compare
from tests.places import ROOT

pytestmark = pytest.mark.check

NUMBER = 400


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("debian")
    sample.write(folder, packages=15, uploads=12)
    return folder


@pytest.fixture(scope="module")
def machine(root: Path) -> Machine:
    return read(root)


@pytest.fixture(scope="module")
def saved_searches(machine: Machine) -> list[Saved]:
    return searches(machine, NUMBER, Random(1))


@pytest.fixture(scope="module")
def replay_outcome(machine: Machine, saved_searches: list[Saved]) -> Replayed:
    return replay(
        machine,
        saved_searches,
        [search for search in saved_searches if search.kind != "dependency"],
        alone=20,
    )


def test_the_sample_of_changelogs_is_deterministic(root: Path, tmp_path: Path) -> None:
    sample.write(tmp_path, packages=15, uploads=12)
    files = sorted(path.relative_to(root) for path in root.rglob("*") if path.is_file())
    assert files == sorted(path.relative_to(tmp_path) for path in tmp_path.rglob("*") if path.is_file())
    assert all((root / path).read_bytes() == (tmp_path / path).read_bytes() for path in files)


def test_changelog_entries_are_unique_changes_of_known_packages(root: Path, machine: Machine) -> None:
    names = {row["name"] for row in machine.packages}
    assert names == {path.parent.name for path in (root / DOCUMENTS).glob(f"*/{CHANGELOG}")}
    assert {row["needs"] for row in machine.depends} <= names
    changes = [(entry.source, entry.version) for entry in machine.entries]
    assert len(set(changes)) == len(changes)
    assert {source for source, _ in changes} == {row["source"] for row in machine.packages}
    assert sorted(machine.entries, key=lambda entry: entry.time) == machine.entries
    assert any(row["available"] != row["version"] for row in machine.packages)


def test_names_of_people_are_removed_from_the_data(root: Path, machine: Machine) -> None:
    changelogs = (root / DOCUMENTS).glob(f"*/{CHANGELOG}")
    original_text = " ".join(gzip.decompress(path.read_bytes()).decode() for path in changelogs)
    text = " ".join(str(row) for row in (*machine.packages, *machine.depends, *machine.entries))
    for name in ("Ada", "Byron", "Murray", "Kit", "van Dam", "Jo Poe", "@"):
        assert name in original_text
        assert name not in text


def test_names_are_removed_from_a_text() -> None:
    people = People(["Ada Byron <ada@example.org>", "Free Murray"], {"free"})
    text = "[Ada] Patch by Jo Poe and ADA, Ada Byron; use free memory. Thanks to Kit for it. Byron, x@y.org"
    assert people.without(text) == "[] Patch by, ; use free memory. Thanks to for it. , "
    assert {"ada", "byron", "jo", "poe", "kit"} <= people.removed


def test_a_changelog_entry_without_a_date_is_skipped() -> None:
    text = "b (2) sid; urgency=HIGH\n\n  * new\n\n -- A B <a@b.c>  Mon, 05 Jan 2015 09:00:00 +0100\n\n"
    text += "a (1) sid; urgency=low\n\n  * old\n\n -- A B <a@b.c>  Some, day\n"
    (entry,) = entries_of(text, "c")
    assert (entry.source, entry.version, entry.urgency) == ("c", "2", "high")
    assert entry.time.isoformat() == "2015-01-05T08:00:00+00:00"


def test_dependency_names_are_parsed() -> None:
    assert needed("libc6 (>= 2.34), a:any | b [amd64], libc6") == ["libc6", "a", "b"]


def test_alert_counts_equal_a_scan_of_all_changes(
    machine: Machine, saved_searches: list[Saved], replay_outcome: Replayed
) -> None:
    sources = {row["name"]: row["source"] for row in machine.packages}
    needs = {(row["package"], sources[row["needs"]]) for row in machine.depends}
    package_alerts = dependency_alerts = 0
    for search in saved_searches:
        for entry in machine.entries:
            if f" {search.words} " in f" {entry.text.lower().replace('.', ' ')} ":
                package_alerts += search.kind != "dependency" and sources[search.package] == entry.source
                dependency_alerts += search.kind == "dependency" and (search.package, entry.source) in needs
    assert replay_outcome.about[About.PACKAGE] == package_alerts > 20
    assert (
        replay_outcome.about[About.DEPENDENCY] >= dependency_alerts > 20
    )  # a source may have two packages as dependencies
    assert replay_outcome.uploads == package_alerts + dependency_alerts
    assert len(replay_outcome.times) == 20


def test_zgrep_finds_the_same_versions(
    machine: Machine, saved_searches: list[Saved], replay_outcome: Replayed
) -> None:
    sample_searches = chosen(machine, saved_searches, 30, Random(2))
    assert len(sample_searches) == 30
    assert list(compare(machine, sample_searches, replay_outcome.found)) == []


def test_a_difference_from_zgrep_is_reported(
    machine: Machine, saved_searches: list[Saved], replay_outcome: Replayed
) -> None:
    sample_searches = [
        search
        for search in chosen(machine, saved_searches, 100, Random(2))
        if replay_outcome.found[search.text]
    ][:2]
    missing, extra = (replay_outcome.found[search.text] for search in sample_searches)
    version = next(v for v in machine.logs[sample_searches[1].package][1] if v not in extra)
    results_with_extra = {sample_searches[1].text: extra | {version}}
    assert list(compare(machine, sample_searches, results_with_extra)) == [
        Difference(sample_searches[0].text, frozenset(missing), frozenset()),
        Difference(sample_searches[1].text, frozenset(), frozenset({version})),
    ]


def test_a_folder_without_debian_packages_is_rejected(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "examples.vulnerabilities", "--root", str(tmp_path)]
    process = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert process.returncode == 2
    assert "not a Debian system; --sample generates a small one" in process.stderr


def test_a_debian_without_changelogs_is_rejected(tmp_path: Path) -> None:
    """Small images leave them out."""
    sample.write(tmp_path, packages=3, uploads=2)
    for path in (tmp_path / DOCUMENTS).glob(f"*/{CHANGELOG}"):
        path.unlink()
    command = [sys.executable, "-m", "examples.vulnerabilities", "--root", str(tmp_path)]
    process = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert process.returncode == 1
    assert process.stderr == f"{tmp_path / DOCUMENTS}: no changelogs of installed packages; try --sample\n"


def test_searches_of_a_debian_without_dependencies_have_other_kinds(tmp_path: Path) -> None:
    sample.write(tmp_path, packages=1, uploads=12)
    kinds = {search.kind for search in searches(read(tmp_path), NUMBER, Random(1))}
    assert kinds == {"word", "phrase", "any"}
