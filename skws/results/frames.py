"""Results as rows of a table: the columns of data frames, in process and on Spark; and as HTML."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from html import escape
from itertools import accumulate, chain, islice
from typing import Any, Final, TypeAlias, TypeVar

import pyarrow as pa

from skws.data.value_conversion import LATEST
from skws.results.result import Result, ResultTuple
from skws_schema.model import iso

_MICROSECOND: Final = 1_000_000
_MOMENT: Final = pa.timestamp("us", tz="UTC")
_Of = TypeVar("_Of")
TUPLE: Final = pa.struct(
    [
        ("relation", pa.string()),
        ("label", pa.string()),
        ("id", pa.string()),
        ("keywords", pa.list_(pa.string())),
        ("row", pa.map_(pa.string(), pa.string())),
    ]
)
JOIN: Final = pa.struct([("left", pa.int32()), ("right", pa.int32()), ("name", pa.string())])
COLUMNS: Final = pa.schema(
    [
        ("name", pa.string()),
        ("query", pa.string()),
        ("op", pa.string()),
        ("start", _MOMENT),
        ("end", _MOMENT),
        ("id", pa.string()),
        ("score", pa.float64()),
        ("network", pa.string()),
        ("tuples", pa.list_(TUPLE)),
        ("joins", pa.list_(JOIN)),
    ]
)
"""``op``: "+" for a result, "~" for its update, "-" for its retraction. ``start`` and ``end``: its lifespan;
NULL if it has no bound. ``tuples``: each with its keywords, its label in a pattern, and its values as text.
``joins``: positions of joined tuples in ``tuples``, and the name of the join; empty for patterns and SQL.
"""


_BATCH_SIZE: Final = 10_000
"""The most results in one batch of a table, whose texts must be smaller than 2 GB."""


def result_table(results: Iterable[Result]) -> pa.Table:
    """Results as an Arrow table with COLUMNS; built by column, in a third of the time that rows take."""
    remaining = iter(results)
    batches = [_batch(portion) for portion in iter(lambda: list(islice(remaining, _BATCH_SIZE)), [])]
    return pa.Table.from_batches(batches, COLUMNS)


def _batch(results: Sequence[Result]) -> pa.RecordBatch:
    scores = [result.score for result in results]
    columns = {
        "name": [result.name for result in results],
        "query": [result.query for result in results],
        "op": [result.op for result in results],
        "start": [_micros(result.start) for result in results],
        "end": [_micros(result.end) for result in results],
        "id": [result.id for result in results],
        "score": [None if score is None else score.value for score in scores],
        "network": [result.network or None for result in results],
        "tuples": _lists([result.tuples for result in results], _tuples),
        "joins": _lists([result.joins for result in results], _joins),
    }
    arrays = [
        value if isinstance(value, pa.Array) else pa.array(value, COLUMNS.field(name).type)
        for name, value in columns.items()
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=COLUMNS)


def _tuples(tuples: Sequence[ResultTuple]) -> pa.Array:
    """Tuples as a column of TUPLE structs."""
    distinct = {id(each): each for each in tuples}
    if len(distinct) == len(tuples):
        return _tuple_structs(tuples)
    # Results that are found together share most of their tuples.
    places = dict(zip(distinct, range(len(distinct)), strict=True))
    indices = pa.array([places[id(each)] for each in tuples], pa.int32())
    return _tuple_structs([*distinct.values()]).take(indices)


def _tuple_structs(tuples: Sequence[ResultTuple]) -> pa.Array:
    values = [[*each.row.items()] for each in tuples]
    pairs = list(chain.from_iterable(values))
    names = pa.array([name for name, _ in pairs], pa.string())
    texts = pa.array([None if value is None else _text(value) for _, value in pairs], pa.string())
    columns = [
        pa.array([each.relation for each in tuples], pa.string()),
        pa.array(["+".join(each.labels) or None for each in tuples], pa.string()),
        pa.array([each.id for each in tuples], pa.string()),
        _lists([each.keywords for each in tuples], lambda words: pa.array(words, pa.string())),
        pa.MapArray.from_arrays(_offsets(values), names, texts),
    ]
    return pa.StructArray.from_arrays(columns, fields=list(TUPLE))


def _joins(joins: Sequence[tuple[int, int, str]]) -> pa.Array:
    """Joins as a column of JOIN structs."""
    columns = [pa.array([join[place] for join in joins], field.type) for place, field in enumerate(JOIN)]
    return pa.StructArray.from_arrays(columns, fields=list(JOIN))


def _lists(lists: Sequence[Sequence[_Of]], array: Callable[[Sequence[_Of]], pa.Array]) -> pa.Array:
    """A list for each row; ``array`` makes a column of the items of all lists."""
    return pa.ListArray.from_arrays(_offsets(lists), array(list(chain.from_iterable(lists))))


def _offsets(lists: Sequence[Sequence[object]]) -> pa.Array:
    return pa.array(accumulate(map(len, lists), initial=0), pa.int32())


def _micros(seconds: float | None) -> int | None:
    """Microseconds; an end after the last year of Python's calendar becomes its last instant."""
    return None if seconds is None else min(round(seconds * _MICROSECOND), LATEST)


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)


