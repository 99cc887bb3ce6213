"""Reads this machine's Debian, replays its changelogs past saved searches, and reports.

python -m examples.vulnerabilities
python -m examples.vulnerabilities --sample --searches 1000
"""

from __future__ import annotations

import argparse
import json
from contextlib import nullcontext
from pathlib import Path
from random import Random
from shutil import copy, which
from tempfile import TemporaryDirectory
from time import perf_counter

from examples.vulnerabilities import sample
from examples.vulnerabilities.debian import DOCUMENTS, STATUS, Machine, read
from examples.vulnerabilities.replay import SCHEMA, Replayed, peak_bytes, replay
from examples.vulnerabilities.searches import Saved, searches
from examples.vulnerabilities.zgrep import chosen, compare


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m examples.vulnerabilities", description=__doc__)
    where = parser.add_mutually_exclusive_group()
    where.add_argument("--root", type=Path, default=Path("/"), help="where the Debian is (default: /)")
    where.add_argument("--sample", action="store_true", help="a small Debian that is made up")
    parser.add_argument("--searches", type=int, default=100_000, help="saved searches (default: 100,000)")
    parser.add_argument(
        "--alone", type=int, default=1_000, help="changes that come one by one (default: 1,000)"
    )
    parser.add_argument("--check", type=int, default=200, help="searches to ask zgrep for (default: 200)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", type=Path, help="a folder for the schema, the records and the searches")
    given = parser.parse_args()
    if min(given.searches, given.alone, given.check) < 1:
        parser.error("expected numbers above 0")
    if which("zgrep") is None:
        parser.error("zgrep is not installed; it comes with gzip")
    with TemporaryDirectory() if given.sample else nullcontext(given.root) as root:
        if given.sample:
            sample.write(Path(root), seed=given.seed)
        elif not (given.root / STATUS).is_file():
            parser.error(f"no {given.root / STATUS}: this is no Debian; --sample makes a small one up")
        _run(Path(root), given)


def _run(root: Path, given: argparse.Namespace) -> None:
    begun = perf_counter()
    machine = read(root)
    read_in = perf_counter() - begun
    characters = sum(len(entry.text) for entry in machine.entries)
    for note in machine.notes:
        print(note)
    print(
        f"{len(machine.packages):,} packages, {len(machine.depends):,} dependencies,"
        f" {len(machine.entries):,} changes ({characters / 1e6:.1f} MB), read in {read_in:.1f} s"
    )
    random = Random(given.seed)  # noqa: S311 - words, not secrets
    saved = searches(machine, given.searches, random)
    if not saved:
        raise SystemExit(f"{root / DOCUMENTS}: no changelogs of installed packages; try --sample")
    if given.out is not None:
        _write(given.out, machine, saved)
    asked = chosen(machine, saved, given.check, random)
    measured = replay(machine, saved, asked, given.alone)
    _report(saved, measured)
    differences = list(compare(machine, asked, measured.found))
    for one in differences[:10]:
        print(f"{one.search}: zgrep alone finds {sorted(one.missing)}, skws alone {sorted(one.extra)}")
    told = sum(map(len, measured.found.values()))
    print(f"{len(asked):,} searches by zgrep: {len(differences):,} differ, of {told:,} changes found")
    if differences:
        raise SystemExit(1)


def _report(saved: list[Saved], measured: Replayed) -> None:
    times = sorted(measured.times)
    print(
        f"{len(saved):,} searches added in {measured.add_seconds:.1f} s,"
        f" the inventory in {measured.inventory:.1f} s"
    )
    about = ", ".join(f"{number:,} {name}" for name, number in measured.about.most_common())
    print(f"changes in {measured.together + sum(times):.1f} s: {measured.alerts:,} alerts ({about})")
    print(f"{measured.uploads:,} pairs of a search and a change")
    median, rare = times[len(times) // 2], times[int(len(times) * 0.99)]
    print(
        f"a change by itself: {median * 1e3:.1f} ms in the median, {rare * 1e3:.0f} ms for one in a hundred,"
        f" {times[-1] * 1e3:,.0f} ms at most"
    )
    print(f"{peak_bytes() / 1e6:,.0f} MB of memory at most")


def _write(folder: Path, machine: Machine, saved: list[Saved]) -> None:
    """The schema, all records and the searches, for skws on the command line."""
    folder.mkdir(parents=True, exist_ok=True)
    copy(SCHEMA, folder)
    first = machine.entries[0].time.isoformat() if machine.entries else "1970-01-01T00:00:00Z"
    with (folder / "replay.jsonl").open("w", encoding="utf-8") as file:
        for relation, rows in (("package", machine.packages), ("depends", machine.depends)):
            file.writelines(
                json.dumps({"relation": relation, "time": first, "row": row}) + "\n" for row in rows
            )
        for entry in machine.entries:
            time = entry.time.isoformat()
            line = {"relation": "change", "time": time, "row": {**entry.row(), "time": time}}
            file.write(json.dumps(line) + "\n")
    shown = "".join(f"{json.dumps(one.text)}: {json.dumps(one.text)}\n" for one in saved)
    (folder / "searches.yaml").write_text(shown, encoding="utf-8")


if __name__ == "__main__":
    main()
