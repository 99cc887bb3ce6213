"""The synthetic day of dockets: its shape, and the results that its README describes."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import orjson
import pytest
import yaml

import skws
from tests.places import ROOT

pytestmark = pytest.mark.check

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
