"""Results of one engine's run, in a form that is the same for all engines."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TypeAlias

import orjson

from bench.peers.task import Comparison
from skws_schema.errors import SkwsError

# The text of the network, and the line numbers of its tuples in the replay, in the same order.
Found: TypeAlias = tuple[str, tuple[int, ...]]


def of_skws(results: Path, replay: Path) -> Counter[Found]:
    """Results from JSON lines. Raises SkwsError if a row does not identify its tuple."""
    lines: dict[tuple[str, bytes], int] = {}
    for number, line in enumerate(replay.read_bytes().splitlines()):
        record = orjson.loads(line)
        first_line = lines.setdefault((record["relation"], orjson.dumps(record["row"])), number)
        if first_line != number:
            raise SkwsError(
                f"lines {first_line + 1} and {number + 1} of the load are equal: results cannot be compared"
            )
    results_by_tuples: Counter[Found] = Counter()
    for line in results.read_bytes().splitlines():
        result = orjson.loads(line)
        tuples = ((t["relation"], orjson.dumps(t["row"])) for t in result["tuples"])
        results_by_tuples[result["network"], tuple(lines[key] for key in tuples)] += 1
    return results_by_tuples


def of_peer(results: Path, comparison: Comparison) -> Counter[Found]:
    """Results from lines with the number of a network and the line numbers of the tuples."""
    plan = comparison.plan
    names = [network.text(plan.schema, plan.keywords) for network in comparison.networks]
    results_by_tuples: Counter[Found] = Counter()
    for line in results.read_text().splitlines():
        number, *members = map(int, line.split())
        results_by_tuples[names[number], tuple(members)] += 1
    return results_by_tuples


def difference(ours: Counter[Found], theirs: Counter[Found]) -> str | None:
    """The first result that only one engine has; None if they are equal."""
    for missing, engine in ((ours - theirs, "skws alone"), (theirs - ours, "the peer alone")):
        if missing:
            network, lines = min(missing)
            line_numbers = ", ".join(str(line + 1) for line in lines)
            return (
                f"{missing.total():,} found by {engine}, such as {network} (lines {line_numbers} of the load)"
            )
    return None
