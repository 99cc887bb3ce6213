"""A tuple with very many join partners: delta joins begin at the words, and have the results of the mesh."""

from __future__ import annotations

import random
import tracemalloc
from collections import defaultdict
from dataclasses import replace

import pytest

from skws.data.batch import Record
from skws.keywords.parse import parse_query
from skws.keywords.plan import Plan
from skws.queries.keywords.stream_engine import StreamEngine
from skws.results.result import Result
from skws.spec.enums import EvaluatorName
from skws_mesh.delta import walks
from skws_schema.model import Attribute, AttributeType, Join, Relation, Schema
from skws_windows.window import CountWindow, TimeWindow, Unbounded, Window
from tests.oracles.oracle import lines
from tests.spark.streaming.test_oracle_shards import SCHEMA, random_records
from tests.strategies import combinations, seeds, some

KEY = Attribute("docket", AttributeType.INTEGER)
TEXT = Attribute("t", AttributeType.TEXT)
ID = Attribute("id", AttributeType.INTEGER)
COURTS = Schema(
    "courts",
    (
        Relation("docket", (KEY, TEXT), key=("docket",), search=("t",)),
        Relation("attorney", (ID, KEY, TEXT), key=("id",), search=("t",)),
        Relation("filing", (ID, KEY, TEXT), key=("id",), search=("t",)),
    ),
    (
        Join("of", "attorney", "docket", (("docket", "docket"),)),
        Join("in", "filing", "docket", (("docket", "docket"),)),
    ),
    "none",
)
NAMES = tuple(f"name{number}" for number in range(60))


def stream(rng: random.Random) -> list[Record]:
    """A docket that gets hundreds of attorneys, a small docket, and updates of the large one's name."""
    records = [Record(0, 1, (1, "acme trial")), Record(0, 1, (2, "minor trial"))]
    for number in range(240):
        docket = 2 if number % 40 == 0 else 1
        records.append(Record(1 + number % 2, 2 + number, (number, docket, " ".join(rng.sample(NAMES, 2)))))
    for update, name in enumerate(("beta trial", "acme trial", "name3 trial")):
        old_row = records[0].row if not update else records[-1].row
        records.append(Record(0, 300 + update, old_row, delete=True))
        records.append(Record(0, 300 + update, (1, name)))
    records += [Record(1, 400, records[number].row, delete=True) for number in range(2, 80, 2)]
    return records


def changes_of(results: list[Result]) -> list[tuple[str, str, str, float | None]]:
    return sorted((r.op, r.query, r.id, r.end) for r in results)


@combinations("batch, size", [1000, 7], [2, 3, 4])
def test_updates_of_a_hub_have_the_results_of_the_mesh(batch: int, size: int) -> None:
    rng = random.Random(3)
    records = stream(rng)
    texts = [" ".join(rng.sample(NAMES, 2)) for _ in range(25)] + [
        "acme name1",
        "beta name2 -name7",
        "trial",
    ]
    plans = {text: Plan(COURTS, parse_query(text, COURTS), Unbounded(), size) for text in texts}
    by_mesh, by_delta = (StreamEngine(COURTS, Unbounded()) for _ in range(2))
    by_mesh.add_all(list(plans.values()))
    delta_plans = {
        text: Plan(COURTS, plan.query, Unbounded(), size, evaluated_by=EvaluatorName.DELTA)
        for text, plan in plans.items()
    }
    by_delta.add_all(list(delta_plans.values()))
    count = 0
    for start in range(0, len(records), batch):
        chunk = records[start : start + batch]
        expected = changes_of(list(by_mesh.process(chunk)))
        assert changes_of(list(by_delta.process(chunk))) == expected
        count += len(expected)
    assert count > 50
    for text in texts[:5]:
        by_delta.remove(text)
        snapshot = changes_of(by_delta.add(delta_plans[text]))
        by_mesh.remove(text)
        assert snapshot == changes_of(by_mesh.add(plans[text]))


WORDS = ("alpha", "beta", "no", "pad", "(alpha OR no)", "al*")
LIMITS = ("", "", " -beta", " plain.x<3", " -link:")