Marks: TypeAlias = Callable[[Result, str, str, str], Sequence[tuple[int, int]]]
"""The spans of keywords in a text, given its result, relation and attribute."""

_OPS: Final = {"+": "added", "~": "updated", "-": "retracted"}
_STYLE: Final = (
    "font:13px/1.5 system-ui,sans-serif;border-left:3px solid #4c78a8;padding:2px 10px;margin:8px 0"
)
_LIST: Final = "list-style:none;margin:0;padding-left:18px"
_MARK: Final = "background:#ffe08a;color:#000;border-radius:2px;padding:0 1px"
_DIM: Final = "opacity:.65"


def results_html(results: Sequence[Result], marks: Marks, *, more: bool) -> str:
    """The results, one below another. ``more``: True if there are further ones."""
    if not results:
        return f'<div style="{_STYLE}">No results.</div>'
    items = "".join(_result(result, marks) for result in results)
    note = f'<div style="{_DIM}">The first {len(results)} results.</div>' if more else ""
    return f"<div>{items}{note}</div>"


def _result(result: Result, marks: Marks) -> str:
    score = result.score
    # A result over permanent rows has no time of arrival, and does not end.
    has_lifespan = result.start is not None or result.end is not None or result.op != "+"
    parts = [
        *([] if score is None else [f"score {score.value:.3g}"]),
        *([_OPS[result.op], _lifespan(result)] if has_lifespan else []),
    ]
    head = f'<b>{escape(result.name)}</b> <span style="{_DIM}">{escape(" · ".join(parts))}</span>'
    children: dict[int, list[tuple[int, str]]] = {}
    for left, right, name in result.joins:
        children.setdefault(min(left, right), []).append((max(left, right), name))
    roots = [0] if children else range(len(result.tuples))
    items = "".join(_branch(result, node, "", children, marks) for node in roots)
    return f'<div style="{_STYLE}">{head}<ul style="{_LIST}">{items}</ul></div>'


def _branch(
    result: Result, node: int, join: str, children_by_node: dict[int, list[tuple[int, str]]], marks: Marks
) -> str:
    result_tuple = result.tuples[node]
    join_text = f' <span style="{_DIM}" title="joined by">({escape(join)})</span>' if join else ""
    children = "".join(
        _branch(result, child, name, children_by_node, marks)
        for child, name in children_by_node.get(node, ())
    )
    nested_list = f'<ul style="{_LIST}">{children}</ul>' if children else ""
    return (
        f"<li><b>{escape(_name(result_tuple))}</b>{join_text}: "
        f"{_attributes(result, result_tuple, marks)}{nested_list}</li>"
    )


def _name(result_tuple: ResultTuple) -> str:
    labels = "+".join(result_tuple.labels)
    return f"{labels} = {result_tuple.relation}" if labels else result_tuple.relation


def _attributes(result: Result, result_tuple: ResultTuple, marks: Marks) -> str:
    pairs = ((name, value) for name, value in result_tuple.row.items() if value is not None)
    return ", ".join(
        f'<span style="{_DIM}">{escape(name)}</span>&nbsp;'
        f"{_value(result, result_tuple.relation, name, value, marks)}"
        for name, value in pairs
    )


def _value(result: Result, relation: str, attribute: str, value: Any, marks: Marks) -> str:
    if not isinstance(value, str):
        return escape(str(value))
    parts, position = [], 0
    for start, end in marks(result, relation, attribute, value):
        parts += [escape(value[position:start]), f'<mark style="{_MARK}">{escape(value[start:end])}</mark>']
        position = end
    return "".join([*parts, escape(value[position:])])


def _lifespan(result: Result) -> str:
    start, end = _moment(result.start), _moment(result.end)
    return f"{start or 'always'} – {end}" if end else start or "always"


def _moment(seconds: float | None) -> str:
    micros = _micros(seconds)
    return "" if micros is None else iso(micros)[:19].replace("T", " ")
