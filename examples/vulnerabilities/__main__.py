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
    where.add_argument(
        "--root", type=Path, default=Path("/"), help="root folder of the Debian system (default: /)"
    )
    where.add_argument("--sample", action="store_true", help="use a small synthetic Debian system")
    parser.add_argument("--searches", type=int, default=100_000, help="saved searches (default: 100,000)")
    parser.add_argument(
        "--alone", type=int, default=1_000, help="changes that are processed one by one (default: 1,000)"
    )
    parser.add_argument(
        "--check", type=int, default=200, help="searches that are compared with zgrep (default: 200)"
    )
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", type=Path, help="a folder for the schema, the records and the searches")
    arguments = parser.parse_args()
    if min(arguments.searches, arguments.alone, arguments.check) < 1:
        parser.error("expected numbers above 0")
    if which("zgrep") is None:
        parser.error("zgrep is not installed; it comes with gzip")
    with TemporaryDirectory() if arguments.sample else nullcontext(arguments.root) as root:
        if arguments.sample:
            sample.write(Path(root), seed=arguments.seed)
        elif not (arguments.root / STATUS).is_file():
            parser.error(f"no {arguments.root / STATUS}: not a Debian system; --sample generates a small one")
        _run(Path(root), arguments)


def _run(root: Path, arguments: argparse.Namespace) -> None:
    began = perf_counter()
    machine = read(root)
    read_seconds = perf_counter() - began
    characters = sum(len(entry.text) for entry in machine.entries)
    for note in machine.notes:
        print(note)
    print(
        f"{len(machine.packages):,} packages, {len(machine.depends):,} dependencies,"
        f" {len(machine.entries):,} changes ({characters / 1e6:.1f} MB), read in {read_seconds:.1f} s"
    )
    random = Random(arguments.seed)  # noqa: S311 - words, not secrets
    saved = searches(machine, arguments.searches, random)
    if not saved:
        raise SystemExit(f"{root / DOCUMENTS}: no changelogs of installed packages; try --sample")
    if arguments.out is not None:
        _write(arguments.out, machine, saved)
    sampled = chosen(machine, saved, arguments.check, random)
    replayed = replay(machine, saved, sampled, arguments.alone)
    _report(saved, replayed)
    differences = list(compare(machine, sampled, replayed.found))
    for search, missing, extra in differences[:10]:
        print(f"{search}: only zgrep finds {sorted(missing)}, only skws {sorted(extra)}")
    found = sum(map(len, replayed.found.values()))
    print(
        f"{len(sampled):,} searches compared with zgrep: {len(differences):,} differ, {found:,} changes found"
    )
    if differences:
        raise SystemExit(1)


def _report(saved: list[Saved], replayed: Replayed) -> None:
    times = sorted(replayed.times)
    print(
        f"{len(saved):,} searches added in {replayed.add_seconds:.1f} s,"
        f" the inventory in {replayed.inventory_seconds:.1f} s"
    )
    alert_counts = ", ".join(f"{number:,} {name}" for name, number in replayed.about.most_common())
    print(
        f"changes in {replayed.batch_seconds + sum(times):.1f} s: {replayed.alerts:,} alerts ({alert_counts})"
    )
    print(f"{replayed.uploads:,} pairs of a search and a change")
    median, rare = times[len(times) // 2], times[int(len(times) * 0.99)]
    print(
        f"single changes: median {median * 1e3:.1f} ms, 99th percentile {rare * 1e3:.0f} ms,"
        f" maximum {times[-1] * 1e3:,.0f} ms"
    )
    print(f"peak memory {peak_bytes() / 1e6:,.0f} MB")


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
    yaml_text = "".join(f"{json.dumps(search.text)}: {json.dumps(search.text)}\n" for search in saved)
    (folder / "searches.yaml").write_text(yaml_text, encoding="utf-8")


if __name__ == "__main__":
    main()
