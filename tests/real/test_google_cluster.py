"""Patterns over the public Google cluster traces, compared with plain loops over the events."""

from __future__ import annotations

import csv
import json
from collections import defaultdict
from itertools import combinations

import pytest

from skws.formats import BadRecordLog, Replay
from skws.queries.partitioning.parts import Part, Partitioning
from skws.queries.patterns.pattern_text import text_match
from skws.queries.session import Session
from skws.replay_search import Search
from skws.results.result import LiveResult
from skws.spec.job import Job
from skws.spec.query_spec import PATTERN, Query, Stream
from skws_patterns.hcq import parse_conjunctive_query
from skws_patterns.hcq_automaton import automaton_of
from skws_patterns.language.compile import compile_pattern
from skws_patterns.language.pattern_parser import parse_pattern
from skws_patterns.tuple_evaluator import TupleEvaluator
from skws_schema.errors import PatternError
from skws_schema.model import Attribute, AttributeType, Relation, Row, Schema
from skws_schema.yaml.load import load_schema
from skws_windows.window import CountWindow, parse_window
from tests.patterns.hierarchical_queries import is_hierarchical
from tests.places import DATA, ROOT

FOLDER = DATA / "google-cluster"
pytestmark = pytest.mark.skipif(not FOLDER.is_dir(), reason=f"the public data sets are not at {FOLDER}")

# As declared with the data.
NAMES = ("job", "task", "machine", "status", "priority", "event_number")
SCHEMA = Schema("cluster", (Relation("TASK", tuple(Attribute(n, AttributeType.INTEGER) for n in NAMES)),), ())
JOB, MACHINE, STATUS = 0, 2, 3


def events(number: str) -> list[Row]:
    """The events of one file; its header lacks the last name. An event without a machine joins nothing."""
    (path,) = FOLDER.glob(f"*query{number}*.csv")
    with path.open(newline="") as file:
        rows = list(csv.reader(file))[1:]
    complete_rows = [row[1:] for row in rows if len(row) == len(NAMES) + 1]
    return [tuple(int(float(value)) if value else None for value in row) for row in complete_rows]


def count(pattern: str, rows: list[Row], window: int) -> int:
    pcea = compile_pattern(parse_pattern(pattern, SCHEMA), SCHEMA, text_match(SCHEMA)).pcea
    evaluator = TupleEvaluator(pcea, 1, CountWindow(window))
    total = 0
    for row in rows:
        if evaluator.update(0, row):
            results = list(evaluator.results())
            assert len(set(results)) == len(results) == evaluator.count()
            total += len(results)
    return total


@pytest.mark.slow
def test_the_first_query_finds_the_results_of_loops() -> None:
    """Within 100 events of one job on one machine: status 1, 5, 1; in this order, and in any order."""
    rows = events("1")
    by_task: dict[tuple[object, object], list[int]] = defaultdict(list)
    for position, row in enumerate(rows):
        if row[STATUS] in (1, 5) and row[MACHINE] is not None:
            by_task[row[JOB], row[MACHINE]].append(position)
    ordered_count = unordered_count = 0
    for positions in by_task.values():
        for first, *later in (positions[i : i + 101] for i in range(len(positions))):
            neighbors = [position for position in later if position - first <= 100]
            for pair in combinations(neighbors, 2):
                triple = (first, *pair)
                statuses = [rows[position][STATUS] for position in triple]
                ordered_count += statuses == [1, 5, 1]
                unordered_count += 2 * (
                    sorted(map(str, statuses)) == ["1", "1", "5"]
                )  # a and c are exchanged
    where = (
        "where a.status = 1 and b.status = 5 and c.status = 1 "
        "and a.job = b.job = c.job and a.machine = b.machine = c.machine"
    )
    assert ordered_count > 100
    assert count(f"TASK a ; TASK b ; TASK c {where}", rows, 100) == ordered_count
    assert count(f"TASK a AND TASK b AND TASK c {where}", rows, 100) == unordered_count


