"""Explain counts the networks of CNGen and the pruned branches, and its graphs are well formed."""

from __future__ import annotations

import os
import re
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
from hypothesis import given

from bench.load import HEAVY
from skws.explain.branch import Branch, Role, to_dot, to_svg, to_text
from skws.explain.explanation import Explanation, explain, shares
from skws.explain.observed import Observed
from skws.explain.replay_run import observe
from skws.explain.sections import count_mesh, pruned_by_keys
from skws.formats import BadRecordLog, Replay
from skws.keywords.parse import parse_query
from skws.keywords.plan import Plan
from skws.spec.enums import OnError
from skws_mesh.mesh_kinds import MeshChoice, MeshKind
from skws_mesh.paper import make_mesh
from skws_schema.errors import UsageError
from skws_schema.model import Attribute, AttributeType, Join, Relation, Schema
from skws_schema.yaml.load import load_schema
from skws_windows.window import Unbounded, parse_window, window_text
from tests.places import ROOT
from tests.strategies import examples, schemas

GOLDEN = Path(__file__).parent / "golden"
MOVIES = ROOT / "examples" / "movies"


def plan_of(query: str, schema: Schema, max_size: int = 4) -> Plan:
    return Plan(schema, parse_query(query, schema), Unbounded(), max_size)


def test_explain_does_not_shard_tables_by_key() -> None:
    tables = load_schema(MOVIES / "schema.yaml")
    tables = replace(tables, relations=tuple(replace(relation, table=True) for relation in tables.relations))
    text = to_text(explain(plan_of("tarantino travolta", tables)).branches)
    assert "not by key: all relations are tables, which every task has" in text
    assert "by key: ;" not in text


def network_texts(branches: tuple[Branch, ...]) -> list[str]:
    networks = [b.text for b in branches if b.role is Role.NETWORK]
    return networks + [text for b in branches for text in network_texts(b.below)]


def branch_count(branches: tuple[Branch, ...]) -> int:
    return sum(1 + branch_count(b.below) for b in branches)


@pytest.mark.parametrize("case", ["scoped_and_cut", "after_replay"])
def test_explain_prints_the_golden_texts(case: str) -> None:
    """Set SKWS_GOLDEN=write to rewrite them."""
    schema = load_schema(MOVIES / "schema.yaml")
    query, size, limit = {
        "scoped_and_cut": ('actor:travolta "pulp fiction" dir* the -trailer', 5, 6),
        "after_replay": ("tarantino travolta", 4, 40),
    }[case]
    plan = plan_of(query, schema, size)
    replay = Replay.open(MOVIES / "replay.jsonl", schema)
    observed = observe(plan, replay, BadRecordLog(OnError.FAIL, None)) if case == "after_replay" else None
    text = to_text(explain(plan, limit, observed).branches)
    golden = GOLDEN / f"{case}.txt"
    if os.environ.get("SKWS_GOLDEN") == "write":
        golden.write_text(text)
    assert text == golden.read_text()


@examples(40)
@given(schema=schemas())
def test_explained_counts_equal_those_of_generator_and_mesh(schema: Schema) -> None:
    if not any(relation.search for relation in schema.relations):
        return
    plan = plan_of("alpha beta", schema)
    count = count_mesh(plan.generator())
    networks = list(plan.generator().networks())
    assert count.complete
    assert sum(count.sizes) == len(networks)
    assert count.joins_apart == sum(len(tree.relations) - 1 for tree in networks)
    assert count.useful == make_mesh(plan.generator(), plan.lifespans, MeshChoice(MeshKind.FULL)).operators
    texts = network_texts(explain(plan, limit=10**6).branches)
    assert len(texts) == len(networks)


@examples(40)
@given(schema=schemas())
def test_networks_pruned_by_keys_are_counted(schema: Schema) -> None:
    if not any(relation.search for relation in schema.relations):
        return
    generator = plan_of("alpha beta", schema).generator()
    relations = tuple(Relation(r.name, r.attributes, (), r.search) for r in schema.relations)
    keyless = plan_of("alpha beta", Schema("keyless", relations, schema.joins)).generator()
    pruned = len(list(keyless.networks())) - len(list(generator.networks()))
    assert len(pruned_by_keys(generator)[0]) == pruned


@pytest.mark.parametrize("limit", [1, 7, 40])
def test_networks_beyond_the_limit_are_counted(limit: int) -> None:
    explanation = explain(plan_of("nolan caine", HEAVY.schema(), 5), limit)
    text = to_text(explanation.branches)
    hidden_count = sum(
        int(n.replace(",", "")) for n in re.findall(r"\.\.\. ([\d,]+) more networks?$", text, re.M)
    )
    assert len(network_texts(explanation.branches)) == limit
    assert hidden_count + limit == 1120
    assert "at most 5 relations: 1,120\n" in text


def test_counting_stops_at_a_bound_and_reports_it() -> None:
    plan = plan_of("nolan caine pulp", HEAVY.schema(), 5)
    text = to_text(explain(plan, 5, most=1_000).branches)
    assert "at least" in text
    assert "counting stopped at" in text
    assert re.search(r"\.\.\. \d+ roots? not counted", text)
    assert sum(count_mesh(plan.generator()).sizes) == 78_874


