"""The example of transfers: consistent at every instant, and a fault is found."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from random import Random
from types import ModuleType
from typing import Any

import pytest

from tests.places import ROOT

PROGRAM = ROOT / "examples" / "transfers" / "transfers.py"
Results = list[dict[str, Any]]


def test_it_is_consistent_at_every_instant() -> None:
    command = [sys.executable, str(PROGRAM), "--transfers", "450", "--seed", "7"]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    assert "they are those of brute force" in ran.stdout
    assert "matches and counts of patterns and SQL" in ran.stdout


@pytest.fixture(scope="module")
def transfers() -> ModuleType:
    spec = spec_from_file_location("transfers", PROGRAM)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _index(results: Results, op: str, query: str) -> int:
    return next(i for i, one in enumerate(results) if (one["op"], one["query"]) == (op, query))


def without_a_result(results: Results) -> Results:
    del results[_index(results, "+", "credit customer")]
    return results


def without_a_retraction(results: Results) -> Results:
    del results[_index(results, "-", "debit credit -account:")]
    return results


def half_a_transfer(results: Results) -> Results:
    results[_index(results, "+", "credit customer")]["start"] += 1
    return results


def _first(results: Results, query: str) -> dict[str, Any]:
    return next(one for one in results if query in one["query"])


def half_counted(results: Results) -> Results:
    results.remove(_first(results, "ledger"))
    return results


def counted_twice(results: Results) -> Results:
    _first(results, "funded")["count"] += 1
    return results


def matched_twice(results: Results) -> Results:
    return [*results, _first(results, " AND ")]


def a_second_late(results: Results) -> Results:
    _first(results, "got ; entry")["start"] += 1
    return results


@pytest.mark.parametrize("fault", [half_counted, counted_twice, matched_twice, a_second_late])
def test_a_fault_of_patterns_or_sql_is_found(
    transfers: ModuleType, tmp_path: Path, fault: Callable[[Results], Results]
) -> None:
    arrived = [record for record in transfers.records(40, Random(1)) if record["op"] == "+"]
    results, late = transfers.search(tmp_path, arrived, "insertions.yaml")
    assert late == []
    assert transfers.check_insertions(results, arrived) > 15
    with pytest.raises(SystemExit, match=r"second \d+: other matches"):
        transfers.check_insertions(fault(results), arrived)


@pytest.mark.parametrize("fault", [without_a_result, without_a_retraction, half_a_transfer])
def test_a_fault_is_found(transfers: ModuleType, tmp_path: Path, fault: Callable[[Results], Results]) -> None:
    arrived = transfers.records(40, Random(1))
    results, late = transfers.search(tmp_path, arrived)
    assert late == []
    assert transfers.check(results, arrived) > 20
    with pytest.raises(SystemExit, match=r"second \d+: "):
        transfers.check(fault(results), arrived)
