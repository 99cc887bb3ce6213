"""Keyword frequencies are counted and order the mesh; results do not depend on them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from skws.data.batch import RecordBatch
from skws.data.record import Record
from skws.keywords.keyword_matching import ordered_by_first, ordered_by_sample
from skws.keywords.parse import parse_query
from skws.keywords.plan import Plan
from skws.queries.keywords.columnar import ColumnarEngine
from skws.queries.keywords.engine import Engine
from skws.replay_search import Search
from skws.spec.enums import EngineName
from skws.spec.job import Job
from skws_mesh.cngen import CNGen
from skws_mesh.kinds import MeshKind
from skws_schema.errors import UsageError
from skws_schema.model import Attribute, AttributeType, Join, Relation, Schema
from skws_windows.window import TimeWindow
from tests.strategies import WORDS, examples, schemas, streams

TEXT = (Attribute("t", AttributeType.TEXT), Attribute("x", AttributeType.INTEGER))
SCHEMA = Schema(
    "s",
    (Relation("a", TEXT, search=("t",)), Relation("b", TEXT, search=("t",))),
    (Join("ab", "a", "b", (("x", "x"),)),),
)
STREAM = [
    Record(0, 1, ("alpha", 1)),
    Record(1, 2, ("alpha beta", 1)),
    Record(0, 3, ("alpha no", 1)),
    Record(0, 4, ("pad", 1)),
    Record(1, 5, ("beta", 1)),
    Record(0, 6, ("alpha", 1)),
]


@pytest.mark.parametrize("mesh", ["full", "partial", "forest"])
def test_the_order_of_the_mesh_does_not_change_results(mesh: str) -> None:
    plan = Plan(SCHEMA, parse_query("alpha beta -no", SCHEMA), TimeWindow(100), mesh=mesh)
    first = Engine(plan)
    expected = [r.id for r in first.process(STREAM)]
    observed = ordered_by_sample(plan, RecordBatch.of(STREAM))
    assert observed.generator().order.root_keyword == 1
    assert [r.id for r in Engine(observed).process(STREAM)] == expected
    assert first.counts.excluded == 1


@given(st.integers(2, 3), st.data())
@examples(40)
def test_neither_does_it_in_the_default_engine(words: int, data: st.DataObject) -> None:
    schema = data.draw(schemas())
    stream = data.draw(streams(schema, words, max_records=30))
    plan = Plan(schema, parse_query(" ".join(WORDS[:words]), schema), TimeWindow(6), 4)
    shares = tuple(data.draw(st.permutations([0.5, 0.1, 0.01]))[:words])
    plain, ordered = (ColumnarEngine.of(p) for p in (plan, replace(plan, frequencies=shares)))
    assert list(ordered.process(stream)) == list(plain.process(stream))


def test_the_first_records_tell_the_order_and_none_is_lost() -> None:
    plan = Plan(SCHEMA, parse_query("alpha beta -no", SCHEMA), TimeWindow(100))
    ordered, stream = ordered_by_first(plan, iter(STREAM))
    assert ordered.frequencies == (3 / 6, 2 / 6)  # who is excluded counts for no keyword
    assert list(stream) == STREAM
    assert ordered_by_sample(plan, RecordBatch.of(())) == ordered_by_sample(plan, None) == plan


@pytest.mark.parametrize("mesh", [None, MeshKind.FULL])
def test_a_search_over_streams_has_the_rarest_keyword_in_its_roots(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mesh: MeshKind | None
) -> None:
    replay = tmp_path / "stream.jsonl"
    lines = [
        {"relation": "ab"[r.relation], "time": r.time, "row": {"t": r.row[0], "x": r.row[1]}} for r in STREAM
    ]
    replay.write_bytes(b"\n".join(map(orjson.dumps, lines)))
    roots: list[int] = []
    order = Plan.generator

    def seen(plan: Plan) -> CNGen:
        roots.append(order(plan).order.root_keyword)
        return order(plan)

    monkeypatch.setattr(Plan, "generator", seen)
    window = TimeWindow(100_000_000)
    asked = Job.search("alpha beta", SCHEMA, replay, window=window, engine=EngineName.LOCAL, mesh=mesh)
    assert len(list(Search(asked).results())) > 3
    assert set(roots) == {1}


def test_unknown_meshes_and_purges_are_refused() -> None:
    plan = Plan(SCHEMA, parse_query("alpha", SCHEMA), TimeWindow(100))
    with pytest.raises(UsageError, match=r"mesh 'parital': expected one of full.*did you mean 'partial'"):
        replace(plan, mesh="parital")
    with pytest.raises(UsageError, match="purge 'never': expected one of lazy, eager"):
        replace(plan, purge="never")
