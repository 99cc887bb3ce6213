"""Candidate networks run as SQL and as join steps find the results of the engines.

The SQL runs in SQLite, without meshes or windows, so this also checks the engines.
"""

from __future__ import annotations

import random
import sqlite3
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.load import Load
from bench.peers.children import skws_engine
from bench.peers.networks import Step, network_sql, node_table, shared_steps
from bench.peers.outcome import difference, of_peer, of_skws
from bench.peers.task import Comparison
from skws.data.batch import Record
from skws.keywords.parse import parse_query
from skws.keywords.plan import Plan
from skws_mesh.candidate_networks import CandidateNetwork
from skws_schema.model import Attribute, AttributeType, Join, Relation, Row, Schema
from skws_windows.window import TimeWindow
from tests.paper_modes import by_paper
from tests.strategies import WORDS, examples, schemas, seeds, streams


class PeerTuple(NamedTuple):
    """A tuple as a peer stores it: the number of its record, and its keywords, split at spaces."""

    number: int
    record: Record
    keywords: int


Members: TypeAlias = tuple[int, ...]  # numbers of records, in the reading order of the network
NamedResult: TypeAlias = tuple[str, int, tuple[tuple[str, Row], ...]]


def peer_tuples(schema: Schema, words: Sequence[str], records: Iterable[Record]) -> list[PeerTuple]:
    tuples = []
    for number, record in enumerate(records):
        searchable = schema.relations[record.relation].search
        text = str(record.row[0]).split() if searchable else []
        tuples.append(
            PeerTuple(number, record, sum(1 << slot for slot, word in enumerate(words) if word in text))
        )
    return tuples


def by_sqlite(
    plan: Plan, networks: Sequence[CandidateNetwork], tuples: Sequence[PeerTuple], length: int
) -> Iterator[tuple[int, Members]]:
    """Yields (number of the network, members) for every result, in slices of ``length`` ticks."""
    if not tuples:
        return
    window, last = plan.window.end(0), tuples[-1].record.time
    for since in range(tuples[0].record.time, last + 1, length):
        recent = [t for t in tuples if since - window < t.record.time < since + length]
        database = _database(plan, networks, recent)
        for number, network in enumerate(networks):
            for row in database.execute(network_sql(plan.schema, network, window), {"since": since}):
                yield number, row
        database.close()


def _database(
    plan: Plan, networks: Sequence[CandidateNetwork], recent: Sequence[PeerTuple]
) -> sqlite3.Connection:
    database = sqlite3.connect(":memory:")
    nodes = {node for n in networks for node in zip(n.relations, n.keywords, strict=True)}
    for relation, keywords in nodes:
        width = len(plan.schema.relations[relation].attributes)
        columns = ", ".join(["id", "start", *(f"c{c}" for c in range(width))])
        database.execute(f"CREATE TABLE {node_table(relation, keywords)} ({columns})")
    for number, record, keywords in recent:
        if (record.relation, keywords) in nodes:
            values = (number, record.time, *record.row)
            placeholders = ", ".join("?" * len(values))
            table = node_table(record.relation, keywords)
            database.execute(f"INSERT INTO {table} VALUES ({placeholders})", values)
    return database


def by_steps(
    plan: Plan, networks: Sequence[CandidateNetwork], tuples: Sequence[PeerTuple]
) -> Iterator[tuple[int, Members]]:
    """Yields the same from the shared join steps, which read only the listed columns of their left input."""
    steps, last_steps = shared_steps(plan.schema, networks)
    partials: list[list[dict[Any, Any]]] = []
    for step in steps:
        lefts: list[dict[Any, Any]] = [{"ids": ()}] if step.left is None else partials[step.left]
        partials.append(list(_join(step, lefts, tuples, plan.window.end(0))))
    for number, step_number in enumerate(last_steps):
        yield from ((number, partial["ids"]) for partial in partials[step_number])


def _join(
    step: Step, lefts: Iterable[dict[Any, Any]], tuples: Iterable[PeerTuple], window: int
) -> Iterator[dict[Any, Any]]:
    for left in lefts:
        ids = left["ids"]
        for number, record, keywords in tuples:
            time = record.time
            oldest, newest = min(left.get("low", time), time), max(left.get("high", time), time)
            if (record.relation, keywords) != (step.relation, step.keywords) or newest - oldest >= window:
                continue
            pairs = [
                (left[place, left_column], record.row[right_column])
                for place, left_column, right_column in step.on
            ]
            if any(a is None or a != b for a, b in pairs) or any(ids[p] == number for p in step.alike):
                continue
            size = len(ids)
            reads = {r: record.row[r[1]] if r[0] == size else left[r] for r in step.reads}
            yield {"ids": (*ids, number), "low": oldest, "high": newest, **reads}


def all_at_once(
    plan: Plan, networks: Sequence[CandidateNetwork], tuples: Sequence[PeerTuple]
) -> Iterator[tuple[int, Members]]:
    return by_sqlite(plan, networks, tuples, 1_000_000)


def by_engine(plan: Plan, records: Iterable[Record]) -> Counter[NamedResult]:
    return Counter(
        (
            result.network,
            round((result.start or 0) * 1_000_000),
            tuple((t.relation, tuple(t.row.values())) for t in result.tuples),
        )
        for result in by_paper(plan).process(records)
    )