def test_explain_of_a_replay_shows_waiting_partials_and_results() -> None:
    schema = load_schema(MOVIES / "schema.yaml")
    plan = plan_of("tarantino travolta", schema, 5)
    observed = observe(plan, Replay.open(MOVIES / "replay.jsonl", schema), BadRecordLog(OnError.FAIL, None))
    text = to_text(explain(plan, 1000, observed).branches)
    partial_count = sum(int(n) for n in re.findall(r": (\d+) waiting$", text, re.M))
    assert observed.waiting is not None
    assert observed.tuples == 769
    assert partial_count == sum(observed.waiting.values()) > 0
    assert sum(int(n) for n in re.findall(r"^ +=>.*: (\d+) results?$", text, re.M)) == 2


def test_an_operator_with_expired_tuples_is_not_idle(tmp_path: Path) -> None:
    schema = load_schema(MOVIES / "schema.yaml")
    query = parse_query("tarantino travolta", schema)
    plan = Plan(schema, query, parse_window("1 minute"), 2)
    replay = tmp_path / "stream.jsonl"
    replay.write_text(
        '{"relation": "director", "time": 0, "row": {"did": 1, "name": "Quentin Tarantino"}}\n'
        '{"relation": "actor", "time": 0, "row": {"aid": 2, "name": "John Travolta"}}\n'
        '{"relation": "actor", "time": 3600, "row": {"aid": 1, "name": "Uma Thurman"}}\n'
    )
    observed = observe(plan, Replay.open(replay, schema), BadRecordLog(OnError.FAIL, None))
    text = to_text(explain(plan, 40, observed).branches)
    assert "after 3 rows: 1 live, 0 partials waiting, 1 operator touched, 0 results\n" in text
    assert "    director{tarantino}: 0 waiting\n" in text
    assert "    movie{tarantino}: idle\n" in text
    assert "asleep at the end, because no live row has 'tarantino' or 'travolta'\n" in text


def test_sleeping_joins_of_the_full_mesh_have_a_reason(tmp_path: Path) -> None:
    attributes = (Attribute("t", AttributeType.TEXT), Attribute("x", AttributeType.INTEGER))
    relations = tuple(Relation(name, attributes, search=("t",)) for name in "abc")
    joins = tuple(Join(left + right, left, right, (("x", "x"),)) for left, right in ("ab", "bc"))
    schema = Schema("chain", relations, joins)
    plan = Plan(schema, parse_query("nolan caine", schema), Unbounded(), 3, mesh=MeshChoice(MeshKind.FULL))
    replay = tmp_path / "stream.jsonl"

    def observe_and_explain(
        plan_to_run: Plan, relation: str = "", words: str = ""
    ) -> tuple[Observed, Explanation]:
        if relation:
            with replay.open("a") as file:
                file.write(f'{{"relation": "{relation}", "time": 0, "row": {{"t": "{words}", "x": 1}}}}\n')
        observed = observe(plan_to_run, Replay.open(replay, schema), BadRecordLog(OnError.FAIL, None))
        return observed, explain(plan_to_run, 100, observed)

    first, explanation = observe_and_explain(plan, "a", "nolan")
    text = to_text(explanation.branches)
    reason = "every operator above it sleeps"
    assert f"+ b{{}} to a{{nolan}} (ab): 0 waiting, asleep: no b{{}} is alive, and {reason}\n" in text
    assert "=> a{nolan} - b{caine}: 0 results, asleep: no b{caine} is alive\n" in text
    assert f"{len(first.asleep)} joins asleep at the end\n" in text
    for output in (text, to_dot(explanation.clusters), to_svg(explanation.clusters)):
        assert output.count("asleep: ") == len(first.asleep)
    second, explanation = observe_and_explain(plan, "b", "pad")
    assert f"+ b{{}} to a{{nolan}} (ab): 0 waiting, asleep: {reason}\n" in to_text(explanation.branches)
    assert len(second.asleep) == len(first.asleep)  # the output operator is awake, other joins have no input
    third, explanation = observe_and_explain(plan, "c", "caine")
    text = to_text(explanation.branches)
    assert "+ b{} to a{nolan} (ab): 1 waiting\n" in text
    assert "=> a{nolan} - b{} - c{caine}: 1 result\n" in text
    assert len(third.asleep) < len(second.asleep)
    for mesh in (MeshChoice(MeshKind.FULL, demand=False), MeshChoice(MeshKind.PARTIAL)):
        assert not observe_and_explain(replace(plan, mesh=mesh))[0].asleep
    window = parse_window("open when event = a close when event = b")
    with pytest.raises(UsageError, match="does not support window expressions"):
        observe_and_explain(replace(plan, window=window))


def test_graphs_have_a_node_for_every_branch() -> None:
    clusters = explain(plan_of('nolan "a & b"', load_schema(MOVIES / "schema.yaml")), 9).clusters
    total = branch_count(clusters)
    dot = to_dot(clusters)
    node = r'  n\d+ \[label="(?:[^"\\]|\\.)*", [a-z0-9=, ]+\];'
    lines = dot.splitlines()[2:-1]
    assert all(re.fullmatch(rf"{node}|  n\d+ -> n\d+;", line) for line in lines)
    assert sum("->" not in line for line in lines) == total
    svg = ET.fromstring(to_svg(clusters))
    texts = [e.text for e in svg.iter("{http://www.w3.org/2000/svg}text")]
    assert len(texts) == total
    assert clusters[0].text in texts


def test_shares_use_the_whole_limit() -> None:
    assert shares([1, 100, 3, 0], 10) == [1, 6, 3, 0]
    assert shares([5, 5, 5], 2) == [1, 1, 0]
    assert shares([1, 2], 50) == [1, 2]


@pytest.mark.parametrize("text", ["20 days", "1 hour", "90 minutes", "1.5 s", "1000 tuples", "none"])
def test_window_texts_are_parsed_back(text: str) -> None:
    assert window_text(parse_window(text)) == text
