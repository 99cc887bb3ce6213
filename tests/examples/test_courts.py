"""The made-up day of dockets: its shape, and that the searches of its README find what they say."""

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

EXAMPLE = ROOT / "examples" / "courts"
CHANGES, HUB = 3000, 200


def made(folder: Path, *options: str) -> Path:
    command = [sys.executable, str(EXAMPLE / "generate.py"), str(folder), *options]
    subprocess.run(command, check=True, timeout=60, capture_output=True)
    return folder


@pytest.fixture(scope="module")
def day(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("courts")
    return made(folder, "--changes", str(CHANGES), "--hub", str(HUB), "--alerts", "1200")


@pytest.fixture(scope="module")
def lines(day: Path) -> list[dict[str, Any]]:
    return [orjson.loads(line) for line in (day / "replay.jsonl").read_bytes().splitlines()]


def test_a_seed_always_makes_the_same(tmp_path: Path) -> None:
    options = ("--changes", "50", "--hub", "5", "--alerts", "20")
    one, other = made(tmp_path / "one", *options), made(tmp_path / "other", *options)
    another = made(tmp_path / "another", *options, "--seed", "2")
    for name in ("replay.jsonl", "alerts.yaml"):
        assert (one / name).read_bytes() == (other / name).read_bytes()
        assert (one / name).read_bytes() != (another / name).read_bytes()


def test_the_shape_is_that_of_the_dockets_of_a_day(lines: list[dict[str, Any]]) -> None:
    times = [line["time"] for line in lines]
    assert times == sorted(times)
    assert times[0][:10] == times[-1][:10]
    rows = {name: [line["row"] for line in lines if line["relation"] == name] for name in skws_relations()}
    dockets = {row["id"] for row in rows["docket"]}
    first_party, first_attorney = (Counter[int](), Counter[int]())
    of_party = {row["id"]: row["docket"] for row in rows["party"]}
    first_party.update(of_party.values())
    first_attorney.update(of_party[row["party"]] for row in rows["attorney"])
    ((hub, most), (_, second)) = first_attorney.most_common(2)
    assert most == HUB
    assert second <= 11
    usual = dockets - {1, 2, 3, hub}
    assert len(usual) == CHANGES
    assert sum(first_party[docket] for docket in usual) / len(usual) == pytest.approx(5.34, rel=0.03)
    assert sum(first_attorney[docket] for docket in usual) / len(usual) == pytest.approx(3.53, rel=0.03)
    assert len(rows["docket"]) == len(dockets) + CHANGES + 1, "each changes once on average, one is renamed"
    assert {row["docket"] for row in rows["party"] + rows["filing"]} <= dockets
    for name in ("party", "attorney", "filing"):
        assert len({row["id"] for row in rows[name]}) == len(rows[name])


def skws_relations() -> list[str]:
    return list(yaml.safe_load((EXAMPLE / "schema.yaml").read_text(encoding="utf-8"))["relations"])


def found(day: Path, query: str, size: int) -> list[Any]:
    return list(skws.search(query, day / "replay.jsonl", schema=EXAMPLE / "schema.yaml", max_size=size))


def test_a_renamed_case_finds_its_old_filing_at_once(day: Path, lines: list[dict[str, Any]]) -> None:
    (result,) = found(day, "docket:zenith filing:seal", 5)
    midnight = 1_709_510_400  # 4 March 2024
    assert (result.op, result.start) == ("+", midnight + 20 * 3600)
    assert {each.relation: each.row["id"] for each in result.tuples} == {"docket": 1, "filing": 1}
    assert lines[1]["row"]["description"] == "motion to seal exhibits"
    assert lines[1]["time"].startswith("2024-03-04T00:00:00")
    (opened, closed) = found(day, "docket:doe filing:seal", 5)
    assert (opened.op, closed.op, closed.end) == ("+", "-", midnight + 20 * 3600)


def test_one_party_is_told_apart_from_two(day: Path) -> None:
    (own,) = found(day, "party:mike firm:sibley", 2)
    assert [each.row["name"] for each in own.tuples] == ["Mike Ross", "Ann Poe"]
    both = {result.network: result for result in found(day, "party:mike firm:sibley", 4)}
    assert set(both) == {
        own.network,
        "party{party:mike} - docket{} - party{} - attorney{firm:sibley}",
    }
    through = both["party{party:mike} - docket{} - party{} - attorney{firm:sibley}"]
    assert [each.row["name"] for each in through.tuples] == [
        "Mike Dunn",
        "Dunn v. Lake",
        "Jo Lake",
        "Ann Poe",
    ]


def test_alerts_together_find_what_each_finds_alone(day: Path) -> None:
    alerts = yaml.safe_load((day / "alerts.yaml").read_text(encoding="utf-8"))
    assert len(alerts) == 1200
    asked = {name: alerts[name] for name in alerts}
    together = skws.search(asked, day / "replay.jsonl", schema=EXAMPLE / "schema.yaml", max_size=4)
    by_query: dict[str, list[bytes]] = {}
    for result in together:
        by_query.setdefault(result.query, []).append(result.to_json())
    assert {"renamed", "mike at sibley"} <= set(by_query)
    assert len(by_query) > 10
    for name in list(by_query)[:6]:
        alone = skws.search(
            {name: alerts[name]}, day / "replay.jsonl", schema=EXAMPLE / "schema.yaml", max_size=4
        )
        assert [result.to_json() for result in alone] == by_query[name]
