"""The library in process: DataFrames in, results out."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from fractions import Fraction
from itertools import islice
from pathlib import Path
from typing import Any
from uuid import UUID

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import skws
from skws.replay_search import Search
from skws.results.frames import COLUMNS
from skws.spec.enums import EngineName
from skws.spec.job import Job
from skws.spec.query_spec import RankingChoice
from skws_schema.errors import BadRecordsError, QueryError, SchemaError, UsageError
from skws_schema.model import Schema
from skws_schema.yaml.load import load_schema
from skws_windows.window import parse_window
from tests.places import ROOT
from tests.strategies import examples

SHOP = """
name: shop
window: 1 hour
relations:
  customer:
    attributes: {id: integer, name: text}
    key: [id]
  purchase:
    attributes: {id: integer, customer_id: integer, item: text}
  complaint:
    attributes: {id: integer, purchase_id: integer, text: text}
joins:
  - purchase.customer_id = customer.id
  - complaint.purchase_id = purchase.id
"""
CUSTOMERS = [{"id": 1, "name": "Byron Hale"}, {"id": 2, "name": "Ada"}]
PURCHASES = [{"id": 10, "customer_id": 1, "item": "kettle"}, {"id": 11, "customer_id": 2, "item": "lamp"}]
COMPLAINTS = [
    {"id": 5, "purchase_id": 10, "text": "it leaks <b>"},
    {"id": 6, "purchase_id": 11, "text": "fine"},
]
DATA = {"customer": CUSTOMERS, "purchase": PURCHASES, "complaint": COMPLAINTS}
MOVIES = ROOT / "examples" / "movies"
MOMENT = datetime(2020, 1, 2, 3, 4, 5, tzinfo=UTC)
NETWORK = "customer{byron} - purchase{} - complaint{leaks}"


class ArrowExporter:
    """A DataFrame of another library, which exports Arrow."""

    def __init__(self, rows: list[dict[str, Any]]) -> None:
        self._table = pa.Table.from_pylist(rows)

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self._table.__arrow_c_stream__(requested_schema)


@pytest.mark.parametrize(
    "frame",
    [
        lambda rows: rows,
        pd.DataFrame,
        pa.Table.from_pylist,
        pa.RecordBatch.from_pylist,
        ArrowExporter,
        lambda rows: {name: [row[name] for row in rows] for name in rows[0]},
    ],
    ids=["dictionaries", "pandas", "table", "batch", "exported", "columns"],
)
def test_frames_of_all_kinds_are_searched(frame: Any) -> None:
    results = skws.search("byron leaks", {name: frame(rows) for name, rows in DATA.items()}, schema=SHOP)
    (result,) = results
    assert result.to_dict()["network"] == NETWORK
    assert (result.start, results.counts.static) == (None, 6)


def test_a_replay_has_the_results_of_the_command() -> None:
    schema = load_schema(MOVIES / "schema.yaml")
    job = Job.search("tarantino travolta", schema, MOVIES / "replay.jsonl", engine=EngineName.LOCAL)
    expected = list(Search(job).results())
    assert expected
    results = skws.search("tarantino travolta", MOVIES / "replay.jsonl", schema=MOVIES / "schema.yaml")
    assert list(results) == expected
    assert (
        skws.search("tarantino travolta", [str(MOVIES / "replay.jsonl")], schema=schema)[:3] == expected[:3]
    )
    assert len(skws.search("tarantino travolta", MOVIES / "replay.jsonl", schema=schema, limit=2)) == 2


def test_a_window_expression_has_the_results_of_the_command() -> None:
    schema = load_schema(MOVIES / "schema.yaml")
    window = parse_window("longest match [director] .* [actor] at most 30 records")
    job = Job.search("tarantino", schema, MOVIES / "replay.jsonl", window=window, engine=EngineName.LOCAL)
    expected = list(Search(job).results())
    assert expected
    assert all(result.op == "+" for result in expected)
    results = skws.search("tarantino", MOVIES / "replay.jsonl", schema=schema, window=window)
    assert list(results) == expected


def test_a_session_emits_results_when_their_window_ends() -> None:
    session = skws.Session(SHOP, window="open when item:kettle close when text:leaks")
    session.add("kettle -ada")
    assert session.process({"purchase": [{**PURCHASES[0], "time": 1}]}) == []
    (result,) = session.process({"complaint": [{**COMPLAINTS[0], "time": 2}]})
    assert (result.op, result.start, result.end) == ("+", 1, 2)
    with pytest.raises(UsageError, match="--rank and --top cannot be combined with a window expression"):
        session.add(skws.Query.of_keywords("leaks", RankingChoice()))


def test_files_and_frames_may_be_mixed(tmp_path: Path) -> None:
    pd.DataFrame(COMPLAINTS).to_csv(tmp_path / "any.csv", index=False)
    data = {**DATA, "complaint": tmp_path / "any.csv", "purchase": pd.DataFrame(PURCHASES)}
    static = SHOP.replace("text: text}", "text: text}\n    table: true")
    assert len(skws.search("byron leaks", data, schema=static)) == 1


def test_timed_rows_expire_and_can_be_deleted() -> None:
    times = pd.to_datetime(["2024-01-01 10:00", "2024-01-01 11:30"], utc=True)
    complaints = pd.DataFrame(COMPLAINTS).assign(time=times, purchase_id=[10, 10], text="leaks")
    purchases = pd.DataFrame([*PURCHASES[:1], *PURCHASES[:1]])
    purchases["time"] = pd.to_datetime(["2024-01-01 09:30", "2024-01-01 10:10"], utc=True)
    purchases["op"] = ["+", "-"]
    data = {"customer": CUSTOMERS, "purchase": purchases, "complaint": complaints}
    events = [
        (result.op, result.tuples[-1].row["id"]) for result in skws.search("byron leaks", data, schema=SHOP)
    ]
    assert events == [("+", 5), ("-", 5)]


def test_a_schema_is_inferred_if_none_is_given() -> None:
    customers = pd.DataFrame({"id": range(1, 41), "name": [f"person{n} of this town" for n in range(40)]})
    purchases = pd.DataFrame({"id": range(60), "customer_id": [1 + n % 40 for n in range(60)]})
    purchases["note"] = [f"kettle number {n} was sent" for n in range(60)]
    purchases.loc[59, "customer_id"] = None  # turns them into floats
    results = skws.search("person3 kettle", {"customer": customers, "purchase": purchases})
    assert [join.name for join in results.schema.joins] == ["purchase.customer_id = customer.id"]
    assert len(results) == 2


def test_several_queries_have_names() -> None:
    results = skws.search({"who": "byron", "what": skws.Query("byron leaks")}, DATA, schema=SHOP)
    assert sorted((result.name, result.query) for result in results) == [
        ("what", "byron leaks"),
        ("who", "byron"),
    ]
    assert repr(results) == "<2 results of 'who', 'what'>"


@given(
    st.integers(0, 5),
    st.builds(slice, *3 * [st.none() | st.integers(-7, 7)]).filter(lambda part: part.step != 0),
)
@examples(60)
def test_results_are_cut_like_a_list_however_many_are_read(read_before: int, part: slice) -> None:
    rows = [{"id": number, "name": f"byron {number}", "time": number} for number in range(5)]
    results = skws.search("byron", {"customer": rows}, schema=SHOP)
    list(islice(results, read_before))
    names = [str(result.tuples[0].row["name"]) for result in results[part]]
    assert names == [f"byron {number}" for number in range(5)[part]]


def test_an_error_is_raised_again_by_every_later_reading() -> None:
    times = ["1970-01-01", "1970-01-02", "never"]
    rows = [{"id": 1, "name": f"byron {time}", "time": time} for time in times]
    results = skws.search("byron", {"customer": rows}, schema=SHOP)
    for _ in range(2):
        with pytest.raises(BadRecordsError, match="got 'never'"):
            list(results)
        with pytest.raises(BadRecordsError, match="got 'never'"):
            len(results)


def test_interrupted_results_cannot_be_read_again() -> None:
    class Interrupting(list[dict[str, Any]]):
        interrupts = False

        def __iter__(self) -> Iterator[dict[str, Any]]:
            if self.interrupts:
                raise KeyboardInterrupt
            return super().__iter__()

    rows = Interrupting([{"id": 1, "name": "byron", "orders": [{"id": 2}]}])
    results = skws.search("byron", {"customer": rows})
    rows.interrupts = True
    with pytest.raises(KeyboardInterrupt):
        list(results)
    with pytest.raises(skws.SkwsError, match="interrupted: search again"):
        list(results)


def test_results_convert_to_tables() -> None:
    results = skws.search("byron leaks", DATA, schema=SHOP)
    assert results.to_arrow().schema == COLUMNS
    (row,) = results.to_arrow().to_pylist(maps_as_pydicts="lossy")
    assert row["network"] == NETWORK
    assert row["tuples"][0]["row"] == {"id": "1", "name": "Byron Hale"}
    assert row["tuples"][2]["keywords"] == ["leaks"]
    assert row["joins"][0] == {"left": 1, "right": 0, "name": "purchase.customer_id = customer.id"}
    assert results.to_pandas()["id"].tolist() == [results[0].id]
    assert results.to_dicts() == [results[0].to_dict()]
    assert skws.search("nothing", DATA, schema=SHOP).to_arrow().schema == COLUMNS


def test_values_have_their_types_in_pandas() -> None:
    rows = [{"id": 7, "name": "byron", "price": 1.5, "paid": True, "seen": MOMENT, "gone": None}]
    (tuples,) = skws.search("byron", {"thing": rows}).to_pandas()["tuples"]
    assert tuples[0]["row"] == {**rows[0], "seen": pd.Timestamp(MOMENT)}
    assert tuples[0]["relation"] == "thing"


def test_results_and_schemas_convert_to_networkx() -> None:
    results = skws.search("byron leaks", DATA, schema=SHOP)
    result = results[0]
    graph = result.to_networkx()
    assert [graph.nodes[n]["relation"] for n in graph] == ["customer", "purchase", "complaint"]
    assert graph.nodes[0]["row"] == CUSTOMERS[0]
    assert sorted(edge["name"] for _, _, edge in graph.edges(data=True)) == [
        "complaint.purchase_id = purchase.id",
        "purchase.customer_id = customer.id",
    ]
    schema = results.schema.to_networkx()
    assert list(schema) == ["customer", "purchase", "complaint"]
    assert schema.nodes["customer"]["attributes"] == {"id": "integer", "name": "text"}
    assert sorted(schema.edges(keys=True)) == [
        ("customer", "purchase", "purchase.customer_id = customer.id"),
        ("purchase", "complaint", "complaint.purchase_id = purchase.id"),
    ]


def test_a_notebook_separates_joins_from_attributes() -> None:
    html = skws.search("byron leaks", DATA, schema=SHOP)._repr_html_()
    text = re.sub(r"<[^>]+>", "", html).replace("&nbsp;", " ")
    assert "purchase (purchase.customer_id = customer.id): id 10, " in text
    assert "added" not in text, "rows of tables have no time"
    assert "added" in skws.search("ada", {"thing": [{"name": "ada", "time": MOMENT}]})._repr_html_()


def test_a_notebook_draws_trees_and_marks_keywords() -> None:
    html = skws.search("byron leaks", DATA, schema=SHOP)._repr_html_()
    assert html.index("customer") < html.index("purchase") < html.index("complaint")
    assert ">Byron</mark> Hale" in html
    assert ">leaks</mark> &lt;b&gt;" in html
    assert "No results" in skws.search("nothing", DATA, schema=SHOP)._repr_html_()


def test_a_result_that_ends_after_the_year_9999_converts_to_a_table() -> None:
    complaints = [{"id": 1, "purchase_id": 3, "text": "byron leaks", "time": "9999-12-31T23:59:59Z"}]
    results = skws.search("byron leaks", {"complaint": complaints}, schema=SHOP, window="2 days")
    (row,) = results.to_arrow().to_pylist(maps_as_pydicts="lossy")
    assert row["end"].isoformat() == "9999-12-31T23:59:59.999999+00:00"
    assert "9999-12-31 23:59:59 – 9999-12-31 23:59:59" in results._repr_html_()


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({"customer": [{"id": 1, "name": "half \ud800"}]}, "customer: .*surrogates not allowed"),
        ({"customer": {"name": [1, {"half": "\ud800"}]}}, "customer: name: .*surrogates not allowed"),
        ({"customer": {"name": [1, "x", 10**5000]}}, "customer: name: .*4300 digits"),
        ({"custmer": CUSTOMERS}, "no relation 'custmer' in schema shop; did you mean 'customer'"),
        ({"customer": 3}, "customer: expected a data frame .* found int"),
        ({"customer": [CUSTOMERS[0], 3]}, "customer row 1: expected a dictionary, found int"),
        (pd.DataFrame(CUSTOMERS), "data: expected a mapping of relation names to frames.* found DataFrame"),
        ([pd.DataFrame(CUSTOMERS)] * 2, "data: expected a mapping .* found DataFrame in a list"),
        (CUSTOMERS, "data: expected a mapping .* found dict in a list"),
        (["a.jsonl", 5], "data: expected a mapping .* found int in a list"),
        (None, "data: expected a mapping .* found NoneType"),
        ({1: CUSTOMERS}, "data: expected the name of a relation, found 1"),
        ({"customer": {"id": 1}}, "customer: expected the values of column 'id' as a list, found int"),
        ({"customer": {"id": [1], "name": []}}, "customer: columns have 0 to 1 values"),
        ({"customer": [{"id": object()}]}, "customer row 0: id: expected a value, found object"),
        (
            {"customer": pd.DataFrame([[1, 2]], columns=["id", "id"])},
            "customer: 2 columns are called 'id'",
        ),
        ({"customer": pd.DataFrame(CUSTOMERS).assign(op="-")}, "a column op needs times"),
    ],
)
def test_invalid_frames_are_rejected(data: Any, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        list(skws.search("byron", data, schema=SHOP))


def test_rows_of_the_wrong_type_are_bad_records() -> None:
    customers = pd.DataFrame({"id": ["1", "x"], "name": ["Byron", "Byron"]})
    with pytest.raises(
        BadRecordsError, match=r"customer: row 2: customer.id: expected an integer.*on_error="
    ):
        list(skws.search("byron", {"customer": customers}, schema=SHOP))
    results = skws.search("byron", {"customer": customers}, schema=SHOP, on_error="skip")
    assert (len(results), results.bad.count) == (1, 1)

    mixed = [{"id": 1, "name": "Byron"}, {"id": "b", "name": "Byron"}, {"id": 10**30, "name": "Byron"}]
    assert len(skws.search("byron", {"customer": mixed}, schema=SHOP, on_error="skip")) == 1


class Fruit(Enum):
    APPLE = "apple"


@pytest.mark.parametrize(
    ("value", "expected", "kind"),
    [
        (date(2020, 1, 2), "2020-01-02T00:00:00Z", "timestamp"),
        (date(1, 1, 1), "0001-01-01T00:00:00Z", "timestamp"),
        (MOMENT, "2020-01-02T03:04:05Z", "timestamp"),
        (np.datetime64("2020-01-02"), "2020-01-02T00:00:00Z", "timestamp"),
        (time(3, 4, 5), "03:04:05", "text"),
        (timedelta(days=1, seconds=2), 86_402, "integer"),
        (np.timedelta64(3, "s"), 3, "integer"),
        (Decimal("12.5"), 12.5, "number"),
        (UUID(int=7), "00000000-0000-0000-0000-000000000007", "text"),
        (b"ab", "ab", "text"),
        (bytearray(b"ab"), "ab", "text"),
        (float("nan"), None, "text"),
        (None, None, "text"),
        (pd.NaT, None, "text"),
        (pd.NA, None, "text"),
        (Fruit.APPLE, "apple", "text"),
        (np.float32(2.5), 2.5, "number"),
        (np.bool_(True), True, "boolean"),
        (2**70, str(2**70), "text"),
        (Fraction(1, 3), "1/3", "text"),
        (Path("a/b"), "a/b", "text"),
        (pd.Period("2020-01"), "2020-01", "text"),
        (pd.Interval(0, 1), "(0, 1]", "text"),
        (["a", "b"], "a, b", "text"),
        ({"a"}, "a", "text"),
        (np.array([1, 2]), "1, 2", "text"),
    ],
)
@pytest.mark.parametrize("frame", ["rows", "columns", "pandas"])
def test_python_values_of_all_types_are_converted(frame: str, value: Any, expected: Any, kind: str) -> None:
    rows = [{"name": "byron", "value": value}, {"name": "ada", "value": None}]
    columns = {name: [row[name] for row in rows] for name in ("name", "value")}
    values = pd.Series([value, value], dtype=object)
    frames: dict[str, Any] = {
        "rows": rows,
        "columns": columns,
        "pandas": pd.DataFrame({"name": ["byron", "ada"], "value": values}),
    }
    results = skws.search("byron", {"thing": frames[frame]})
    (result,) = results
    assert result.tuples[0].row == {"name": "byron", "value": expected}
    assert str(results.schema.relations[0].attributes[1].type) == kind


@pytest.mark.parametrize(
    ("column", "expected"),
    [
        (pd.Categorical(["x", "y"]), "x"),
        (pd.array([1, None], dtype="Int64"), 1),
        (pd.array([True, None], dtype="boolean"), True),
        (pd.arrays.SparseArray([7, 0]), 7),
        (np.array([2**63, 1], dtype="uint64"), str(2**63)),
        (np.array([1.5, 2], dtype="float16"), 1.5),
        (pd.period_range("2020-01", periods=2, freq="M"), "2020-01"),
        (pd.to_timedelta(["1 day", None]), 86_400),
        ([1, "a"], "1"),
        ([1.0, float("inf")], 1),
        ([1.0, 1e300], 1.0),
        ([float("inf"), 1.5], None),
        ([float("inf"), float("-inf")], None),
        ([date(2020, 1, 1), "a"], "2020-01-01"),
        ([True, "a"], "true"),
        (pa.array([date(2020, 1, 1)] * 2, pa.date64()), "2020-01-01T00:00:00Z"),
        (pa.array([1, 1], pa.time32("s")), "00:00:01"),
        (pa.array([1_000_000_000] * 2, pa.duration("ns")), 1),
        (pa.array([[date(2020, 1, 1)]] * 2), "2020-01-01"),
        (pa.array([b"ab"] * 2, pa.binary(2)), "ab"),
        (pa.array(["ab"] * 2, pa.string_view()), "ab"),
        (pa.array(["ab"] * 2).dictionary_encode(), "ab"),
    ],
)
def test_pandas_and_arrow_columns_of_all_types_are_converted(column: Any, expected: Any) -> None:
    data = {"name": ["byron", "ada"], "value": column}
    frame = pa.table(data) if isinstance(column, pa.Array) else pd.DataFrame(data)
    (result,) = skws.search("byron", {"thing": frame})
    assert result.tuples[0].row["value"] == expected


def test_dates_and_exact_decimals_are_read_as_text() -> None:
    table = pa.table({"day": [date(2020, 1, 2)], "price": [Decimal("12345678901234567890.10")]})
    schema = "name: a\nrelations:\n  thing:\n    attributes: {day: text, price: string}\n"
    (result,) = skws.search("2020-01-02", {"thing": table}, schema=schema)
    assert result.tuples[0].row == {"day": "2020-01-02", "price": "12345678901234567890.1"}


@pytest.mark.parametrize("frame", [list, pd.DataFrame, pa.Table.from_pylist])
def test_a_column_called_time_need_not_contain_times(frame: Callable[[list[dict[str, Any]]], Any]) -> None:
    visits = frame([{"time": "10:30", "name": "byron"}, {"time": "noon", "name": "ada"}])
    (result,) = skws.search("byron", {"visit": visits})
    assert result.tuples[0].row == {"time": "10:30", "name": "byron"}
    (result,) = skws.search("byron", {"visit": frame([{"time": "2024-05-06T10:30Z", "name": "byron"}])})
    assert (result.tuples[0].row, result.start) == ({"name": "byron"}, 1_714_991_400.0)


def test_nested_rows_may_have_a_column_called_time() -> None:
    visit = {"time": "noon", "name": "ada", "likes": [{"what": "engines"}]}
    (result,) = skws.search("noon engines", {"visit": [visit]})
    assert {tuple_.relation for tuple_ in result.tuples} == {"visit", "visit_likes"}


def test_an_item_that_is_no_row_is_reported_beside_nested_rows() -> None:
    orders: list[Any] = [{"id": 1, "lines": [{"item": "kettle"}]}, 5]
    with pytest.raises(BadRecordsError, match="orders:2: expected a row"):
        list(skws.search("kettle", {"orders": orders}))
    results = skws.search("kettle", {"orders": orders}, on_error="skip")
    assert (len(results), results.bad.count) == (1, 1)


@pytest.mark.parametrize("order", [("orders", "line", "part"), ("part", "line", "orders")])
def test_nested_rows_of_static_rows_are_static_in_any_order_of_relations(order: tuple[str, ...]) -> None:
    relations = {
        "orders": {"attributes": {"id": "integer"}, "key": ["id"]},
        "line": {"from": "orders.lines", "attributes": {"item": "text"}},
        "part": {"from": "line.parts", "attributes": {"name": "text"}},
    }
    orders = [{"id": 1, "lines": [{"item": "lamp", "parts": [{"name": "bulb"}]}]}]
    schema = {"name": "shop", "window": "1 hour", "relations": {name: relations[name] for name in order}}
    results = skws.search("bulb", {"orders": orders}, schema=schema)
    assert all(relation.table for relation in results.schema.relations)
    assert [result.start for result in results] == [None]


def test_nested_objects_of_a_frame_become_columns() -> None:
    (result,) = skws.search("byron", {"person": [{"name": {"first": "Byron"}, "born": {"year": 1788}}]})
    assert result.tuples[0].row == {"name_first": "Byron", "born_year": 1788}


def test_binary_columns_of_a_frame_are_ignored() -> None:
    with pytest.warns(UserWarning, match="thing.photo has bytes that are not text"):
        (result,) = skws.search("byron", {"thing": [{"name": "byron", "photo": b"\xff"}]})
    assert result.tuples[0].row == {"name": "byron"}


def test_a_named_pandas_index_is_a_column() -> None:
    frame = pd.DataFrame(CUSTOMERS)
    assert len(skws.search("!customer.id:1", {"customer": frame.set_index("id")}, schema=SHOP)) == 1
    (result,) = skws.search("byron", {"customer": frame.set_index("name", drop=False)}, schema=SHOP)
    assert result.tuples[0].row == CUSTOMERS[0]


def test_relation_names_are_normalized_like_file_names() -> None:
    (result,) = skws.search("byron", {"my customers": CUSTOMERS})
    assert result.tuples[0].relation == "my_customers"
    with pytest.raises(UsageError, match="2 names become 'my_customers'"):
        skws.search("byron", {"my customers": CUSTOMERS, "my_customers": CUSTOMERS})


def test_a_missing_column_is_warned_of() -> None:
    with pytest.warns(UserWarning, match="no row of customer has 'name'; did you mean 'nmae'") as warnings:
        skws.search("byron", {"customer": [{"id": 1, "nmae": "Byron"}]}, schema=SHOP)
    assert warnings[0].filename == __file__


def test_dir_contains_the_public_names() -> None:
    assert set(dir(skws)) == {"Query", "Results", "Session", "SkwsError", "search", "__version__"}


def test_errors_are_subclasses_of_skws_error() -> None:
    with pytest.raises(skws.SkwsError, match="the query is empty"):
        skws.search("", {"customer": [{"id": 1, "name": "Byron"}]})


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"query": 5}, "query: expected keywords or a Query, found int"),
        ({"query": None}, "query: expected keywords or a Query, found NoneType"),
        ({"query": [5]}, "query: expected keywords or a Query, found int"),
        ({"schema": 5}, "schema: expected a Schema, YAML or the path of its file, found int"),
        (
            {"schema": {"relations": object()}},
            "schema: expected a dictionary .* found object in it",
        ),
        ({"window": 5}, "window: expected a duration"),
        ({"limit": -1}, "limit: expected a whole number of 0 or more, found -1"),
        ({"limit": "5"}, "limit: expected a whole number of 0 or more, found '5'"),
        ({"max_size": 0}, "max_size: expected a whole number of 1 or more, found 0"),
        ({"on_error": "stop"}, "on_error: expected fail or skip, found 'stop'"),
    ],
)
def test_invalid_arguments_of_search_are_rejected(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        skws.search(**{"query": "byron", "data": {"customer": CUSTOMERS}, "schema": SHOP, **arguments})


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"text": 5}, "query: expected a text, found int"),
        ({"name": None}, "name: expected a text, found NoneType"),
        ({"options": ["rank"]}, "options: expected texts by name, found list"),
        ({"options": {"size": 5}}, "size: expected a text, found int"),
        *(
            ({"max_size": size}, f"max_size: expected a whole number of 1 or more, found {size!r}")
            for size in (0, -1, 2.5, "3", True)
        ),
    ],
)
def test_invalid_fields_of_a_query_are_rejected(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        skws.Query(**{"text": "byron", **fields})


def test_queries_and_schemas_are_checked_before_data_is_read() -> None:
    with pytest.raises(QueryError):
        skws.search('"byron', DATA, schema=SHOP)
    with pytest.raises(SchemaError):
        skws.search("byron", DATA, schema="no-such.yaml")
    with pytest.raises(SchemaError, match="File name too long"):
        skws.search("byron", DATA, schema="relations: " * 1_000)
    with pytest.raises(UsageError, match="two queries are called 'byron'"):
        skws.search(["byron", "byron"], DATA, schema=SHOP)
    with pytest.raises(UsageError, match="two queries are called '1'"):
        skws.search({1: "byron", "1": "ada"}, DATA, schema=SHOP)  # type: ignore[dict-item]


def test_a_schema_may_be_yaml_a_path_a_schema_or_a_dictionary(tmp_path: Path) -> None:
    path = tmp_path / "shop.yaml"
    path.write_text(SHOP)
    as_dictionary = {
        "name": "shop",
        "window": "1 hour",
        "relations": {
            "customer": {"attributes": {"id": "integer", "name": "text"}, "key": ["id"]},
        },
    }
    schema = load_schema(path)
    assert isinstance(schema, Schema)
    for form in (SHOP, path, str(path), schema, as_dictionary, json.dumps(as_dictionary)):
        assert len(skws.search("byron", {"customer": CUSTOMERS}, schema=form)) == 1


def test_a_session_processes_batches() -> None:
    session = skws.Session(SHOP, tables={})
    assert session.add({"q": "byron leaks"}) == []
    assert session.process({"customer": CUSTOMERS, "purchase": PURCHASES}) == []
    (result,) = session.process({"complaint": COMPLAINTS[:1]})
    assert (result.name, result.query, result.op) == ("q", "byron leaks", "+")
    (snapshot_result,) = session.add({"other": "byron kettle"})
    assert snapshot_result.snapshot
    session.remove("q")
    later = pd.DataFrame(COMPLAINTS[:1]).assign(time=pd.to_datetime(["1970-01-01 02:00"], utc=True))
    assert session.process({"complaint": later}) == []
    assert session.counts.tuples == 6
    with pytest.raises(UsageError, match="no standing query 'q'"):
        session.remove("q")


def test_the_lateness_of_a_session_may_be_zero() -> None:
    session = skws.Session(SHOP, lateness="0 s")
    session.process({"customer": [{**CUSTOMERS[0], "time": 2}]})
    session.process({"customer": [{**CUSTOMERS[1], "time": 1}]})
    assert session.counts.late == 1
    for lateness, message in (
        (5, "found int"),
        ("soon", "expected a duration"),
        ("0 soon", "unknown unit"),
    ):
        with pytest.raises(UsageError, match=f"lateness.*{message}"):
            skws.Session(SHOP, lateness=lateness)  # type: ignore[arg-type]


def test_rows_of_a_call_are_sorted_by_time_under_a_window_of_tuples() -> None:
    session = skws.Session(SHOP, window="1 tuples")
    session.add("byron kettle")
    customers = [{**CUSTOMERS[0], "time": 1}, {**CUSTOMERS[1], "time": 3}]
    (result,) = session.process({"customer": customers, "purchase": [{**PURCHASES[0], "time": 2}]})
    assert (result.op, result.start) == ("+", 2)


def test_a_session_with_a_window_of_tuples_refuses_a_lateness() -> None:
    with pytest.raises(UsageError, match="lateness needs a window of time"):
        skws.Session(SHOP, window="20 tuples", lateness="5 s")
    session = skws.Session(SHOP, window="20 tuples", lateness="0 s")
    session.add("byron kettle")
    session.process({"customer": [{**CUSTOMERS[0], "time": 2}]})
    assert len(session.process({"purchase": [{**PURCHASES[0], "time": 1}]})) == 1


def test_bad_rows_do_not_change_a_session() -> None:
    session = skws.Session(SHOP)
    session.add("byron leaks")
    with pytest.raises(BadRecordsError):
        session.process({"customer": CUSTOMERS, "purchase": [{"id": "x"}]})
    assert session.counts.tuples == 0


@pytest.mark.parametrize("data", [{"customer": "more.jsonl"}, {"customer": Path("more.jsonl")}])
def test_a_session_rejects_files_in_place_of_rows(data: Any) -> None:
    with pytest.raises(UsageError, match="process reads no files and no database"):
        skws.Session(SHOP).process(data)


def test_a_session_rejects_stream_rows_of_static_tables() -> None:
    """In the stream, they would expire."""
    schema = SHOP.replace("    key: [id]\n", "    key: [id]\n    table: true\n", 1)
    session = skws.Session(schema, tables={"customer": CUSTOMERS})
    with pytest.raises(UsageError, match=r"customer is a static table: .* \(tables=...\)"):
        session.process({"customer": CUSTOMERS})
    assert session.counts.tuples == 0
