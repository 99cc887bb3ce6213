"""Arrow arrays read from their buffers equal Arrow's own conversions, without pandas."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from skws.data.arrow import flags, integers, of_integers, texts_at
from skws.data.blocks import ArrowBlock


@given(st.lists(st.integers(-(1 << 63), (1 << 63) - 1)), st.data())
def test_integers_there_and_back(values: list[int], data: st.DataObject) -> None:
    first = data.draw(st.integers(0, len(values)))
    array = pa.array(values, pa.int64())
    assert integers(array.slice(first)).tolist() == values[first:]
    assert of_integers(integers(array)).equals(array)
    assert of_integers(np.repeat(integers(array), 2)[::2]).equals(array)


@given(st.lists(st.one_of(st.booleans(), st.none())), st.data())
def test_flags(values: list[bool | None], data: st.DataObject) -> None:
    first = data.draw(st.integers(0, len(values)))
    found = flags(pa.array(values, pa.bool_()).slice(first))
    assert found.tolist() == [value is True for value in values[first:]]


@given(st.lists(st.one_of(st.booleans(), st.none())))
def test_truth_values_as_numbers(values: list[bool | None]) -> None:
    found = ArrowBlock(0, [pa.array(values, pa.bool_())]).numbers(0)
    assert found is not None
    assert [v if there else None for v, there in zip(*map(list, found), strict=True)] == values


def test_matching_columns_goes_without_pandas() -> None:
    code = """
import sys
from skws.keywords.parse import parse_query
from skws.keywords.match import Matcher
import numpy as np
import pyarrow as pa
from skws_schema.model import Attribute, AttributeType, Relation, Schema
schema = Schema("s", (Relation("r", (Attribute("t", AttributeType.TEXT),), search=("t",)),), ())
matcher = Matcher(parse_query("alpha beta", schema), schema)
texts = [b"an alpha", b"nothing", b"b\\xc3\\xa9ta Beta"]
ends = np.cumsum([0, *map(len, texts)]).astype(np.int32)
array = pa.Array.from_buffers(pa.string(), 3, [None, pa.py_buffer(ends), pa.py_buffer(b"".join(texts))])
columns = [array], [["beta", None, "alpha's"]]
print([matcher.bitmaps(0, column).tolist() for column in columns], "pandas" in sys.modules)
"""
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert told.stdout.strip() == "[[1, 0, 2], [2, 0, 1]] False"


@given(
    st.lists(st.none() | st.text(st.characters(exclude_categories=["Cs"]), max_size=5)),
    st.integers(0, 3),
    st.lists(st.integers(0, 50)),
)
def test_texts_at_places_are_those_of_the_array(
    texts: list[str | None], first: int, numbers: list[int]
) -> None:
    array = pa.array(texts, pa.string()).slice(first)
    places = np.array([number % len(array) for number in numbers] if len(array) else [], dtype=np.int64)
    assert texts_at(array, places) == [texts[first + place] for place in places.tolist()]
