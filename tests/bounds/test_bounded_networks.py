"""Candidate networks as queries: the memory they need if nothing expires."""

from __future__ import annotations

import random
import re
from dataclasses import dataclass, replace
from itertools import pairwise

import pytest

from skws.explain.branch import to_text
from skws.explain.explanation import explain
from skws.keywords.parse import parse_query
from skws.keywords.plan import Plan
from skws.queries.keywords.memory_guard import network_query, network_verdict
from skws_bounds.modified import conjunctions, modified
from skws_bounds.repairs import repairs
from skws_bounds.verdict import check
from skws_mesh.networks import CandidateNetwork
from skws_schema.model import Attribute, AttributeType, Join, Relation, Schema
from skws_windows.window import parse_window
from tests.bounds.bounds_queries import INTEGERS, sql, unlimited
from tests.strategies import seeds


def _relation(name: str, *attributes: Attribute, table: bool = False) -> Relation:
    text = Attribute("name", AttributeType.TEXT)
    return Relation(name, (text, *attributes), search=("name",), table=table)


def _integer(name: str, high: int | None = None) -> Attribute:
    return Attribute(name, AttributeType.INTEGER, None if high is None else 0, high)


def _schema(*, table: bool = False, high: int | None = None) -> Schema:
    relations = (
        _relation("director", _integer("did", high), table=table),
        _relation("movie", _integer("did", high), _integer("sequel_of", high), _integer("mid", high)),
    )
    joins = (
        Join("made", "director", "movie", (("did", "did"),)),
        Join("sequel", "movie", "movie", (("sequel_of", "mid"),)),
    )
    return Schema("films", relations, joins)


def _networks(
    schema: Schema, query: str = "one two", window: str = "none"
) -> tuple[Plan, list[CandidateNetwork]]:
    plan = Plan(schema, parse_query(query, schema), parse_window(window), 2)
    return plan, [CandidateNetwork.of(tree) for tree in plan.generator().networks()]


def _verdicts(schema: Schema) -> dict[str, bool | None]:
    plan, networks = _networks(schema)
    return {n.text(schema, plan.keywords): network_verdict(n, schema).bounded for n in networks}


def test_a_single_tuple_needs_no_memory_and_joined_streams_do() -> None:
    verdicts = _verdicts(_schema())
    assert verdicts["movie{one, two}"] is True
    assert verdicts["director{one} - movie{two}"] is False


def test_a_stream_joined_with_a_table_needs_no_memory_of_the_stream() -> None:
    verdicts = _verdicts(_schema(table=True))
    assert verdicts["director{one} - movie{two}"] is True
    assert [text for text, bounded in verdicts.items() if not bounded] == [
        "movie{one} -(sequel)-> movie{two}",
        "movie{one} <-(sequel)- movie{two}",
    ]


def test_bounds_of_join_attributes_leave_whole_tuples_to_be_kept() -> None:
    plan, networks = _networks(_schema(high=9))
    (network,) = (n for n in networks if n.text(plan.schema, plan.keywords) == "director{one} - movie{two}")
    failed = network_verdict(network, plan.schema).failures
    assert {(f.condition, *f.streams) for f in failed} == {("C3", "director"), ("C3", "movie")}


def test_nodes_of_one_relation_are_streams_of_their_own() -> None:
    plan, networks = _networks(_schema())
    query = next(network_query(n, plan.schema) for n in networks if len(set(n.relations)) < n.size)
    assert [s.alias for s in query.queries[0].streams] == ["movie", "movie_2"]
    (conjunction,) = conjunctions(query.queries[0], unlimited())
    found = modified(conjunction)
    assert found is not None
    assert len(found.nodes) == 2


@pytest.mark.parametrize(("window", "told"), [("none", True), ("20 minutes", False)])
def test_explain_tells_the_memory_of_networks_without_a_window(window: str, told: bool) -> None:
    plan, _ = _networks(_schema(table=True), window=window)
    text = to_text(explain(plan).branches)
    assert ("memory, as nothing expires: 4 of 6 networks bounded" in text) is told, text
    assert ("movie{one} -(sequel)-> movie{two}: not bounded" in text) is told


TIMES = {"s": "i", "t": "j", "u": "k", "v": "l"}


@dataclass(frozen=True)
class Text:
    """A query in parts."""

    columns: tuple[str, ...]
    streams: tuple[str, ...]
    conditions: tuple[str, ...]
    distinct: bool

    def __str__(self) -> str:
        where = f" WHERE {' AND '.join(self.conditions)}" if self.conditions else ""
        columns = ", ".join(self.columns) or "1"
        return f"SELECT {'DISTINCT ' * self.distinct}{columns} FROM {', '.join(self.streams)}{where}"

    def after(self, change: str) -> Text:
        """The query after one change, as a reader would make it."""
        if found := re.match(r"bound (.+): give ", change):
            bounds = tuple(f"{name} {end}" for name in found[1].split(" and ") for end in ("> -50", "< 50"))
            return replace(self, conditions=(*self.conditions, *bounds))
        if found := re.match(r"add a time order: (.+)", change):
            return replace(self, conditions=(*self.conditions, found[1]))
        if found := re.match(r"project (\S+) away", change):
            return replace(self, columns=tuple(c for c in self.columns if c != found[1]))
        if found := re.match(r"leave out the condition (.+)", change):
            assert found[1] in self.conditions
            return replace(self, conditions=tuple(c for c in self.conditions if c != found[1]))
        assert change == "keep duplicates (drop DISTINCT)"
        return replace(self, distinct=False)


def random_text(chance: random.Random) -> Text:
    streams = tuple(chance.sample("stuv", chance.randint(2, 3)))
    attributes = [f"{s}.{a}" for s in streams for a in INTEGERS[s]]
    conditions = [
        f"{one}.{TIMES[one]} {chance.choice('>><=')} {other}.{TIMES[other]}"
        for one, other in pairwise(streams)
        if chance.random() < 0.6
    ]
    for attribute in attributes:
        if chance.random() < 0.4:
            conditions += [f"{attribute} > 0", f"{attribute} < {chance.randint(3, 9)}"]
    for _ in range(chance.randint(1, 3)):
        one, other = chance.sample(attributes, 2)
        conditions.append(f"{one} {chance.choice(['<', '>', '=', '<=', '<>'])} {other}")
    columns = tuple(chance.sample(attributes, chance.randint(0, 2)))
    return Text(columns, streams, tuple(dict.fromkeys(conditions)), chance.random() < 0.4)


@seeds(1, 4)
def test_repairs_do_what_they_say(seed: int) -> None:
    chance, applied, refused = random.Random(seed), 0, 0
    for _ in range(12):
        text = random_text(chance)
        union = sql(str(text))
        verdict = check(union)
        if verdict.bounded:
            continue
        refused += 1
        for repair in repairs(union, verdict):
            mended = text
            for change in str(repair).split(", and "):
                mended = mended.after(change)
            assert check(sql(str(mended))).bounded, f"{text}\n{repair}\n{mended}"
            applied += 1
    assert refused > 3
    assert applied > 5