@pytest.mark.check
def test_the_second_query_finds_the_results_of_loops() -> None:
    """Four failures on one machine within 100 events."""
    rows = events("2")[:1500]
    failures: dict[object, list[int]] = defaultdict(list)
    expected = 0
    for position, row in enumerate(rows):
        if row[STATUS] == 4 and row[MACHINE] is not None:
            before = [p for p in failures[row[MACHINE]] if position - p <= 100]
            expected += len(before) * (len(before) - 1) * (len(before) - 2) // 6
            failures[row[MACHINE]].append(position)
    where = "where a.machine = b.machine = c.machine = d.machine " + "".join(
        f"and {variable}.status = 4 " for variable in "abcd"
    )
    assert expected > 100
    assert count(f"TASK a ; TASK b ; TASK c ; TASK d {where}", rows, 100) == expected


def test_the_third_query_is_not_hierarchical() -> None:
    text = "TASK a AND TASK b AND TASK c where a.job = c.job and a.machine = b.machine"
    with pytest.raises(PatternError, match="cannot be compared"):
        compile_pattern(parse_pattern(text, SCHEMA), SCHEMA, text_match(SCHEMA))
    formal = "Q(j, m) <- TASK(j, _, m, 1, _, _), TASK(_, _, m, 1, _, _), TASK(j, _, _, 2, _, _)"
    assert not is_hierarchical(parse_conjunctive_query(formal, SCHEMA))


def test_one_event_may_be_a_and_c_in_the_formal_first_query() -> None:
    rows = events("1")[:3000]
    atoms = ", ".join(f"TASK(j, _, m, {status}, _, _)" for status in (1, 5, 1))
    query = parse_conjunctive_query(f"Q(j, m) <- {atoms}", SCHEMA)
    evaluator = TupleEvaluator(automaton_of(query), 1, CountWindow(100))
    total = 0
    for row in rows:
        evaluator.update(0, row)
        total += evaluator.count()
    where = "a.job = b.job and a.machine = b.machine and a.status = 1 and b.status = 5"
    pairs = count(f"TASK a AND TASK b where {where}", rows, 100)
    rest = " and b.job = c.job and b.machine = c.machine and c.status = 1"
    assert total == pairs + count(f"TASK a AND TASK b AND TASK c where {where}{rest}", rows, 100) > 100


STACKEXCHANGE = DATA / "stackexchange-ai" / "csv"
STACKEXCHANGE_SCHEMA = ROOT / "examples" / "stackexchange" / "schema.yaml"
PATTERNS = {
    "answered": 'Posts q ; Posts a where q.Id = a.ParentId and q:"singularity"',
    "thanked": 'Posts q ; (Posts a AND Comments c) where q.Id = a.ParentId = c.PostId and c:"thanks"',
    "rooted": 'Posts p ; Comments c where p.Id = c.PostId and c:"neural"',
    "formal": 'Q(p, u) <- Comments(_, p, _, _, _, u), PostTags(p, "philosophy", _), PostLinks(_, _, p, _, _)',
    "soon": 'Posts q ; Comments c where q.Id = c.PostId and c:"answer" within 1 hour',
}


@pytest.mark.slow
def test_patterns_beside_keywords_on_two_shards_have_the_results_of_a_search() -> None:
    schema = load_schema(STACKEXCHANGE_SCHEMA)
    stream = Stream(schema, parse_window(schema.window))
    shards = [Session(stream, Part(number, 2, Partitioning.ROOTS)) for number in range(2)]
    for shard in shards:
        for name, text in PATTERNS.items():
            shard.add(Query(text, kind=PATTERN).named(name, 5))
        shard.add(Query('searle "chinese room"').named("keywords", 3))
    results: list[LiveResult] = []
    log = BadRecordLog()
    replay = Replay.open(STACKEXCHANGE, schema)
    for batch in replay.batches(log):
        for shard in shards:
            results += shard.take(batch)
    for text in PATTERNS.values():
        expected = sorted(map(_unnamed, Search(_request(text)).results()))
        assert len(expected) > 5
        assert sorted(_unnamed(result) for result in results if result.query == text) == expected
    assert any(result.query not in PATTERNS.values() for result in results)


def _unnamed(result: LiveResult) -> str:
    """A result as JSON without the name of its query, which is its text in a search over files."""
    return json.dumps({**result.to_dict(), "name": None}, sort_keys=True)


def _request(text: str) -> Job:
    return Job.search(Query.of_pattern(text), load_schema(STACKEXCHANGE_SCHEMA), STACKEXCHANGE)
