"""No engine loses or repeats a result when the schema changes (S-KWS paper, Section 4.4)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skws.data.batch import Record
from skws.keywords.match import Matcher
from skws.keywords.parse import parse_query
from skws.keywords.plan import Plan
from skws.queries.keywords.stream_engine import StreamEngine
from skws.results.result import Result
from skws_schema.errors import QueryError
from skws_schema.model import Attribute, AttributeType, Join, Relation, Schema
from skws_windows.window import CountWindow, TimeWindow, Unbounded, Window
from tests.oracles.oracle import Difference, Live, Network, Oracle, Shape, steps
from tests.paper_modes import SIZES, by_delta, by_paper, net, ops
from tests.strategies import JOINABLE, WORDS, examples, schemas, streams

WINDOWS: list[Window] = [TimeWindow(3), TimeWindow(8), Unbounded()]
Phase = tuple[Schema, list[Record]]
Make = Callable[[Plan], StreamEngine]


class ChangingOracle(Oracle):
    """Brute force over a schema that changes between instants."""

    def change(self, tick: int, schema: Schema, words: int) -> Difference:
        """The retracted and new results when the joins of another schema apply from ``tick`` on."""
        before, self.schema = self.schema, schema
        kept_names = {r.name for r in schema.relations if r in before.relations}
        joins = {name: j for j, name in enumerate(_join_keys(schema, kept_names))}
        former_joins = _join_keys(before, kept_names)
        self.live = [n for n in self.live if self.tuples[n].end > tick]
        live_networks = {n for n in self.found if n[0] <= set(self.live)}
        shapes = {
            self._renamed(n, former_joins, joins): shape
            for n, shape in self._shapes(live_networks, before).items()
        }
        names = [before.relations[t.relation].name for t in self.tuples]
        self.live = [n for n in self.live if names[n] in kept_names]
        for live_tuple, name in zip(self.tuples, names, strict=True):
            self._move(live_tuple, schema.index.get(name, 0))
        query = parse_query(" ".join(WORDS[:words]), schema)
        self.bitmap = Matcher(query, schema).bitmap
        self.found = self.networks()
        retracted = Counter(shape for n, shape in shapes.items() if n not in self.found)
        return Difference(retracted, Counter(self.shape(n) for n in self.found if n not in shapes), Counter())

    def _shapes(self, networks: set[Network], schema: Schema) -> dict[Network, Shape]:
        after, self.schema = self.schema, schema
        shapes = {n: self.shape(n) for n in networks}
        self.schema = after
        return shapes

    @staticmethod
    def _move(live_tuple: Live, relation: int) -> None:
        live_tuple.relation = relation

    def _renamed(self, network: Network, former_joins: Sequence[object], joins: dict[object, int]) -> Network:
        nodes, edges = network
        return nodes, frozenset((joins.get(former_joins[j], -1 - j), a, b) for j, a, b in edges)


def _join_keys(schema: Schema, kept_names: set[str]) -> list[object]:
    """Keys that compare joins; the key of a join with a relation that is not kept equals no other."""
    return [j if {j.left, j.right} <= kept_names else (id(schema), j.name) for j in schema.joins]


@st.composite
def changed_schemas(draw: st.DrawFn, schema: Schema, earlier_schemas: list[Schema]) -> Schema:
    """A schema that keeps some relations and joins, may add others, or returns to an earlier one."""
    if draw(st.integers(0, 3)) == 0:
        return draw(st.sampled_from(earlier_schemas))
    kept_relations = [r for r in schema.relations if draw(st.integers(0, 4))]
    drawn_relations = draw(schemas(max_relations=2, keys=True)).relations
    used_names = {r.name for r in kept_relations}
    new_relations = [
        replace(r, name=draw(st.sampled_from([f"n{i}", f"r{i}"]))) for i, r in enumerate(drawn_relations)
    ]
    relations = draw(st.permutations(kept_relations + [r for r in new_relations if r.name not in used_names]))
    names = [r.name for r in relations]
    if not names:
        return schema
    joins = [j for j in schema.joins if {j.left, j.right} <= set(names) and draw(st.integers(0, 3))]
    for number in range(draw(st.integers(0, 2))):
        pair = (draw(st.sampled_from(JOINABLE)), draw(st.sampled_from(JOINABLE)))
        left, right = draw(st.sampled_from(names)), draw(st.sampled_from(names))
        name = draw(st.sampled_from([f"new{number}", f"j{number}"]))
        joins += [] if name in {j.name for j in joins} else [Join(name, left, right, (pair,))]
    return Schema("changed", tuple(relations), tuple(joins))


@st.composite
def phases(draw: st.DrawFn) -> tuple[int, list[Phase]]:
    """A sequence of schemas, each with the stream during which it applies."""
    words = draw(st.integers(1, 3))
    drawn_schemas = [draw(schemas(max_relations=2))]
    for _ in range(draw(st.integers(1, 3))):
        drawn_schemas.append(draw(changed_schemas(drawn_schemas[-1], drawn_schemas)))
    time, result = 0, []
    for schema in drawn_schemas:
        stream = [r._replace(time=r.time + time) for r in draw(streams(schema, words, max_records=8))]
        result.append((schema, stream))
        time = (stream[-1].time if stream else time) + draw(st.integers(1, 2))
    return words, result


@pytest.mark.check
@given(phases(), st.sampled_from(WINDOWS) | st.builds(CountWindow, st.integers(1, 8)))
@examples(70)
def test_results_equal_brute_force_after_every_change(case: tuple[int, list[Phase]], window: Window) -> None:
    """No result is reported twice unless it was retracted."""
    words, ((first, _), *_) = case
    engines = engines_by_mode(first, words, window)
    live_by_mode: dict[str, dict[str, Result]] = {mode: {} for mode in engines}
    oracle = ChangingOracle(first, words, SIZES[words], matcher(first, words).bitmap)
    by_count, time = isinstance(window, CountWindow), 0

    def compare(report: Callable[[StreamEngine], Iterable[Result]], expected: Difference) -> None:
        for mode, engine in engines.items():
            results = list(report(engine))
            updates = Counter(shape for shape, _ in expected.updated.elements())
            shapes = ops(results, "-"), ops(results, "+"), ops(results, "~")
            assert (mode, *shapes) == (mode, expected.retracted, expected.appeared, updates)
            for result in results:
                earlier = live_by_mode[mode].pop(result.id, None)
                # Under a count window, expiries of results are not reported.
                expired = (
                    earlier is not None and earlier.end is not None and earlier.end <= (result.start or 0)
                )
                is_live = earlier is not None and not expired
                assert is_live == (result.op != "+") or (by_count and result.op == "+")
                if result.op != "-":
                    live_by_mode[mode][result.id] = result

    for number, (schema, stream) in enumerate(case[1]):
        if number:
            time += 1
            tick = oracle.position - 1 if by_count else time
            now = 10**6 if by_count else time
            compare(lambda e, s=schema, t=now: e.change_schema(s, t), oracle.change(tick, schema, words))  # type: ignore[misc]
        for records, expected in steps(window, stream, oracle):
            time = records[0].time
            compare(lambda e, s=schema, r=records: e.process(with_engine_positions(e, s, r)), expected)  # type: ignore[misc]
    for engine in engines.values():
        engine.expire(10**6)
        assert engine.idle or not isinstance(window, TimeWindow)


@pytest.mark.check
@given(phases(), st.sampled_from(WINDOWS), st.data())
@examples(30)
def test_late_records_between_schema_changes(
    case: tuple[int, list[Phase]], window: Window, data: st.DataObject
) -> None:
    words, ((first, _), *_) = case
    # Records of one identity at one time have an order, which a shuffle must keep.
    streams = [
        [r._replace(time=100 * n + 2 * i) for i, r in enumerate(s)] for n, (_, s) in enumerate(case[1])
    ]
    sorted_engine = engines_by_mode(first, words, window)["columnar"]
    spans = net(run(sorted_engine, case[1], streams))
    arrival_orders = [data.draw(st.permutations(stream)) for stream in streams]
    for mode, engine in engines_by_mode(first, words, window, lateness=10**6).items():
        assert (mode, net(run(engine, case[1], arrival_orders))) == (mode, spans)


@pytest.mark.parametrize("lateness", [0, 10**6])
def test_rows_of_an_added_relation_are_updated(lateness: int) -> None:
    first = Schema("first", (A,), ())
    after = Schema("after", (A, replace(B, key=("x",))), ())
    rows = ["alpha", "alpha beta", "alpha beta beta"]
    stream = [Record(1, 102 + 2 * number, (text, 7)) for number, text in enumerate(rows)]
    for engine in engines_by_mode(first, 2, TimeWindow(5), lateness=lateness).values():
        results = run(engine, [(first, []), (after, [])], [[], stream])
        reports = [(one.op, one.start, one.end, one.at) for one in results]
        assert reports == [("+", 104e-6, 109e-6, None), ("~", 104e-6, 111e-6, 106e-6)]


@pytest.mark.parametrize("lateness", [0, 10**6])
def test_a_removed_relation_retracts_an_updated_result_with_its_reported_begin(lateness: int) -> None:
    first = Schema("first", (A, replace(B, key=("x",))), ())
    after = Schema("after", (A,), ())
    stream = [Record(1, time, ("alpha beta", 7)) for time in (4, 8)]
    for engine in engines_by_mode(first, 2, TimeWindow(500), lateness=lateness).values():
        results = run(engine, [(first, []), (after, [])], [stream, []])
        reports = [(one.op, one.start, one.end) for one in results]
        assert reports == [("+", 4e-6, 504e-6), ("~", 4e-6, 508e-6), ("-", 4e-6, 100e-6)]


def test_a_late_record_ends_a_result_that_had_ended_before_the_change() -> None:
    """The largest network has more tuples, and the last record belongs to a relation that is removed."""
    first, after = Schema("first", (A, B, C), (AB,)), Schema("after", (A, B), (AB,))
    stream = [Record(0, 1, ("alpha", 7)), Record(1, 2, ("beta", 7)), Record(2, 50, ("pad", 7))]
    late = [Record(1, 4, ("beta", 7), delete=True)]
    for mode, engine in engines_by_mode(first, 2, TimeWindow(10), lateness=10**6).items():
        results = run(engine, [(first, []), (after, [])], [stream, late])
        reports = [(one.op, one.start, one.end) for one in results]
        assert (mode, reports) == (mode, [("+", 2e-6, 11e-6), ("-", 2e-6, 4e-6)])


def run(engine: StreamEngine, case: list[Phase], streams: list[list[Record]]) -> list[Result]:
    results: list[Result] = []
    for number, ((schema, _), stream) in enumerate(zip(case, streams, strict=True)):
        results += engine.change_schema(schema, 100 * number) if number else []
        results += engine.process(with_engine_positions(engine, schema, stream))
    return results


def with_engine_positions(engine: StreamEngine, schema: Schema, records: list[Record]) -> list[Record]:
    """Records of the given schema, with the engine's positions of their relations."""
    positions = [engine.schema.index[relation.name] for relation in schema.relations]
    return [record._replace(relation=positions[record.relation]) for record in records]


