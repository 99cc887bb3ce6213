"""``skws networks`` and ``skws explain``: formats, and known numbers of networks."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from bench.load import HEAVY
from skws.keywords.parse import parse_query
from skws.keywords.plan import Plan, network_counts
from skws_mesh.cngen import count_networks
from skws_schema.budgets import within_steps
from skws_schema.yaml.document import to_yaml
from skws_schema.yaml.load import load_schema
from skws_windows.window import Unbounded
from tests.commands import IDS, REPLAY, SCHEMA, SEARCH, Skws


@pytest.fixture
def ternary(tmp_path: Path) -> Path:
    """20 relations whose joins form a ternary tree, as in the paper's experiments."""
    file = tmp_path / "ternary.yaml"
    file.write_text(to_yaml(HEAVY.schema()))
    return file


def test_networks_are_listed_by_size(skws: Skws) -> None:
    lines = skws("networks", "tarantino", "travolta", "-s", SCHEMA).out.splitlines()
    headings = [line for line in lines if not line.startswith("  ")]
    assert headings == [f"size {n} ({count} networks)" for n, count in enumerate((4, 6, 7, 8, 9), start=1)]
    assert "  director{tarantino} - movie{} - plays{} - actor{travolta}" in lines


def test_json_networks_equal_those_of_the_text(skws: Skws) -> None:
    command = ("networks", "tarantino", "travolta", "-s", SCHEMA, "--max-size", 4)
    networks = json.loads(skws(*command, "-f", "json").out)
    text = skws(*command).out.splitlines()
    assert sorted(d["network"] for d in networks) == sorted(t.strip() for t in text if t.startswith("  "))
    for network in networks:
        assert network["size"] == len(network["nodes"]) == len(network["joins"]) + 1
        labels = {f"{n['relation']}{{{', '.join(n['keywords'])}}}" for n in network["nodes"]}
        assert labels == set(re.findall(r"\w+\{[^}]*\}", network["network"]))
        for left, right, name in network["joins"]:
            sides = [part.split(".")[0] for part in name.split(" = ")]
            assert sides == [network["nodes"][left]["relation"], network["nodes"][right]["relation"]]


def test_network_counts_equal_known_counts(skws: Skws, ternary: Path) -> None:
    two_keywords = skws("networks", "nolan", "caine", "-s", ternary, "-f", "count").out
    assert two_keywords.splitlines()[-1] == "total: 1120"
    three_keywords = skws(
        "networks", "nolan", "caine", "pulp", "-s", ternary, "-f", "count", "--max-size", 4
    ).out
    assert three_keywords.splitlines()[-1] == "total: 13108"


def test_networks_can_be_limited_or_empty(skws: Skws) -> None:
    outcome = skws("networks", "nolan", "-s", SCHEMA, "-f", "json", "--limit", 2)
    assert len(json.loads(outcome.out)) == 2
    empty = skws("networks", "actor:nolan", "director:caine", "-s", SCHEMA, "-f", "json", "--max-size", 2)
    assert (empty.code, json.loads(empty.out)) == (0, [])


def test_match_names_adds_networks_by_relation_name(skws: Skws, tmp_path: Path) -> None:
    file = tmp_path / "alarms.yaml"
    alarm = "alarm: {attributes: {id: integer, host: integer}}"
    host = "host: {attributes: {id: integer, name: text}}"
    file.write_text(f"relations: {{{alarm}, {host}}}\njoins: [alarm.host = host.id]\n")
    command = ("networks", "alarm", "web", "-s", file)
    network = "alarm{alarm} - host{web}"
    assert network in skws(*command, "--match-names").out
    assert network not in skws(*command).out


_EIGHT = ("nolan", "caine", "pulp", "fiction", "travolta", "tarantino", "thurman", "jackson")


def test_too_many_networks_are_counted_but_not_listed(skws: Skws, ternary: Path) -> None:
    counted = skws("networks", *_EIGHT, "-s", ternary, "-f", "count")
    assert counted.out.splitlines()[-1] == "total: 17561127585190"
    rejection = skws("networks", *_EIGHT, "-s", ternary)
    assert (rejection.code, rejection.out) == (2, "")
    assert "17,561,127,585,190 networks" in rejection.err
    assert "--limit" in rejection.err
    limited = skws("networks", *_EIGHT, "-s", ternary, "--limit", 3).out.splitlines()
    assert sum(line.startswith("  ") for line in limited) == 3