@pytest.mark.parametrize("limited", [False, True])
@pytest.mark.parametrize("window", [TimeWindow(30), CountWindow(15), Unbounded()])
@seeds(1, 24)
def test_delta_joins_and_mesh_agree_on_trees(
    window: Window, limited: bool, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    if limited:  # few walks are made together, without those that lead nowhere
        monkeypatch.setattr(walks, "MOST_TRIES", 0)
        monkeypatch.setattr(walks, "MOST_ROWS", 40)
    rng = random.Random(seed)
    max_size = rng.choice([1, 2, 3, 4, 5])
    records = random_records(rng, 30 if isinstance(window, Unbounded) else 60, rng.choice([2, 4, 6]))
    sizes: dict[str, int] = {}
    for _ in range(6):
        words = rng.sample(WORDS, rng.choice([1, 2, 3, 3, 3, 4]))
        exclusions = [each for each in LIMITS if each[2:] not in words]
        sizes[" ".join(words) + rng.choice(exclusions)] = rng.randrange(1, max_size + 1)
    mesh_plans = {text: Plan(SCHEMA, parse_query(text, SCHEMA), window, size) for text, size in sizes.items()}
    delta_plans = {text: replace(plan, evaluated_by=EvaluatorName.DELTA) for text, plan in mesh_plans.items()}
    by_mesh, by_joins = (StreamEngine(SCHEMA, window) for _ in range(2))
    step = rng.choice([1, 7, 30])
    running: set[str] = set()
    for number, start in enumerate(range(0, len(records), step)):
        # Queries are added singly or together, removed, and added again.
        removed = [text for text in sorted(running) if rng.random() < 0.1]
        added = [text for text in sizes if text not in running and (not number or rng.random() < 0.3)]
        running = (running - set(removed)) | set(added)
        for text in removed:
            by_mesh.remove(text)
            by_joins.remove(text)
        if rng.random() < 0.5:  # new words are then looked up in the index of the first live tuples
            by_joins.prepare_searches(rng.choice([3, 1000]))
        snapshots = [
            lines(engine.add_all([plans[text] for text in added]))
            for engine, plans in ((by_mesh, mesh_plans), (by_joins, delta_plans))
        ]
        assert snapshots[0] == snapshots[1]
        chunk = records[start : start + step]
        assert lines(list(by_joins.process(chunk))) == lines(list(by_mesh.process(chunk)))
    assert by_joins.by_delta_joins == len(running)


def test_the_size_of_a_query_applies_to_its_own_trees() -> None:
    """Among 16 tuples that join each other in three ways there are a million trees of five nodes."""
    relation = Relation("a", (KEY, TEXT), search=("t",))
    schema = Schema(
        "joined", (relation,), tuple(Join(f"j{n}", "a", "a", (("docket", "docket"),)) for n in range(3))
    )
    words = ("alpha", "beta", "gamma")
    records = [Record(0, n, (1, words[n] if n < 3 else "pad")) for n in range(16)]
    outputs = []
    for evaluator in (EvaluatorName.MESH, EvaluatorName.DELTA):
        engine = StreamEngine(schema, Unbounded())
        for text, size in (("alpha beta gamma", 3), ("delta epsilon", 5)):
            engine.add(Plan(schema, parse_query(text, schema), Unbounded(), size, evaluated_by=evaluator))
        outputs.append(lines(list(engine.process(records))))
    assert outputs[0] == outputs[1]
    assert len(outputs[0]) == 3 * 6 * 6


ALERTS = {
    **dict.fromkeys(
        ("w1 w2 w3", "w4 w5 w6", "w7 (w8 OR w9) w10", "smith w11 w12", "smith jones w13", "w14 w14* w15"), 4
    ),
    **dict.fromkeys(("w1 w2 w3 w4", "w16 w17 w18 -firm3"), 5),
    **dict.fromkeys(("w1 w16 -w17", "w2 w18", "smith against w2"), 3),
}


@pytest.mark.slow
def test_keywords_among_ten_thousand_attorneys_have_the_results_of_the_mesh() -> None:
    """The results of a mesh per query, while the hub and its join partners change."""
    window = Unbounded()
    hub = Record(0, 1, (1, "smith against jones"))
    attorneys = [Record(1, 1, (n, 1, f"w{n % 1250} firm{n % 7}")) for n in range(10_000)]
    changes = [
        [hub._replace(time=2, row=(1, "smith and miller against jones"))],
        [Record(1, 3, (10_000, 1, "w1 w3 w4")), Record(1, 3, (10_001, 1, "w2")), Record(2, 3, (1, 1, "w16"))],
        [attorneys[2]._replace(time=4, delete=True), Record(1, 4, (10_002, 2, "w3"))],
        [hub._replace(time=5, row=(1, "smith against jones")), Record(0, 5, (2, "w1 w2"))],
    ]
    plans = {
        text: Plan(COURTS, parse_query(text, COURTS), window, size, evaluated_by=EvaluatorName.DELTA)
        for text, size in ALERTS.items()
    }
    by_delta = StreamEngine(COURTS, window)
    list(by_delta.process([*attorneys, hub]))
    outputs = [lines(by_delta.add_all(list(plans.values())))]
    outputs += [lines(list(by_delta.process(chunk))) for chunk in changes]
    assert by_delta.by_delta_joins == len(ALERTS)
    by_mesh = StreamEngine(COURTS, window)
    list(by_mesh.process([*attorneys, hub]))
    meshed = [replace(plan, evaluated_by=EvaluatorName.MESH) for plan in plans.values()]
    expected = [lines(by_mesh.add_all(meshed))]
    expected += [lines(list(by_mesh.process(chunk))) for chunk in changes]
    assert by_mesh.by_delta_joins == 0
    assert outputs == expected
    assert min(map(len, outputs)) > 100


def test_many_tuples_and_queries_lose_no_result() -> None:
    """Trees around 600 dockets for 30 queries, which is more than one lookup handles."""
    names = ("one", "two", "three")
    records = [Record(0, 1, (number, f"case {number}")) for number in range(600)]
    records += [Record(1, 1, (3 * n + m, n, names[m])) for n in range(600) for m in range(3)]
    queries = [parse_query(f"one two three -nobody{number}", COURTS) for number in range(30)]
    plans = [Plan(COURTS, query, Unbounded(), 4, evaluated_by=EvaluatorName.DELTA) for query in queries]
    engine = StreamEngine(COURTS, Unbounded())
    engine.add_all([replace(plan, name=f"before {number}") for number, plan in enumerate(plans)])
    results = list(engine.process(records))
    results += engine.add_all([replace(plan, max_size=5, name=f"after {n}") for n, plan in enumerate(plans)])
    single = StreamEngine.of(replace(plans[0], evaluated_by=EvaluatorName.MESH))
    expected = [result.id for result in single.process(records)]
    assert len(expected) == 600
    by_query = defaultdict[str, list[str]](list)
    for result in results:
        by_query[result.query].append(result.id)
    assert [sorted(ids) for ids in by_query.values()] == [sorted(2 * expected)] * 30


STAFF = Schema(
    "staff",
    (
        Relation("team", (ID, TEXT), key=("id",), search=("t",)),
        Relation("site", (ID, TEXT), key=("id",), search=("t",)),
        Relation("person", (ID, replace(ID, name="team"), replace(ID, name="site"), TEXT), search=("t",)),
    ),
    (
        Join("in", "person", "team", (("team", "id"),)),
        Join("at", "person", "site", (("site", "id"),)),
    ),
    "none",
)


def test_an_added_query_walks_only_towards_its_words() -> None:
    """From each of 80 people, four joins over two hubs lead to all 400 people in 400 ways."""
    records = [Record(relation, 1, (n, "hub")) for relation in (0, 1) for n in (1, 2)]
    records += [Record(2, 2 + n, (n, 1, 1, "alpha" if n % 5 == 0 else f"pad{n}")) for n in range(400)]
    records += [Record(2, 500, (500, 1, 1, "beta")), Record(2, 501, (501, 2, 2, "gamma"))]
    results_by_evaluator = []
    for evaluator in (EvaluatorName.DELTA, EvaluatorName.AUTO):
        engine = StreamEngine(STAFF, Unbounded())
        beside, beta, gamma = (
            Plan(STAFF, parse_query(text, STAFF), Unbounded(), 5, evaluated_by=evaluator)
            for text in ("beside zebra", "alpha beta", "alpha gamma")
        )
        engine.add(beside)
        assert not list(engine.process(records))
        tracemalloc.start()
        try:
            assert not list(engine.add(gamma))
            assert tracemalloc.get_traced_memory()[1] < 50_000_000
        finally:
            tracemalloc.stop()
        results_by_evaluator.append(sorted(result.id for result in engine.add(beta)))
    assert results_by_evaluator[0] == results_by_evaluator[1]
    assert len(results_by_evaluator[0]) == 2 * 80 + 2 * 80 * 320


PAIRED = Schema(
    "paired",
    (Relation("a", (KEY, TEXT), search=("t",)), Relation("b", (KEY, TEXT), search=("t",))),
    (Join("j", "a", "b", (("docket", "docket"),)),),
    "none",
)


@some("size", [3], [4, 5])
def test_many_joining_tuples_of_one_batch_have_the_results_of_the_mesh(size: int) -> None:
    """Then pairs are not stored but looked up, including those with tuples later in the batch."""
    burst = [Record(n % 2, 1 + n, (1, "pad")) for n in range(1_000)]
    later = [
        Record(0, 1_100, (2, "alpha")),
        Record(1, 1_101, (2, "beta")),
        Record(0, 1_102, (2, "gamma")),
        Record(1, 1_103, (2, "delta")),
    ]
    changes = []
    for evaluator in (EvaluatorName.DELTA, EvaluatorName.AUTO):
        engine = StreamEngine(PAIRED, TimeWindow(3_000))
        for text in ("alpha beta", "alpha gamma", "beta gamma delta"):
            engine.add(
                Plan(PAIRED, parse_query(text, PAIRED), TimeWindow(3_000), size, evaluated_by=evaluator)
            )
        changes.append(changes_of([*engine.process(burst), *engine.process(later)]))
    assert changes[0] == changes[1]
    assert len(changes[0]) >= 2
