"""The transfers program checks its results by brute force, and detects wrong ones."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from copy import deepcopy
from importlib.util import module_from_spec, spec_from_file_location
from random import Random
from types import ModuleType
from typing import Any

import pytest

from tests.places import ROOT
from tests.strategies import THOROUGH

pytestmark = pytest.mark.check

PROGRAM = ROOT / "examples" / "transfers" / "transfers.py"
Results = list[dict[str, Any]]


def test_the_transfers_program_passes_its_own_checks() -> None:
    command = [sys.executable, str(PROGRAM), "--transfers", "320" if THOROUGH else "160", "--seed", "7"]
    process = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert process.returncode == 0, process.stderr
    assert "the live results equal those of brute force" in process.stdout
    assert "matches and counts of patterns and SQL" in process.stdout


@pytest.fixture(scope="module")
def transfers() -> ModuleType:
    spec = spec_from_file_location("transfers", PROGRAM)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def first_result(results: Results, name: str, op: str = "+") -> dict[str, Any]:
    return next(result for result in results if result["name"] == name and result["op"] == op)


def delay_result(result: dict[str, Any]) -> None:
    result["start"] += 1


def increment_count(result: dict[str, Any]) -> None:
    result["count"] += 1


def delay_debit(results: Results) -> None:
    """Delays a result in all of its lines, so that it is missing for one second only."""
    id_of_result = first_result(results, "debits")["id"]
    for result in results:
        if (result["name"], result["id"]) == ("debits", id_of_result):
            delay_result(result)


def drop_updates(results: Results) -> None:
    results[:] = [result for result in results if result["op"] != "~"]


FAULTS: dict[str, Callable[[Results], object]] = {
    "a second late": delay_debit,
    "without updates": drop_updates,
    "a missing result": lambda results: results.remove(first_result(results, "credits")),
    "a missing retraction": lambda results: results.remove(first_result(results, "transfers", "-")),
}
OTHER_FAULTS: dict[str, Callable[[Results], object]] = {
    "half counted": lambda results: results.remove(first_result(results, "ledger")),
    "counted twice": lambda results: increment_count(first_result(results, "funded")),
    "matched twice": lambda results: results.append(first_result(results, "sides")),
    "a second late": lambda results: delay_result(first_result(results, "passed on")),
}
SearchRun = tuple[Results, Results]
"""Results, and their records."""


@pytest.fixture(scope="module")
def joined_run(transfers: ModuleType, tmp_path_factory: pytest.TempPathFactory) -> SearchRun:
    records = transfers.records(40, Random(1))
    results, late = transfers.search(tmp_path_factory.mktemp("transfers"), records)
    assert late == []
    assert transfers.check(results, records, []) > 20
    return results, records


@pytest.fixture(scope="module")
def insertion_run(transfers: ModuleType, tmp_path_factory: pytest.TempPathFactory) -> SearchRun:
    """Inserts for patterns and SQL."""
    records = [record for record in transfers.records(40, Random(1)) if record["op"] == "+"]
    results, late = transfers.search(tmp_path_factory.mktemp("insertions"), records, "insertions.yaml")
    assert late == []
    assert transfers.check_insertions(results, records, []) > 15
    return results, records


@pytest.mark.parametrize("fault", FAULTS)
def test_a_wrong_search_result_is_detected(transfers: ModuleType, joined_run: SearchRun, fault: str) -> None:
    results, records = deepcopy(joined_run)
    FAULTS[fault](results)
    with pytest.raises(SystemExit, match=r"second \d+: "):
        transfers.check(results, records, [])


@pytest.mark.parametrize("fault", OTHER_FAULTS)
def test_a_wrong_result_of_patterns_or_sql_is_detected(
    transfers: ModuleType, insertion_run: SearchRun, fault: str
) -> None:
    results, records = deepcopy(insertion_run)
    OTHER_FAULTS[fault](results)
    with pytest.raises(SystemExit, match=r"second \d+: the matches and counts differ"):
        transfers.check_insertions(results, records, [])
