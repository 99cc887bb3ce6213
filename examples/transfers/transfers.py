"""Transfers between accounts, out of order, and a check of every result.

Each transfer consists of three records with the same time: the transfer, a debit and a credit. They arrive
separately, among other records. Some transfers are deleted later, and some owners change their names. The
check evaluates the joins from scratch at each instant. Patterns and SQL read the same stream without the
deletions.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator
from datetime import datetime
from itertools import groupby
from math import inf
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from time import sleep
from typing import Any, Final, TextIO, cast

HERE: Final = Path(__file__).parent
ACCOUNTS: Final = 10
LATENESS: Final = 20
"""Seconds by which records may be late."""
PASSED_ON: Final = 3
"""The window of the pattern ``passed on`` in ``insertions.yaml``, in seconds."""

Record = dict[str, Any]
State = dict[tuple[str, ...], Record]
"""The live rows, by relation and key."""


def records(transfers: int, random: Random) -> list[Record]:
    """Records in order of arrival; one transfer in a hundred is too late, except at the end."""
    arrivals: list[tuple[float, Record]] = []

    def arrive(time: int, *new_records: Record, late: int = 0) -> None:
        arrivals.extend(
            (time + late + random.uniform(0, 0.9 * LATENESS), record | {"time": time})
            for record in new_records
        )

    arrivals.extend((0, _record("account", 0, id=n, owner=f"customer {n}")) for n in range(ACCOUNTS))
    for number in range(transfers):
        time = 1 + number // 2
        payer, payee = random.sample(range(ACCOUNTS), 2)
        amount = random.randint(1, 100)
        transfer = (
            _record("transfer", time, id=number, reason=random.choice(["rent", "salary", "loan"])),
            _record("entry", time, transfer=number, account=payer, side="debit", amount=amount),
            _record("entry", time, transfer=number, account=payee, side="credit", amount=amount),
        )
        too_late = number % 100 == 99 and number < transfers - 10 * LATENESS
        arrive(time, *transfer, late=3 * LATENESS if too_late else 0)
        if number % 9 == 0:
            arrive(time + random.randint(1, 60), *(record | {"op": "-"} for record in transfer))
        if number % 20 == 0:
            renamed = f"customer {random.choice('abc')}"
            arrive(time, _record("account", time, id=random.randrange(ACCOUNTS), owner=renamed))
    return [record for _, record in sorted(arrivals, key=lambda pair: pair[0])]


def _record(relation: str, time: int, **row: object) -> Record:
    return {"relation": relation, "time": time, "op": "+", "row": row}


def results_at_instants(accepted: list[Record]) -> Iterator[tuple[int, Counter[tuple[str, ...]]]]:
    """The results of the three queries at each instant, evaluated from scratch."""
    rows: State = {}
    for time, group in groupby(sorted(accepted, key=lambda r: r["time"]), key=lambda r: r["time"]):
        for record in group:
            row = record["row"]
            key = (
                ("entry", row["transfer"], row["side"]) if "side" in row else (record["relation"], row["id"])
            )
            if record["op"] == "-":
                rows.pop(key, None)
            else:
                rows[key] = row
        yield time, _joined(rows)


def _joined(rows: State) -> Counter[tuple[str, ...]]:
    counts: Counter[tuple[str, ...]] = Counter()
    for key, row in rows.items():
        if key[0] != "entry":
            continue
        account = rows.get(("account", row["account"]))
        name = {"debit": "debits", "credit": "credits"}[row["side"]]
        if account is not None:
            counts[_result_key(name, row, account)] += 1
        other = rows.get(("entry", row["transfer"], "credit"))
        transfer = rows.get(("transfer", row["transfer"]))
        if row["side"] == "debit" and other is not None and transfer is not None:
            counts[_result_key("transfers", row, transfer, other)] += 1
    return counts


def _result_key(query: str, *rows: Record) -> tuple[str, ...]:
    return query, *sorted(json.dumps(row, sort_keys=True) for row in rows)


def search(
    folder: Path, arrived: list[Record], queries: str = "queries.yaml"
) -> tuple[list[Record], list[Record]]:
    """The results of ``skws watch``, and the records that were too late."""
    out, late = folder / f"{queries}.jsonl", folder / f"{queries}.late.jsonl"
    command = [
        *(sys.executable, "-m", "skws", "watch", "--engine", "local", "--queries", HERE / queries),
        *("--schema", HERE / "schema.yaml", "--source", "-", "--lateness", f"{LATENESS} s"),
        *("--max-size", "3", "--quiet"),
        *("--dead-letters", late, "--sink", f"jsonl:{out}"),
    ]
    words = [str(word) for word in command]
    with subprocess.Popen(words, stdin=subprocess.PIPE, text=True) as process:  # noqa: S603 - as above
        source = cast("TextIO", process.stdin)
        for record in arrived:
            source.write(json.dumps(record) + "\n")
            if (
                record["row"].get("side") == "debit"
            ):  # so that the sides of a transfer arrive in different batches
                source.flush()
                sleep(0.001)
        source.close()
    if process.returncode:
        raise SystemExit(process.returncode)
    return _read(out), [_record_of_dead_letter(json.loads(letter["raw"])) for letter in _read(late)]


def _record_of_dead_letter(record: Record) -> Record:
    """The original record of a dead letter."""
    return record | {"time": int(datetime.fromisoformat(record["time"]).timestamp())}


def _read(path: Path) -> list[Record]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def accepted_records(arrived: list[Record], late: list[Record]) -> tuple[list[Record], set[int]]:
    """The records that were not late, and the transfers of late ones, which may be late in part."""
    return [record for record in arrived if record not in late], {
        record["row"]["transfer"] for record in late if record["relation"] == "entry"
    }


def check(results: list[Record], arrived: list[Record], late: list[Record]) -> int:
    """The number of instants. Raises SystemExit at the first that is not consistent.

    Names of owners are compared at the last instant only: an update of a result has the new name, but not the
    time of the change.
    """
    accepted, incomplete = accepted_records(arrived, late)
    lifespans: dict[str, tuple[tuple[str, ...], float, float]] = {}
    for result in results:  # a later line of a result replaces an earlier one
        rows = _result_key(result["name"], *(result_tuple["row"] for result_tuple in result["tuples"]))
        end = result["end"] if result["op"] == "-" else inf
        lifespans[result["name"] + result["id"]] = rows, result["start"], end
    instants = list(results_at_instants(accepted))
    for time, expected in instants:
        alive = Counter(rows for rows, start, end in lifespans.values() if start <= time < end)
        if _without_owners(alive) != _without_owners(expected):
            raise SystemExit(
                f"second {time}: {alive.total()} results, and brute force finds {expected.total()}"
            )
        sums = {query: _sum(alive, query, incomplete) for query in ("debits", "credits")}
        if sums["debits"] != sums["credits"]:
            raise SystemExit(f"second {time}: debits of {sums['debits']}, credits of {sums['credits']}")
    if alive != expected:
        raise SystemExit(f"second {time}: the results have other owners than brute force finds")
    return len(instants)


def _without_owners(results: Counter[tuple[str, ...]]) -> Counter[tuple[str, ...]]:
    """The results without the rows of accounts."""
    counts: Counter[tuple[str, ...]] = Counter()
    for (query, *rows), count in results.items():
        counts[query, *(row for row in rows if "owner" not in json.loads(row))] += count
    return counts


def _sum(alive: Counter[tuple[str, ...]], query: str, excluded: set[int]) -> int:
    """The amounts of the live results of a query, without those of some transfers."""
    entries = (
        (json.loads(row), count) for rows, count in alive.items() if rows[0] == query for row in rows[1:]
    )
    return sum(
        row["amount"] * count for row, count in entries if "amount" in row and row["transfer"] not in excluded
    )


def check_insertions(results: list[Record], arrived: list[Record], late: list[Record]) -> int:
    """Like ``check``, for the patterns and the SQL of ``insertions.yaml``, which retract nothing."""
    accepted, incomplete = accepted_records(arrived, late)
    unmatched: Counter[int] = Counter()
    for record in accepted:
        row = record["row"]
        if record["relation"] == "entry" and row["transfer"] in incomplete:
            unmatched[record["time"]] += _signed(row)
    results_by_time: dict[float, Counter[tuple[str, ...]]] = defaultdict(Counter)
    for result in results:
        rows = _result_key(result["name"], *(result_tuple["row"] for result_tuple in result["tuples"]))
        results_by_time[result["start"]][rows] += result.get("count", 1)
    balance = instants = 0
    for time, expected in additions_at_instants(accepted):
        additions = results_by_time.pop(time, Counter())
        if additions != expected:
            raise SystemExit(f"second {time}: the matches and counts differ from those of brute force")
        for (query, *result_rows), count in additions.items():
            if query == "ledger":
                balance += count * _signed(json.loads(result_rows[0]))
        balance -= unmatched[time]
        if balance:
            raise SystemExit(f"second {time}: the sum of the ledger is {balance}, expected 0")
        instants += 1
    if results_by_time:
        raise SystemExit(f"there are results at {sorted(results_by_time)}, but no records")
    return instants


def _signed(entry: Record) -> int:
    return {"debit": -1, "credit": 1}[entry["side"]] * cast("int", entry["amount"])


def additions_at_instants(accepted: list[Record]) -> Iterator[tuple[int, Counter[tuple[str, ...]]]]:
    """The results that each instant adds, by comparing each entry with all entries before it."""
    entries = [record for record in accepted if record["relation"] == "entry"]  # in order of arrival
    entries.sort(key=lambda record: record["time"])
    for time, group in groupby(range(len(entries)), key=lambda n: entries[n]["time"]):
        additions: Counter[tuple[str, ...]] = Counter()
        for number in group:
            row = entries[number]["row"]
            additions[_result_key("ledger", {"side": row["side"], "amount": row["amount"]})] += 1
            for before in entries[:number]:
                _compare(additions, before["row"], row, time - before["time"])
        yield time, additions


def _compare(additions: Counter[tuple[str, ...]], first: Record, second: Record, seconds: int) -> None:
    """Add the results of two entries, the second of which is ``seconds`` later."""
    if first["transfer"] == second["transfer"]:
        additions[_result_key("sides", first, second)] += 1
    if (first["account"], first["side"], second["side"]) == (second["account"], "credit", "debit"):
        if seconds < PASSED_ON:
            additions[_result_key("passed on", first, second)] += 1
        if seconds:
            additions[_result_key("funded", {"account": first["account"], "amount": first["amount"]})] += 1


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--transfers", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    arrived = records(arguments.transfers, Random(arguments.seed))  # noqa: S311 - amounts, not secrets
    with TemporaryDirectory() as folder:
        results, late = search(Path(folder), arrived)
        instants = check(results, arrived, late)
        insertions = [record for record in arrived if record["op"] == "+"]
        additions, late_additions = search(Path(folder), insertions, "insertions.yaml")
        check_insertions(additions, insertions, late_additions)
    print(f"{len(arrived):,} records, {len(late):,} of them too late")
    print(f"{len(results):,} changes of results: at each of {instants:,} instants,")
    print("the live results equal those of brute force, and debits and credits have the same sum")
    print(f"{len(additions):,} matches and counts of patterns and SQL, equal to those of brute force")


if __name__ == "__main__":
    main()