def engines_by_mode(schema: Schema, words: int, window: Window, lateness: int = 0) -> dict[str, StreamEngine]:
    """The columnar mesh, delta joins, and a mesh of the paper."""
    plan = Plan(schema, parse_query(" ".join(WORDS[:words]), schema), window, SIZES[words], lateness)
    return {"columnar": StreamEngine.of(plan), "delta": by_delta(plan), "paper": by_paper(plan)}


def matcher(schema: Schema, words: int) -> Matcher:
    return Matcher(parse_query(" ".join(WORDS[:words]), schema), schema)


TEXT = (Attribute("t", AttributeType.TEXT), Attribute("x", AttributeType.INTEGER))
A, B, C = (Relation(name, TEXT, search=("t",)) for name in "abc")
AB, BC = Join("ab", "a", "b", (("x", "x"),)), Join("bc", "b", "c", (("x", "x"),))


@pytest.mark.parametrize("make", [StreamEngine.of, by_delta, by_paper])
def test_relations_keep_their_positions(make: Make) -> None:
    three, two = Schema("s", (A, B, C), (AB, BC)), Schema("s", (C, B), (BC,))
    engine = make(Plan(three, parse_query("alpha beta", three), TimeWindow(100)))
    list(engine.process([Record(1, 1, ("alpha", 7))]))
    engine.change_schema(two, 2)
    (result,) = engine.process(with_engine_positions(engine, two, [Record(0, 3, ("beta", 7))]))
    assert [t.relation for t in result.tuples] == ["b", "c"]


@pytest.mark.parametrize("make", [StreamEngine.of, by_delta, by_paper])
def test_a_schema_that_a_query_cannot_use_changes_nothing(make: Make) -> None:
    two, one = Schema("s", (A, B), (AB,)), Schema("s", (replace(A, search=()), B), (AB,))
    engine = make(Plan(two, parse_query("a.t:alpha beta", two), TimeWindow(100)))
    list(engine.process([Record(0, 1, ("alpha", 7))]))
    with pytest.raises(QueryError, match="not searched"):
        engine.change_schema(one, 2)
    assert len(list(engine.process([Record(1, 3, ("beta", 7))]))) == 1