def named_results(
    plan: Plan,
    networks: Sequence[CandidateNetwork],
    records: Sequence[Record],
    results: Iterable[tuple[int, Members]],
) -> Counter[NamedResult]:
    """Results in the form of ``by_engine``."""
    relations = plan.schema.relations
    return Counter(
        (
            networks[number].text(plan.schema, plan.keywords),
            max(records[m].time for m in members),
            tuple((relations[records[m].relation].name, records[m].row) for m in members),
        )
        for number, members in results
    )


def check(plan: Plan, records: Sequence[Record], length: int, most: int) -> int:
    """Compares all three on the first ``most`` networks; returns the number of results."""
    networks = [CandidateNetwork.of(tree) for tree in plan.generator().networks()][:most]
    names = {network.text(plan.schema, plan.keywords) for network in networks}
    assert len(names) == len(networks)  # results are distinguished by the network's name
    tuples = peer_tuples(plan.schema, plan.keywords, records)
    expected = Counter({s: n for s, n in by_engine(plan, records).items() if s[0] in names})
    assert named_results(plan, networks, records, by_sqlite(plan, networks, tuples, length)) == expected
    assert named_results(plan, networks, records, by_steps(plan, networks, tuples)) == expected
    return expected.total()


@given(st.data())
@examples(200)
def test_oracle_sql_and_join_steps_find_the_results_of_the_engine(data: st.DataObject) -> None:
    words = WORDS[: data.draw(st.integers(1, 3))]
    schema = data.draw(schemas(keys=False))
    records = [r for r in data.draw(streams(schema, len(words))) if not r.delete]
    window, length = data.draw(st.integers(1, 12)), data.draw(st.integers(1, 20))
    plan = Plan(
        schema, parse_query(" ".join(words), schema), TimeWindow(window), data.draw(st.integers(1, 4))
    )
    check(plan, records, length, most=150)


def relation(name: str) -> Relation:
    columns = (Attribute("x", AttributeType.INTEGER), Attribute("y", AttributeType.INTEGER))
    return Relation(name, (Attribute("t", AttributeType.TEXT), *columns), search=("t",))


@seeds(1, 4)
def test_a_tuple_does_not_join_itself(seed: int) -> None:
    """Two adjacent nodes with the same label, and values that would join a tuple with itself."""
    schema = Schema("self", (relation("r0"),), (Join("j", "r0", "r0", (("x", "y"),)),))
    source = random.Random(seed)
    texts = source.sample(["pad", "pad", *WORDS[:2]] * 4, 16)
    rows = [(text, source.randint(0, 1), source.randint(0, 1)) for text in texts]
    plan = Plan(schema, parse_query(" ".join(WORDS[:2]), schema), TimeWindow(7), 4)
    assert check(plan, [Record(0, time, row) for time, row in enumerate(rows)], 5, most=1000) > 20


@pytest.mark.check
@seeds(1, 4)
def test_a_branch_joins_the_member_it_is_attached_to(seed: int) -> None:
    """A centre with three neighbours: a later step reads members other than the last."""
    pairs = [("r1", "x", "x"), ("r2", "y", "y"), ("r3", "x", "y")]
    joins = tuple(
        Join(f"j{name}", "r0", name, ((left_column, right_column),))
        for name, left_column, right_column in pairs
    )
    schema = Schema("star", tuple(relation(f"r{i}") for i in range(4)), joins)
    source = random.Random(seed)
    texts = ("pad", *WORDS, *WORDS)
    rows = [(source.choice(texts), source.randint(0, 2), source.randint(0, 2)) for _ in range(60)]
    plan = Plan(schema, parse_query(" ".join(WORDS), schema), TimeWindow(40), 4)
    records = [Record(source.randrange(4), time, row) for time, row in enumerate(rows)]
    assert check(plan, records, 10, most=2000) > 20
    networks = [CandidateNetwork.of(tree) for tree in plan.generator().networks()]
    tuples = peer_tuples(schema, WORDS, records)
    branched = [network for network in networks if network.parents == (-1, 0, 1, 1)]
    # One network at a time, so that no other network makes a step keep the columns that this one reads.
    step_results, query_results = (
        [list(by(plan, [n], tuples)) for n in branched] for by in (by_steps, all_at_once)
    )
    assert [Counter(results) for results in step_results] == [Counter(results) for results in query_results]
    assert sum(map(len, query_results)) > 0


@pytest.mark.slow
@pytest.mark.parametrize(
    "load", [Load(5, 2, 2, 4, 0.05, 20), Load(4, 1, 3, 4, 0.1, 15), Load(8, 3, 2, 3, 0.03, 12)]
)
def test_oracle_sql_finds_the_results_of_the_default_engine(load: Load, tmp_path: Path) -> None:
    replay, ours, theirs = (tmp_path / name for name in ("load.jsonl", "ours", "theirs"))
    load.write(replay, 240)
    comparison = Comparison.of(load, 60)
    skws_engine.run({**comparison.task(replay), "results": str(ours)}, lambda: None)
    tuples = peer_tuples(comparison.plan.schema, comparison.plan.keywords, load.records(240))
    results = by_sqlite(comparison.plan, comparison.networks, tuples, 60_000_000)
    theirs.write_text("".join(f"{number} {' '.join(map(str, members))}\n" for number, members in results))
    expected = of_skws(ours, replay)
    assert expected.total() > 20
    assert difference(expected, of_peer(theirs, comparison)) is None
