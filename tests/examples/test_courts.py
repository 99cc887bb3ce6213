"""The synthetic day of dockets: its shape, and the results that its README describes."""

from __future__ import annotations

import csv
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from copy import deepcopy
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from random import Random
from types import ModuleType
from typing import Any

import orjson
import pytest
import yaml

import skws
from tests.places import ROOT
from tests.strategies import THOROUGH

EXAMPLE = ROOT / "examples" / "courts"
CHANGES, HUB = 3000, 200


def generate(folder: Path, *options: str) -> Path:
    command = [sys.executable, str(EXAMPLE / "generate.py"), str(folder), *options]
    subprocess.run(command, check=True, timeout=60, capture_output=True)
    return folder


@pytest.fixture(scope="module")
def day(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("courts")
    return generate(folder, "--changes", str(CHANGES), "--hub", str(HUB), "--alerts", "1200")


@pytest.fixture(scope="module")
def lines(day: Path) -> list[dict[str, Any]]:
    return [orjson.loads(line) for line in (day / "replay.jsonl").read_bytes().splitlines()]


def test_a_seed_generates_the_same_dockets(tmp_path: Path) -> None:
    options = ("--changes", "50", "--hub", "5", "--alerts", "20")
    one, other = generate(tmp_path / "one", *options), generate(tmp_path / "other", *options)
    another = generate(tmp_path / "another", *options, "--seed", "2")
    for name in ("replay.jsonl", "alerts.yaml"):
        assert (one / name).read_bytes() == (other / name).read_bytes()
        assert (one / name).read_bytes() != (another / name).read_bytes()


def test_the_generated_day_has_the_documented_shape(lines: list[dict[str, Any]]) -> None:
    times = [line["time"] for line in lines]
    assert times == sorted(times)
    assert times[0][:10] == times[-1][:10]
    rows = {name: [line["row"] for line in lines if line["relation"] == name] for name in relation_names()}
    dockets = {row["id"] for row in rows["docket"]}
    parties, attorneys = (Counter[int](), Counter[int]())
    docket_of_party = {row["id"]: row["docket"] for row in rows["party"]}
    parties.update(docket_of_party.values())
    attorneys.update(docket_of_party[row["party"]] for row in rows["attorney"])
    ((hub, maximum), (_, runner_up)) = attorneys.most_common(2)
    assert maximum == HUB
    assert runner_up <= 11
    usual_dockets = dockets - {1, 2, 3, hub}
    assert len(usual_dockets) == CHANGES
    assert sum(parties[docket] for docket in usual_dockets) / len(usual_dockets) == pytest.approx(
        5.34, rel=0.03
    )
    assert sum(attorneys[docket] for docket in usual_dockets) / len(usual_dockets) == pytest.approx(
        3.53, rel=0.03
    )
    assert len(rows["docket"]) == len(dockets) + CHANGES + 1, (
        "each docket changes once on average, and one is renamed"
    )
    assert {row["docket"] for row in rows["party"] + rows["filing"]} <= dockets
    for name in ("party", "attorney", "filing"):
        assert len({row["id"] for row in rows[name]}) == len(rows[name])


def relation_names() -> list[str]:
    return list(yaml.safe_load((EXAMPLE / "schema.yaml").read_text(encoding="utf-8"))["relations"])


def search_results(day: Path, query: str, size: int) -> list[Any]:
    return list(skws.search(query, day / "replay.jsonl", schema=EXAMPLE / "schema.yaml", max_size=size))


def test_renaming_a_docket_matches_its_old_filing_at_once(day: Path, lines: list[dict[str, Any]]) -> None:
    (result,) = search_results(day, "docket:zenith filing:seal", 5)
    midnight = 1_709_510_400  # 4 March 2024
    assert (result.op, result.start) == ("+", midnight + 20 * 3600)
    assert {tuple_.relation: tuple_.row["id"] for tuple_ in result.tuples} == {"docket": 1, "filing": 1}
    assert lines[1]["row"]["description"] == "motion to seal exhibits"
    assert lines[1]["time"].startswith("2024-03-04T00:00:00")
    (insertion, retraction) = search_results(day, "docket:doe filing:seal", 5)
    assert (insertion.op, retraction.op, retraction.end) == ("+", "-", midnight + 20 * 3600)


def test_keywords_match_one_party_or_two_joined_by_a_docket(day: Path) -> None:
    (single,) = search_results(day, "party:mike firm:sibley", 2)
    assert [tuple_.row["name"] for tuple_ in single.tuples] == ["Mike Ross", "Ann Poe"]
    results_by_network = {
        result.network: result for result in search_results(day, "party:mike firm:sibley", 4)
    }
    assert set(results_by_network) == {
        single.network,
        "party{party:mike} - docket{} - party{} - attorney{firm:sibley}",
    }
    through_docket = results_by_network["party{party:mike} - docket{} - party{} - attorney{firm:sibley}"]
    assert [tuple_.row["name"] for tuple_ in through_docket.tuples] == [
        "Mike Dunn",
        "Dunn v. Lake",
        "Jo Lake",
        "Ann Poe",
    ]


@pytest.mark.slow
def test_alerts_searched_together_have_the_results_of_single_searches(day: Path) -> None:
    alerts = yaml.safe_load((day / "alerts.yaml").read_text(encoding="utf-8"))
    assert len(alerts) == 1200
    results = skws.search(alerts, day / "replay.jsonl", schema=EXAMPLE / "schema.yaml", max_size=4)
    by_query: dict[str, list[bytes]] = {}
    for result in results:
        by_query.setdefault(result.name, []).append(result.to_json())
    assert {"renamed", "mike at sibley"} <= set(by_query)
    assert len(by_query) > 10
    for name in list(by_query)[:2]:
        separate = skws.search(
            {name: alerts[name]}, day / "replay.jsonl", schema=EXAMPLE / "schema.yaml", max_size=4
        )
        assert [result.to_json() for result in separate] == by_query[name]


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
    "a result less": lambda results: results.remove(first_result(results, "credits")),
    "a retraction less": lambda results: results.remove(first_result(results, "transfers", "-")),
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
def joined(transfers: ModuleType, tmp_path_factory: pytest.TempPathFactory) -> SearchRun:
    records = transfers.records(40, Random(1))
    results, late = transfers.search(tmp_path_factory.mktemp("transfers"), records)
    assert late == []
    assert transfers.check(results, records, []) > 20
    return results, records


@pytest.fixture(scope="module")
def inserted(transfers: ModuleType, tmp_path_factory: pytest.TempPathFactory) -> SearchRun:
    """Inserts for patterns and SQL."""
    records = [record for record in transfers.records(40, Random(1)) if record["op"] == "+"]
    results, late = transfers.search(tmp_path_factory.mktemp("insertions"), records, "insertions.yaml")
    assert late == []
    assert transfers.check_insertions(results, records, []) > 15
    return results, records


@pytest.mark.parametrize("fault", FAULTS)
def test_a_wrong_search_result_is_detected(transfers: ModuleType, joined: SearchRun, fault: str) -> None:
    results, records = deepcopy(joined)
    FAULTS[fault](results)
    with pytest.raises(SystemExit, match=r"second \d+: "):
        transfers.check(results, records, [])


@pytest.mark.parametrize("fault", OTHER_FAULTS)
def test_a_wrong_result_of_patterns_or_sql_is_detected(
    transfers: ModuleType, inserted: SearchRun, fault: str
) -> None:
    results, records = deepcopy(inserted)
    OTHER_FAULTS[fault](results)
    with pytest.raises(SystemExit, match=r"second \d+: the matches and counts differ"):
        transfers.check_insertions(results, records, [])


XML_EXAMPLE = ROOT / "examples" / "stackexchange"
COLUMNS: dict[str, list[str]] = {
    name: list(relation["attributes"])
    for name, relation in yaml.safe_load((XML_EXAMPLE / "schema.yaml").read_text(encoding="utf-8"))[
        "relations"
    ].items()
}
CREATED = 'CreationDate="2016-08-02T15:39:14.947"'


def _run(*arguments: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(XML_EXAMPLE / "csv_from_xml.py"), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


@pytest.fixture
def converted(tmp_path: Path) -> dict[str, list[dict[str, str]]]:
    dump = tmp_path / "dump"
    dump.mkdir()
    rows = {
        "Posts": f'<row Id="1" {CREATED} Title="A &quot;b&quot;, c" Body="x&#xA;é" '
        'Tags="&lt;a-b&gt;&lt;c&gt;" />'
        f'<row Id="2" {CREATED} ParentId="1" ContentLicense="CC BY-SA 3.0" />'
        f'<row Id="3" {CREATED} Tags="|d|e|" />',
        "Users": '<row Id="-1" DisplayName="Community" />',
    }
    for name in COLUMNS.keys() - {"PostTags"}:
        text = f'<?xml version="1.0" encoding="utf-8"?>\n<x>{rows.get(name, "")}</x>'
        (dump / f"{name}.xml").write_text(text, encoding="utf-8")
    process = _run(dump, tmp_path / "out")
    assert process.returncode == 0, process.stderr
    return {path.stem: _read(path) for path in (tmp_path / "out").iterdir()}


def _read(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as file:
        reader = csv.DictReader(file)
        assert reader.fieldnames == COLUMNS[path.stem]
        return list(reader)


def test_the_converter_writes_a_csv_file_for_every_relation(
    converted: dict[str, list[dict[str, str]]],
) -> None:
    assert converted.keys() == COLUMNS.keys()
    assert {name for name, rows in converted.items() if rows} == {"Posts", "PostTags", "Users"}


def test_the_converter_unescapes_values_and_leaves_missing_ones_empty(
    converted: dict[str, list[dict[str, str]]],
) -> None:
    question, answer, _ = converted["Posts"]
    assert (question["Title"], question["Body"], question["ParentId"]) == ('A "b", c', "x\né", "")
    assert (answer["ParentId"], answer["Title"]) == ("1", "")
    assert converted["Users"][0]["DisplayName"] == "Community"


def test_the_converter_reads_tags_in_both_notations(converted: dict[str, list[dict[str, str]]]) -> None:
    pairs = [(row["PostId"], row["TagName"]) for row in converted["PostTags"]]
    assert pairs == [("1", "a-b"), ("1", "c"), ("3", "d"), ("3", "e")]
    assert {row["CreationDate"] for row in converted["PostTags"]} == {"2016-08-02T15:39:14.947"}


def test_the_converter_without_arguments_prints_its_usage() -> None:
    process = _run()
    assert process.returncode == 1
    assert process.stderr == "usage: csv_from_xml.py DUMP_FOLDER CSV_FOLDER\n"
