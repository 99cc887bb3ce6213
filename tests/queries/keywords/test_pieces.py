"""Many results in pieces: the same, in the same order, whatever the pieces are cut to."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from itertools import pairwise
from resource import RUSAGE_SELF, getrusage
from time import process_time

import numpy as np
import orjson
import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

import skws.queries.keywords.columnar
import skws.queries.keywords.result_emitter
import skws_mesh.columnar.hash_index
import skws_mesh.columnar.mesh
from skws.data.batch import RecordBatch
from skws.data.record import Record
from skws.keywords.parse import parse_query
from skws.keywords.plan import Plan
from skws.queries.keywords.columnar import ColumnarEngine
from skws.queries.keywords.result_emitter import in_ranges
from skws_schema.model import Row, Schema
from skws_schema.yaml.load import parse_schema
from skws_windows.window import CountWindow, TimeWindow, Window
from tests.strategies import WORDS, examples, schemas, streams


@pytest.fixture
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """Everything that is cut is cut to a few."""
    for module in (skws_mesh.columnar.hash_index, skws_mesh.columnar.mesh):
        monkeypatch.setattr(module, "PAIRS", 3)
    monkeypatch.setattr(skws_mesh.columnar.mesh, "_FEW", 0)
    monkeypatch.setattr(skws.queries.keywords.result_emitter, "MOST", 2)
    monkeypatch.setattr(skws.queries.keywords.result_emitter.in_ranges, "__defaults__", (2,))
    monkeypatch.setattr(skws.queries.keywords.columnar, "_FIRST", 2)
    monkeypatch.setattr(skws.queries.keywords.columnar, "RESULTS", 4)


def _told(plan: Plan, records: list[Record]) -> list[bytes]:
    engine = ColumnarEngine.of(plan)
    return [result.to_json() for result in engine.process_batches([RecordBatch.of(records)])]


@given(data=st.data(), schema=schemas(), by_count=st.booleans())
@examples(150, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_results_are_those_without_pieces(
    small_pieces: None, data: st.DataObject, schema: Schema, by_count: bool
) -> None:
    records = data.draw(streams(schema, 2, max_records=24))
    window: Window = CountWindow(6) if by_count else TimeWindow(4)
    plan = Plan(schema, parse_query(" ".join(WORDS[:2]), schema), window, 4)
    cut = _told(plan, records)
    with pytest.MonkeyPatch.context() as whole:
        for module in (skws_mesh.columnar.hash_index, skws_mesh.columnar.mesh):
            whole.setattr(module, "PAIRS", 1 << 18)
        whole.setattr(skws_mesh.columnar.mesh, "_FEW", 1 << 12)
        whole.setattr(skws.queries.keywords.result_emitter, "MOST", 1 << 15)
        whole.setattr(skws.queries.keywords.columnar, "_FIRST", 2048)
        assert _told(plan, records) == cut


@given(
    st.lists(st.lists(st.integers(-5, 5), max_size=12), min_size=1, max_size=3),
    st.integers(1, 6),
)
def test_ranges_hold_all_keys_once_and_in_order(keys: list[list[int]], most: int) -> None:
    arrays = [np.array(each, dtype=np.int64) for each in keys]
    ranges = list(in_ranges(arrays, most))
    for number, array in enumerate(arrays):
        places = [place for part in ranges for place in part[number].tolist()]
        assert sorted(places) == list(range(len(array)))
    values = [
        [int(arrays[n][place]) for n, part in enumerate(each) for place in part.tolist()] for each in ranges
    ]
    for each in values:
        assert len(each) <= most or len(set(each)) == 1
    filled = [each for each in values if each]
    assert all(max(one) < min(other) for one, other in pairwise(filled))


def _hot(number: int, instants: int) -> list[Record]:
    rows: list[Row] = [("alpha", 1), ("beta", 1)]
    return [Record(i % 2, i * instants // (2 * number), rows[i % 2], False) for i in range(2 * number)]


_MEMORY = """
import resource, sys
from tests.queries.keywords.test_pieces import peak_of_hot
print(peak_of_hot(int(sys.argv[1])))
"""


def peak_of_hot(instants: int) -> int:
    """By how many bytes the peak of this process grows when 600 tuples meet 600 others; all is read."""
    plan = hot_plan()
    assert len(_told(plan, _hot(20, 1))) == 400
    before = getrusage(RUSAGE_SELF).ru_maxrss
    engine = ColumnarEngine.of(plan)
    found = sum(1 for _ in engine.process_batches([RecordBatch.of(_hot(600, instants))]))
    assert found == 360_000
    return (getrusage(RUSAGE_SELF).ru_maxrss - before) * 1024


def hot_plan() -> Plan:
    relation = "{attributes: {t: text, k: integer}, search: [t]}"
    text = f"window: 20 hours\nrelations: {{a: {relation}, b: {relation}}}\njoins: [a.k = b.k]\n"
    schema = parse_schema(text, default_name="hot")
    return Plan(schema, parse_query("alpha beta", schema), TimeWindow(10**9), 5)


@pytest.mark.parametrize("instants", [1, 600])
def test_a_hot_key_needs_memory_for_columns_not_for_all_results(instants: int) -> None:
    ran = subprocess.run(
        [sys.executable, "-c", _MEMORY, str(instants)], capture_output=True, text=True, check=True
    )
    assert int(ran.stdout) < 200 << 20, "360,000 results as objects take half a gigabyte"


def test_equal_tuples_of_one_instant_are_told_apart_in_linear_time() -> None:
    began = process_time()
    plan = replace(hot_plan(), query=parse_query("alpha", hot_plan().schema))
    records = [Record(0, 1, ("alpha", 1), False)] * 4_000
    ids = {orjson.loads(line)["id"] for line in _told(plan, records)}
    assert len(ids) == 4_000
    assert process_time() - began < 5