def test_networks_beyond_the_step_budget_are_generated_up_to_a_bound(
    skws: Skws, ternary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("skws.keywords.plan.count_networks", partial(count_networks, steps=10))
    outcome = skws("networks", "nolan", "caine", "-s", ternary, "-f", "count")
    assert outcome.out.splitlines()[-1] == "total: 1120"
    schema = load_schema(ternary)
    plan = Plan(schema, parse_query("nolan caine", schema), Unbounded())
    counts, complete = network_counts(plan, most=100)
    assert (sum(counts), complete) == (100, False)
    large_plan = replace(plan, max_size=1000)
    with within_steps(5_000):
        large_counts, is_complete = network_counts(large_plan, most=2_000)
    assert (0 < sum(large_counts) < 2_000, is_complete) == (True, False)


def test_a_full_mesh_rejects_too_many_networks(skws: Skws, ternary: Path, tmp_path: Path) -> None:
    replay = tmp_path / "none.jsonl"
    replay.write_text("")
    outcome = skws(
        "search", *_EIGHT, "-s", ternary, "-r", replay, "-w", "1 hour", "--engine", "local", "--mesh", "full"
    )
    assert outcome.code == 2
    assert "candidate networks" in outcome.err


EXPLAIN = ("explain", "tarantino", "travolta", "-s", SCHEMA)


def test_a_plan_that_is_too_deep_is_refused(skws: Skws) -> None:
    outcome = skws(*EXPLAIN, "--max-size", 2_000)
    assert (outcome.code, outcome.out) == (2, "")
    assert "--max-size 2000" in outcome.err


def test_explain_shows_window_and_network_count(skws: Skws) -> None:
    outcome = skws(*EXPLAIN, "--window", "90 minutes", "--max-size", 3)
    assert (outcome.code, outcome.err) == (0, "")
    assert "window: 90 minutes\n" in outcome.out
    assert "candidate networks of at most 3 relations: 17\n" in outcome.out


def test_explain_with_a_replay_shows_results_and_idle_nodes(skws: Skws) -> None:
    output = skws(*EXPLAIN, "--replay", REPLAY, "--max-size", 4).out
    assert "      => director{tarantino} - movie{} - plays{} - actor{travolta}: 1 result\n" in output
    assert "    movie{tarantino}: idle\n" in output


def test_explain_of_the_full_mesh_shows_sleeping_networks(skws: Skws) -> None:
    outcome = skws(*EXPLAIN, "--replay", REPLAY, "--max-size", 4, "--mesh", "full")
    assert (outcome.code, outcome.err) == (0, "")
    assert "evaluator: full mesh, tuple by tuple\n" in outcome.out
    line = "=> director{tarantino} - movie{travolta}: 0 results, asleep: no movie{travolta} is alive\n"
    assert line in outcome.out


@pytest.mark.parametrize("options", [("--no-demand",), ("--mesh", "full", "--evaluator", "delta")])
def test_options_that_conflict_with_the_mesh_are_rejected(skws: Skws, options: tuple[str, ...]) -> None:
    outcome = skws(*EXPLAIN, *options)
    assert outcome.code == 2
    assert "--mesh full" in outcome.err


@pytest.mark.parametrize(("kind", "start"), [("dot", "digraph mesh {"), ("svg", "<svg ")])
def test_explain_draws_graphs(skws: Skws, kind: str, start: str) -> None:
    assert skws(*EXPLAIN, "--format", kind).out.startswith(start)


@pytest.mark.parametrize(
    "options",
    [
        ("--mesh", "full"),
        ("--mesh", "full", "--no-demand", "--purge", "eager"),
        ("--mesh", "partial", "--purge", "eager"),
        ("--mesh", "forest"),
        ("--mesh", "columnar"),
    ],
)
def test_every_mesh_writes_the_same_results(skws: Skws, options: tuple[str, ...]) -> None:
    default = skws(*SEARCH, "-q", "-f", "jsonl")
    outcome = skws(*SEARCH, "-q", "-f", "jsonl", *options)
    assert (outcome.code, outcome.out) == (0, default.out)
    assert all(result_id in outcome.out for result_id in IDS)


def test_a_retraction_is_shown_with_its_own_time(skws: Skws, tmp_path: Path) -> None:
    row = '"row": {"did": 1, "name": "Quentin Tarantino"}'
    replay = tmp_path / "stream.jsonl"
    lines = [
        f'{{"relation": "director", "time": {t}, "op": "{op}", {row}}}' for t, op in ((5, "+"), (65, "-"))
    ]
    replay.write_text("\n".join(lines) + "\n")
    command = ("search", "tarantino", "-s", SCHEMA, "-r", replay, "--engine", "local", "-q")
    output = skws(*command).out.splitlines()
    assert [line.split()[:2] for line in output[1:]] == [
        ["+", "1970-01-01T00:00:05Z"],
        ["-", "1970-01-01T00:01:05Z"],
    ]
