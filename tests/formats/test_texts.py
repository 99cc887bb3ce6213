"""Texts in one byte string are the same from lists and from all kinds of Arrow arrays."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from skws.data.texts import Texts
from skws.index.values import text_hashes
from tests.commands import REPLAY, SCHEMA, python

KINDS = [pa.string(), pa.large_string(), pa.dictionary(pa.int32(), pa.string())]
TEXTS = st.lists(st.none() | st.text(st.characters(exclude_categories=["Cs"]), max_size=8), max_size=20)


def as_list(texts: Texts) -> list[str]:
    return texts.at(np.arange(len(texts)))


@given(TEXTS, st.data())
def test_texts_from_lists(texts: list[str | None], data: st.DataObject) -> None:
    packed = Texts.of([texts])
    assert as_list(packed) == [text or "" for text in texts]
    places = data.draw(st.lists(st.integers(0, len(texts) - 1))) if texts else []
    assert packed.at(np.array(places, dtype=np.int64)) == [texts[place] or "" for place in places]


@given(TEXTS, st.integers(0, 20), st.integers(0, 20))
def test_texts_that_share_data_have_the_same_hashes(texts: list[str | None], first: int, end: int) -> None:
    packed = Texts.of([texts])
    assert text_hashes(packed[first:end]).tolist() == text_hashes(packed)[first:end].tolist()


@given(TEXTS, st.integers(0, 3), st.data())
def test_take_with_arrow_equals_take_without(
    texts: list[str | None], first: int, data: st.DataObject
) -> None:
    packed = Texts.of([texts])[first:]
    places = np.array(
        data.draw(st.lists(st.integers(0, len(packed) - 1))) if len(packed) else [], dtype=np.int64
    )
    many = 600  # few texts are taken without Arrow
    by_arrow = packed.take(np.tile(places, many))
    assert isinstance(by_arrow.data, bytes)
    assert by_arrow.data == bytes(packed.take(places).data) * many
    assert by_arrow.lengths().tolist() == packed.take(places).lengths().tolist() * many


@given(TEXTS, st.integers(0, 4), st.sampled_from(KINDS))
def test_texts_from_arrow_arrays(texts: list[str | None], first: int, kind: pa.DataType) -> None:
    array = pa.array(texts, pa.string()).cast(kind).slice(first)
    assert as_list(Texts.of([array])) == [text or "" for text in texts[first:]]


@given(st.lists(st.tuples(TEXTS, st.sampled_from(["list", "array", "chunks"])), max_size=4))
def test_texts_from_mixed_columns_are_concatenated(columns: list[tuple[list[str | None], str]]) -> None:
    inputs = []
    for texts, kind in columns:
        half = len(texts) // 2
        parts = [pa.array(texts[:half], pa.string()), pa.array(texts[half:], pa.string())]
        array = pa.array(texts, pa.string())
        inputs.append({"list": texts, "array": array, "chunks": pa.chunked_array(parts)}[kind])
    assert as_list(Texts.of(inputs)) == [text or "" for texts, _ in columns for text in texts]


def test_bytes_under_a_null_are_ignored() -> None:
    values = pa.array(["alpha", "beta", "gamma"])
    valid = pa.py_buffer(bytes([0b101]))
    array = pa.Array.from_buffers(pa.string(), 3, [valid, *values.buffers()[1:]])
    assert array.to_pylist() == ["alpha", None, "gamma"]
    assert as_list(Texts.of([array])) == ["alpha", "", "gamma"]


def test_other_values_become_texts_and_lone_surrogates_are_kept() -> None:
    assert as_list(Texts.of([pa.array([7, None, 8])])) == ["7", "", "8"]
    assert as_list(Texts.of([["a\ud800", "b"]])) == ["a\ud800", "b"]


@pytest.mark.parametrize("columns", [[], [[]], [[], []], [pa.array([], pa.string())]])
def test_texts_may_be_empty(columns: list[list[str | None]]) -> None:
    assert as_list(Texts.of(columns)) == []


def test_a_search_in_json_lines_loads_no_arrow() -> None:
    code = """
import sys
from skws.cli.main import main
try:
    main()
except SystemExit as left:
    print(left.code, sorted({"pyarrow", "pandas", "numpy.ma"} & set(sys.modules)), file=sys.stderr)
"""
    arguments = ("search", "tarantino travolta", "--engine", "local", "--schema", SCHEMA, "--replay", REPLAY)
    outcome = python("-c", code, *arguments)
    assert outcome.out
    assert outcome.err.splitlines()[-1] == "0 []", outcome.err
