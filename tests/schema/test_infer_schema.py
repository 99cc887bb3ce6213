"""Schemas inferred from samples: types, keys, event times, joins and searched columns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skws_schema.errors import SchemaError
from skws_schema.infer import infer as inferring
from skws_schema.infer.column_profile import looks_typed, profile, singular, stem, tokens
from skws_schema.infer.infer import SAMPLE_ROWS, infer
from skws_schema.model import AttributeType, Schema
from skws_schema.yaml.load import parse_schema
from tests.strategies import examples


@pytest.mark.parametrize(
    ("name", "values", "expected"),
    [
        ("n", ["1", "-2", "+3", "", None, "4"], "integer"),
        ("n", [1, 2, None, 3], "integer"),
        ("n", ["1", "2.5", "-1e3"], "number"),
        ("n", [1.5, 2, 3], "number"),
        ("zip", ["10115", "20095"], "text"),
        ("n", ["007", "12"], "text"),
        ("n", ["9223372036854775807", "1"], "integer"),
        ("n", ["9223372036854775808", "1"], "text"),
        ("n", ["1" * 50_000 + "x", "1"], "text"),
        ("t", ["a/" * 50_000 + " b", "c/" * 50_000 + " d"], "text"),
        ("b", ["true", "False", ""], "boolean"),
        ("b", [True, False], "boolean"),
        ("b", ["t", "f", "f"], "boolean"),
        ("d", ["2026-01-01", "2026-12-31"], "timestamp"),
        ("d", ["2005-05-24 22:53:30", "2005-05-24T22:53:30.5Z"], "timestamp"),
        ("d", ["2026-13-01"], "text"),
        ("created_at", [1_700_000_000, 1_700_000_500], "timestamp"),
        ("ts", [1_700_000_000.25, 1_700_000_500.5], "timestamp"),
        ("ts", ["1700000000.25", "0.5"], "number"),
        ("views", [1_700_000_000.25, 1_700_000_500.5], "number"),
        ("views", [1_700_000_000, 1_700_000_500], "integer"),
        ("t", ["Pulp Fiction", "Jackie Brown", "Alien"], "text"),
        ("t", ["Tarantino", "Travolta", "Müller", "Ōe"], "text"),
        ("t", ["USA", "D", "GB"], "text"),
        ("t", ["PG-13", "R2", "X1"], "text"),
        ("t", ["https://a.example/x", "https://b.example/y"], "text"),
        ("t", ["a@example.org", "b@example.org"], "text"),
        ("t", ["6fa459ea-ee8a-3ca4-894e-db77e160355e", "16fd2706-8baf-433b-82eb-8c7fada847da"], "text"),
        ("t", ["red", "green"] * 50, "text"),
        ("t", [], "text"),
        ("t", [None, ""], "text"),
        ("t", [["a"], {"b": 1}], "text"),
    ],
)
def test_types_are_inferred_from_values(name: str, values: Sequence[object], expected: str) -> None:
    assert profile(name, values).type == expected


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("OwnerUserId", ("owner", "user", "id")),
        ("movie_id", ("movie", "id")),
        ("movieID", ("movie", "id")),
        ("MOVIE_ID", ("movie", "id")),
        ("movieid", ("movie", "id")),
        ("country1", ("country",)),
        ("sea", ("sea",)),
        ("id", ("id",)),
        ("Straße-Nr", ("stra", "ß", "e", "nr")),
    ],
)
def test_names_are_split_into_words(name: str, words: tuple[str, ...]) -> None:
    assert tokens(name) == words


def test_names_have_stems_and_singulars() -> None:
    names = ("actor_id", "country2", "TagName", "id", "cities")
    assert [stem(name) for name in names] == [("actor",), ("country",), ("tag",), ("id",), ("city",)]
    words = {"movies": "movie", "cities": "city", "boxes": "box", "classes": "class", "series": "series"}
    assert all(singular(plural_word) == singular(word) for plural_word, word in words.items())
    assert singular("bus") != singular("bu")


MOVIES: Mapping[str, Mapping[str, Sequence[object]]] = {
    "directors": {"id": ["1", "2", "3"], "name": ["Quentin Tarantino", "Robert Altman", "Nora Ephron"]},
    "movie": {
        "MovieID": ["10", "11", "12", "13"],
        "title": ["Pulp Fiction", "Short Cuts", "Sleepless in Seattle", "Jackie Brown"],
        "directorId": ["1", "2", "3", "1"],
        "created_at": ["1994-10-14", "1994-10-15", "1995-01-01", "1997-12-25"],
        "last_update": ["2020-01-01", "2019-01-01", "2018-01-01", "2017-01-01"],
    },
    "plays": {
        "movie_id": ["10", "10", "13", "11"],
        "aid": ["7", "8", "7", "9"],
        "role": ["Jules Winnfield", "Vincent", "Ordell", "Somebody"],
    },
    "actor": {
        "aid": ["7", "8", "9"],
        "name": ["Samuel L. Jackson", "John Travolta", "Meg Ryan"],
        "mentor": [None, "7", "7"],
    },
}


def condition_names(schema: Schema) -> set[str]:
    return {join.name for join in schema.joins}


def test_joins_keys_and_event_times_are_inferred() -> None:
    schema = infer(MOVIES, "movies").schema()
    assert condition_names(schema) == {
        "movie.directorId = directors.id",
        "plays.movie_id = movie.MovieID",
        "plays.aid = actor.aid",
    }
    assert {r.name: r.key for r in schema.relations if r.name != "plays"} == {
        "directors": ("id",),
        "movie": ("MovieID",),
        "actor": ("aid",),
    }
    assert {r.name: r.time for r in schema.relations} == {
        "directors": None,
        "movie": "created_at",
        "plays": None,
        "actor": None,
    }
    assert {r.name: r.table for r in schema.relations} == {
        "directors": True,
        "movie": False,
        "plays": True,
        "actor": True,
    }


@pytest.mark.parametrize(("rows", "missing", "is_stream"), [(30, 0, True), (30, 1, False), (1000, 2, True)])
def test_a_relation_of_which_some_rows_have_no_time_is_no_stream(
    rows: int, missing: int, is_stream: bool
) -> None:
    times = [f"2026-01-01T00:{n // 60:02}:{n % 60:02}Z" if n < rows - missing else None for n in range(rows)]
    tables: dict[str, dict[str, Sequence[object]]] = {
        "visit": {"title": [f"x{n}" for n in range(rows)], "created_at": times}
    }
    relation = infer(tables).schema().relation("visit")
    assert (relation.time == "created_at", relation.table) == (is_stream, not is_stream)
    assert f"missing in {missing} rows" in infer(tables).to_yaml() or is_stream
    earlier = parse_schema("relations: {visit: {attributes: {created_at: timestamp}, time: created_at}}")
    assert infer(tables, earlier=earlier).schema().relation("visit").time == "created_at"


def test_relations_with_an_event_time_are_streams() -> None:
    schema = infer(MOVIES, timed=["plays", "actor"]).schema()
    assert [r.name for r in schema.relations if r.table] == ["directors"]


def test_the_yaml_has_the_schema_with_reasons() -> None:
    inference = infer(MOVIES, "movies")
    text = inference.to_yaml()
    assert parse_schema(text) == inference.schema()
    join_line = next(line for line in text.split("\n") if "plays.movie_id = movie.MovieID" in line)
    expected = "- plays.movie_id = movie.MovieID # 0.95 by name, and 100% of 3 values found there"
    assert " ".join(join_line.split()) == expected
    assert "      last_update: timestamp" in text
    assert text == infer(MOVIES, "movies").to_yaml()


def test_doubtful_joins_are_comments() -> None:
    inference = infer({**MOVIES, "plays": {**MOVIES["plays"], "movie_id": ["10", "11", "98", "99"]}})
    text = inference.to_yaml()
    assert "plays.movie_id = movie.MovieID" not in condition_names(inference.schema())
    assert "  # - plays.movie_id = movie.MovieID" in text
    assert parse_schema(text) == inference.schema()


def test_values_without_partner_make_a_join_doubtful() -> None:
    tables = {
        "a": {"id": [str(n) for n in range(20)], "t": ["some words"] * 20},
        "b": {"a_id": [str(n) for n in range(5, 25)], "u": ["more words"] * 20},
    }
    assert condition_names(infer(tables).schema()) == set()
    assert "  # - b.a_id = a.id" in infer(tables).to_yaml()


@pytest.mark.check
def test_a_name_suffices_if_the_other_side_was_only_sampled() -> None:
    people: dict[str, list[object]] = {
        "id": list(range(SAMPLE_ROWS + 1)),
        "name": ["some words"] * (SAMPLE_ROWS + 1),
    }
    orders: dict[str, list[object]] = {
        "person_id": list(range(SAMPLE_ROWS, SAMPLE_ROWS + 9)),
        "item": ["more words"] * 9,
    }
    inference = infer({"person": people, "order": orders})
    assert condition_names(inference.schema()) == {"order.person_id = person.id"}
    assert "0.71 by name; only the first 50,000 rows of person were looked at" in inference.to_yaml()
    with_shared_name = {"pid" if name == "id" else name: values for name, values in people.items()}
    with_prefix: dict[str, list[object]] = {"pid": orders["person_id"], "item": orders["item"]}
    assert condition_names(infer({"person": with_shared_name, "order": with_prefix}).schema()) == {
        "order.pid = person.pid"
    }
    without_values: dict[str, list[object]] = {"person_id": [None] * 9, "item": ["more words"] * 9}
    assert condition_names(infer({"person": people, "order": without_values}).schema()) == set()


def test_a_key_that_is_a_reference_is_searched_in_its_target_only() -> None:
    codes: list[object] = [f"C{chr(65 + n // 26)}{chr(65 + n % 26)}" for n in range(40)]
    tables: dict[str, dict[str, list[object]]] = {
        "country": {"code": codes, "name": [f"land {n}" for n in range(40)]},
        "border": {"country": codes * 2, "length": [n + 0.5 for n in range(80)]},
        "economy": {"country": codes[:38], "gdp": [n + 0.25 for n in range(38)]},
    }
    schema = infer(tables).schema()
    assert {join.name for join in schema.joins} == {
        "border.country = country.code", "economy.country = country.code",
    }  # fmt: skip
    assert {relation.name: relation.search for relation in schema.relations} == {
        "country": ("code", "name"), "border": (), "economy": (),
    }  # fmt: skip


def test_a_key_that_refers_to_another_relation_only_with_other_columns_is_searched() -> None:
    """A country and its capital's province together refer to a province; the code still names the country."""
    codes: list[object] = [f"C{chr(65 + n // 26)}{chr(65 + n % 26)}" for n in range(30)]
    tables: dict[str, dict[str, list[object]]] = {
        "country": {"code": codes, "province": [f"Region {n % 4}" for n in range(30)]},
        "province": {
            "name": [f"Region {n % 4}" for n in range(120)],
            "country": [codes[n // 4] for n in range(120)],
        },
    }
    schema = infer(tables).schema()
    assert {join.name for join in schema.joins} == {
        "province.country = country.code",
        "country.province = province.name and country.code = province.country",
    }
    assert {relation.name: relation.search for relation in schema.relations} == {
        "country": ("code",), "province": ("name",),
    }  # fmt: skip


def test_a_text_index_is_not_searched() -> None:
    """Its words are stems of words in other columns, which would count twice."""
    films = {"title": ["Alien", "It's", "Ran"], "fulltext": ["'alien':1A,4 'cat':2", "'it''s':1", "'ran':1"]}
    (film,) = infer({"film": films}).schema().relations
    assert film.search == ("title",)
    quotes = {"quote": ["'alien':1", "'no position'"]}
    assert infer({"film": quotes}).schema().relations[0].search == ("quote",)


def test_equal_numbers_alone_are_not_a_join() -> None:
    tables = {
        "a": {"id": list(range(50)), "score": list(range(50)), "votes": list(range(50))},
        "vote": {"id": list(range(50)), "rank": list(range(50)), "type_id": [1, 2] * 25},
    }
    assert condition_names(infer(tables).schema()) == set()


def test_equal_identifiers_are_joined_once() -> None:
    codes = [f"code {n}" for n in range(9)]
    schema = infer({"a": {"shared_ref": codes}, "b": {"shared_ref": codes}}).schema()
    assert condition_names(schema) == {"a.shared_ref = b.shared_ref"}


def test_joins_implied_by_composite_references_are_not_accepted() -> None:
    countries = ["D", "F", "GB"]
    regions = [(c, f"Region {n}") for c in countries for n in range(8)]
    tables = {
        "country": {"code": countries, "title": ["Federal Germany", "French Republic", "United Kingdom"]},
        "province": {"name": [p for _, p in regions], "country": [c for c, _ in regions]},
        "river": {
            "water": [f"Stream {n}" for n in range(40)],
            "province": [regions[n % len(regions)][1] for n in range(40)],
            "country": [regions[n % len(regions)][0] for n in range(40)],
        },
    }
    inference = infer(tables)
    assert condition_names(inference.schema()) == {
        "province.country = country.code",
        "river.province = province.name and river.country = province.country",
    }
    (implied_join,) = [f for f in inference.joins if f.value.name == "river.country = country.code"]
    assert "other joins imply it" in implied_join.reason
    assert not inference.accepts(implied_join)


def test_columns_are_renamed_and_unnameable_relations_left_out() -> None:
    columns: dict[str, list[object]] = {
        "id": ["1", "2"],
        "a b": ["x", "y"],
        "a-b": ["u", "v"],
        "a_b": ["s", "t"],
    }
    inference = infer({"a": {**columns, "(a b)": ["q", "r"], "€": ["o", "p"]}, "b.c": {"x": ["1"]}, "d": {}})
    (relation,) = inference.schema().relations
    assert {a.name: a.column for a in relation.attributes} == {
        "id": "id",
        "a_b_2": "a b",
        "a-b": "a-b",
        "a_b": "a_b",
        "a_b_3": "(a b)",
        "column_6": "€",
    }
    assert parse_schema(inference.to_yaml()) == inference.schema()
    assert inference.left_out == (
        ("b.c", "it is not a valid name"),
        ("d", "it has no column that can be an attribute"),
    )


def test_nested_objects_and_other_values_at_their_path_become_attributes() -> None:
    columns: dict[str, list[object]] = {
        "who": [None, "ada"],
        "who.name": ["Ada Byron", None],
        "where": [None, None],
        "where.city": ["London", None],
        "v1": [1, 2],
        "v1.0": [3, 4],
        "tags": [["gift card", "sale"], ["sale"]],
        "mixed": ["some words", 1.5],
    }
    (relation,) = infer({"a": columns}).relations
    assert relation.left_out == ()
    attributes = [(a.value.name, a.value.type.value, a.value.origin) for a in relation.attributes]
    assert attributes == [
        ("who", "text", None),
        ("who_name", "text", "who.name"),
        ("where_city", "text", "where.city"),
        ("v1", "integer", None),
        ("v1_0", "integer", "v1.0"),
        ("tags", "text", "tags"),
        ("mixed", "text", "mixed"),
    ]
    (wide_relation,) = infer({"a": {f"c{n}": ["x"] for n in range(inferring.WIDEST + 3)}}).relations
    assert (len(wide_relation.attributes), len(wide_relation.left_out)) == (inferring.WIDEST, 3)


def test_an_empty_sample_has_no_schema() -> None:
    with pytest.raises(SchemaError, match="nothing to infer"):
        infer({})
    with pytest.raises(ValueError, match="different lengths"):
        infer({"a": {"x": ["1"], "y": []}})


@pytest.mark.parametrize("bad_value", ["abc", "n/a", "1.5", "2026-13-01"])
def test_one_bad_value_among_a_thousand_changes_neither_type_nor_join(bad_value: str) -> None:
    numbers = [str(n) for n in range(1000)]
    times = [f"2026-01-01T00:{n % 60:02}:{n // 60:02}Z" for n in range(1000)]
    tables = {
        "orders": {"order_id": [*numbers, bad_value], "total": [*numbers, "7"]},
        "complaints": {"order_id": [*numbers, bad_value], "time": [*times, bad_value]},
    }
    inference = infer(tables)
    schema = inference.schema()
    assert [a.type.value for a in schema.relation("complaints").attributes] == ["integer", "timestamp"]
    assert schema.relation("complaints").time == "time"
    assert schema.relation("orders").key == ("order_id",)
    assert [join.name for join in schema.joins] == ["complaints.order_id = orders.order_id"]
    assert "but for 1 value" in inference.to_yaml()


@pytest.mark.parametrize(("bad_value", "equal"), [(True, 1), (1.0, 1), (False, 0)])
def test_a_bad_value_does_not_take_equal_numbers_with_it(bad_value: object, equal: int) -> None:
    """In Python, true equals 1."""
    numbers = [*range(1000), *[equal] * 500, bad_value]
    inference = infer({"orders": {"order_id": numbers, "part": numbers}})
    assert "but for 1 value" in inference.to_yaml()
    column = profile("order_id", numbers)
    assert (column.type, column.odd) == (AttributeType.INTEGER, (1500,))
    assert column.values == (*range(1000), *[equal] * 500, None)


def test_values_that_are_not_numbers_are_missing_among_numbers() -> None:
    kinds: list[list[object]] = [["1", "NaN"], ["1.5", "inf"], [1.5, float("nan")], ["NaN", "nan"]]
    types = [infer({"a": {"x": values}}).schema().relations[0].attributes[0].type.value for values in kinds]
    assert types == ["integer", "number", "number", "text"]


def test_an_earlier_schema_keeps_types_and_joins() -> None:
    """Even in small data, and if fewer values than before are in the other relation."""
    tables = {"orders": {"id": ["1", "2", "3"]}, "lines": {"order_id": ["1", "2", "3", "3"]}}
    earlier = infer(tables).schema()
    assert earlier.joins
    worse_tables = {"orders": {"id": ["1", "2", "x"]}, "lines": {"order_id": ["1", "7", "8", "y"]}}
    assert not infer(worse_tables).schema().joins
    assert infer(worse_tables, earlier=earlier).schema().joins == earlier.joins
    other_tables = {"orders": {"id": ["a", "b", "c"]}, "lines": {"order_id": ["1", "2", "3", "3"]}}
    assert not infer(other_tables, earlier=earlier).schema().joins


def test_only_the_sample_is_read() -> None:
    numbers = ["1"] * SAMPLE_ROWS
    for values, kind in (
        ([*numbers, "word"], AttributeType.INTEGER),
        ([*["word"] * 1000, *numbers], AttributeType.TEXT),
    ):
        assert infer({"a": {"x": values}}).schema().relations[0].attributes[0].type is kind


VALUES = (
    st.none()
    | st.integers(0, 5)
    | st.booleans()
    | st.floats(allow_nan=True)
    | st.sampled_from(["", "a b", "1", "2", "x", "2026-01-01", "true", "D"])
    | st.text(max_size=4)
)
NAMES = st.sampled_from(
    ["id", "a", "b", "a_id", "b_id", "aid", "name", "on", "created", "a b", "parent", "1", "no"]
)


@st.composite
def samples(draw: st.DrawFn) -> dict[str, dict[str, list[object]]]:
    tables: dict[str, dict[str, list[object]]] = {}
    for name in draw(st.lists(st.sampled_from(["a", "b", "as", "on", "x-y"]), min_size=1, unique=True)):
        rows = draw(st.integers(0, 6))
        kinds = st.sampled_from([VALUES, st.integers(0, 6), st.sampled_from(["D", "F", "USA"])])
        columns = draw(st.lists(NAMES, min_size=1, max_size=5, unique=True))
        tables[name] = {c: draw(st.lists(draw(kinds), min_size=rows, max_size=rows)) for c in [*columns, "z"]}
    return tables


@examples(150)
@given(samples())
def test_any_sample_gives_a_valid_schema(tables: dict[str, dict[str, list[object]]]) -> None:
    inference = infer(tables)
    assert parse_schema(inference.to_yaml(), default_name="x") == inference.schema()
    assert infer(tables).to_yaml() == inference.to_yaml()
    for relation in inference.schema().relations:
        columns = {a.name: tables[relation.name][a.column] for a in relation.attributes}
        rows = list(zip(*(columns[k] for k in relation.key), strict=True))
        assert len({tuple(map(str, row)) for row in rows}) == len(rows) or not relation.key
        for attribute in relation.attributes:
            present_values = [v for v in columns[attribute.name] if v not in {None, ""}]
            parse = {AttributeType.INTEGER: int, AttributeType.NUMBER: float}.get(attribute.type, str)
            for value in present_values:
                parse(str(value))  # raises no error


def test_relations_of_several_years_are_joined_with_those_of_the_same_year() -> None:
    """Also if ids begin again each year, and beside a second copy of a file."""
    tables: dict[str, dict[str, list[object]]] = {
        "customers_1": {"id": ["90"], "name": ["Ada"]},
        "customers": {"id": ["1", "2"], "name": ["Ada", "Grace"]},
    }
    for first in (0, 100):
        for year in (2023, 2024):
            begin = first * (year - 2022)
            orders: list[object] = [str(begin + n) for n in range(40)]
            tables[f"orders_{year}"] = {
                "order_id": orders,
                "customer_id": [str(n % 2 + 1) for n in range(40)],
                "item": ["lamp"] * 40,
            }
            tables[f"lines_{year}"] = {
                "line_id": [str(n) for n in range(80)],
                "order_id": [order for order in orders for _ in range(2)],
                "article": ["a"] * 80,
            }
        joins = infer(tables).schema().joins
        assert {join.name for join in joins} == {
            "orders_2023.customer_id = customers.id",
            "orders_2024.customer_id = customers.id",
            "lines_2023.order_id = orders_2023.order_id",
            "lines_2024.order_id = orders_2024.order_id",
        }


def test_a_column_refers_to_the_only_relation_of_several_numbered_ones_that_has_its_values() -> None:
    tables: dict[str, dict[str, list[object]]] = {
        "orders_1": {"id": [str(n) for n in range(40)], "item": ["a"] * 40},
        "orders_2": {"id": [str(n) for n in range(40, 80)], "item": ["a"] * 40},
        "complaints": {"order_id": [str(n) for n in range(40, 80)], "text": ["b"] * 40},
    }
    assert [join.name for join in infer(tables).schema().joins] == ["complaints.order_id = orders_2.id"]


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        (["1", "2", "3", "4", "NULL", "NULL"], "whole numbers, but for the text 'NULL' in 2 of 6 values"),
        (["1.5", "2", "3", "4", "\\N"], "numbers, but for the text '\\\\N' in 1 of 5 values"),
        (["1", "2", "3", "4", "Total"], "whole numbers, but for the text 'Total' in 1 of 5 values"),
        (
            ["2024-01-01", "2024-01-02", "2024-01-03", "2024-01-04", "0000-00-00"],
            "dates or times, but for the text '0000-00-00' in 1 of 5 values",
        ),
        (["1,50", "1.234,00", "-7,5", "1 000,5"], "numbers with a decimal comma"),
        (["31.01.2024", "1.2.2024 10:00"], "dates, but not as 2024-01-31"),
        (["3/31/2024 10:00 AM", "12/1/2024"], "dates, but not as 2024-01-31"),
        (["1", "2", "3", "4", "NULL", "n/a"], ""),
        (["1", "2", "3", "4", "4a"], ""),
        (["1", "2", "NULL"], ""),
        (["1,50", "word"], ""),
        (["1.2.3", "1.10.2024x"], ""),
    ],
)
def test_the_reason_for_a_text_says_what_its_values_look_like(values: list[str], reason: str) -> None:
    ((attribute,),) = [relation.attributes for relation in infer({"a": {"x": values}}).relations]
    assert attribute.value.type.value == "text"
    assert attribute.reason == (reason or "neither numbers nor times")
    assert looks_typed(attribute.reason) == bool(reason)


@pytest.mark.parametrize("name", ["column_7", "Unnamed: 0", "Column1", "field2", "index"])
def test_columns_without_names_of_their_own_are_not_joined(name: str) -> None:
    tables: dict[str, dict[str, list[object]]] = {
        table: {name: list(range(60)), "text": [f"{table} {n}" for n in range(60)]}
        for table in ("a", "b", "c")
    }
    assert infer(tables).schema().joins == ()
