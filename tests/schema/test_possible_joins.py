"""Joins suggested by values: comments in a draft, until the schema names them and a command adds them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from skws_schema.errors import UsageError
from skws_schema.infer.infer import infer, with_joins_by_values
from skws_schema.model import Join
from skws_schema.yaml.add_join import join_of, with_join
from skws_schema.yaml.load import parse_schema

Tables = Mapping[str, Mapping[str, Sequence[object]]]

CRM: Tables = {
    "users": {"id": [1, 2, 3], "name": ["Ada Byron", "Grace Hopper", "Alan Turing"]},
    "statuses": {"id": ["open", "shipped", "closed"], "label": ["Still open", "On its way", "Done"]},
    "orders": {
        "id": [101, 102, 103, 104],
        "status": ["open", "shipped", "open", "closed"],
        "item": ["lamp", "chair", "table", "desk"],
    },
    "tickets": {
        "id": [1, 2, 3, 4],
        "opened_by": [1, 2, 1, 3],
        "order_no": [101, 103, 104, 102],
        "text": ["it leaks", "it broke", "it is late", "it is missing"],
    },
}
PACKAGES: Tables = {
    "package": {"name": [f"lib{n}" for n in range(60)], "about": [f"does {n} things" for n in range(60)]},
    "dependency": {
        "number": list(range(1000, 1060)),
        "depends_on": [f"lib{n}" if n < 57 else f"virtual{n}" for n in range(60)],
    },
}
MEASURES: Tables = {
    "product": {
        "id": list(range(1, 61)),
        "stock": [n * 7 % 40 for n in range(60)],
        "active": [n % 3 == 0 for n in range(60)],
        "rating": [n % 5 + 1 for n in range(60)],
    },
    "sale": {
        "id": list(range(1, 101)),
        "quantity": [n % 9 + 1 for n in range(100)],
        "position": [n % 7 + 1 for n in range(100)],
        "paid": [n % 2 for n in range(100)],
        "up_sales": [n % 60 + 1 for n in range(100)],
    },
    "level": {"id": [1, 2, 3, 4, 5], "label": ["low", "mid", "high", "higher", "highest"]},
    "flag": {"value": ["true", "false"], "meaning": ["on", "off"]},
}


def suggestions_of(tables: Tables) -> dict[str, str]:
    schema = parse_schema(infer(tables).to_yaml())
    return {one.on: one.reason for one in schema.possible}


def test_values_suggest_joins_that_names_do_not() -> None:
    suggestions = suggestions_of(CRM)
    assert set(suggestions) == {"tickets.opened_by = users.id", "tickets.order_no = orders.id"}
    assert suggestions["tickets.opened_by = users.id"] == "by values: 100% of 3 found there"
    assert {join.name for join in infer(CRM).schema().joins} == {"orders.status = statuses.id"}


def test_a_customer_is_suggested_to_be_a_person() -> None:
    """Not one of the statuses, which have the same numbers."""
    suggestions = suggestions_of(
        {
            "users": {"id": [1, 2, 3], "name": ["Ada Byron", "Grace Hopper", "Alan Turing"]},
            "statuses": {"id": [1, 2, 3], "label": ["new", "paid", "shipped"]},
            "orders": {"id": [100, 101, 102], "customer": [1, 2, 3], "status": [3, 1, 2]},
        }
    )
    assert set(suggestions) == {"orders.customer = users.id"}


def test_an_identifier_refers_to_no_other_identifier() -> None:
    """Even if the name of the relation is an irregular plural of that of its identifier."""
    suggestions = suggestions_of(
        {
            "people": {"person_id": list(range(1, 8)), "first": list("abcdefg")},
            "notes": {"note_id": list(range(1, 31)), "about": ["x", "y", "z"] * 10},
        }
    )
    assert suggestions == {}


def test_three_equal_text_identifiers_suggest_a_join() -> None:
    suggestions = suggestions_of(
        {
            "staff": {"email": ["ada@x.org", "bob@x.org", "cy@x.org"], "full": ["Ada", "Bob", "Cy"]},
            "sales": {"invoice": [9001, 9002, 9003], "sold_to": ["cy@x.org", "ada@x.org", "bob@x.org"]},
        }
    )
    assert suggestions == {"sales.sold_to = staff.email": "by values: 100% of 3 found there"}


def test_a_few_values_may_be_missing() -> None:
    assert suggestions_of(PACKAGES) == {
        "dependency.depends_on = package.name": "by values: 95% of 60 found there",
    }


def test_measures_and_flags_suggest_no_join() -> None:
    assert suggestions_of(MEASURES) == {}


def test_the_best_few_suggestions_come_first() -> None:
    names = ["ash", "birch", "cedar", "elm", "fir", "larch"]
    logs = {
        f"log{number}": {name: [f"lib{n % (40 + number)}" for n in range(90)]}
        for number, name in enumerate(names)
    }
    suggestions = suggestions_of({**PACKAGES, **logs})
    assert len(suggestions) == 5
    assert next(iter(suggestions)) == "log0.ash = package.name"
    assert "dependency.depends_on = package.name" not in suggestions  # some of its values are missing


def test_an_inferred_schema_has_the_suggestions_of_its_yaml() -> None:
    inference = infer(CRM)
    assert inference.schema().possible == parse_schema(inference.to_yaml()).possible


@pytest.mark.parametrize("numbers", [["X1", "X2", "X1"], ["X1", "X1", "X1"]])
def test_a_shared_name_with_all_values_found_is_a_join(numbers: list[str]) -> None:
    tables = {
        "books": {"isbn": ["X1", "X2", "X3"], "title": ["Dune", "Emma", "Ulysses"]},
        "loans": {"note": ["lost", "torn", "wet"], "isbn": numbers},
    }
    assert [join.name for join in infer(tables).schema().joins] == ["loans.isbn = books.isbn"]


def test_a_table_without_columns_has_no_joins() -> None:
    inference = infer({"a": {"x": [1, 2]}, "b": {"a_x": [1]}})
    values: dict[str, dict[str, list[object]]] = {"a": {"x": [1, 2]}, "b": {}}
    assert with_joins_by_values(inference, values).joins == ()


def test_a_join_replaces_its_comment() -> None:
    text = infer(CRM).to_yaml()
    join = join_of(["users.id=tickets.opened_by"], parse_schema(text))
    new_text = with_join(text, join)
    assert [one.on for one in parse_schema(new_text).possible] == ["tickets.order_no = orders.id"]
    assert join in parse_schema(new_text).joins
    unchanged_lines = set(text.splitlines()) & set(new_text.splitlines())
    assert len(unchanged_lines) == len(set(text.splitlines())) - 1


RELATIONS = "relations:\n  a: {attributes: {x: text, y: integer}}\n  b: {attributes: {x: text, y: integer}}\n"


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (f"{RELATIONS}joins: []\n", "  - a.x = b.x"),
        (f"{RELATIONS}joins: []  # none yet\n", "  - a.x = b.x"),
        (f"joins:\n- a.y = b.y\n{RELATIONS}", "- a.x = b.x"),
        (f"joins:\n    - a.y = b.y\n\n# the rest\n{RELATIONS}", "    - a.x = b.x"),
        (f"joins:\n  - {{name: same, on: a.y = b.y}}\n{RELATIONS}", "  - a.x = b.x"),
        (f"joins:\n  - name: same\n    on: a.y = b.y\n{RELATIONS}", "  - a.x = b.x"),
        (RELATIONS, "  - a.x = b.x"),
    ],
)
def test_a_join_is_added_without_other_changes(text: str, line: str) -> None:
    new_text = with_join(text, Join.of("a", "b", (("x", "x"),)))
    assert line in new_text.splitlines()
    before, after = parse_schema(text), parse_schema(new_text)
    assert after.joins == (*before.joins, Join.of("a", "b", (("x", "x"),)))
    assert after.relations == before.relations
    assert {one for one in text.splitlines() if "#" in one and "[]" not in one} <= set(new_text.splitlines())


def test_a_join_is_added_to_a_schema_with_a_file_of_synonyms(tmp_path: Path) -> None:
    (tmp_path / "synonyms.txt").write_text("car, automobile\n")
    text = f"synonyms: synonyms.txt\n{RELATIONS}joins: []\n"
    new_text = with_join(text, Join.of("a", "b", (("x", "x"),)), tmp_path)
    assert new_text == text.replace("joins: []\n", "joins:\n  - a.x = b.x\n")


def test_a_comment_like_a_suggestion_is_kept() -> None:
    text = f"{RELATIONS}joins:\n  # - none = yet  # 0.5 of them are\n"
    assert with_join(text, Join.of("a", "b", (("x", "x"),))) == text.replace(
        "joins:", "joins:\n  - a.x = b.x"
    )


def test_only_attributes_of_the_schema_are_suggested() -> None:
    """A relation may have been deleted, and its suggestions not."""
    comments = ["c.x = a.x", "a.x = b.z", "none = yet", "a.x = b.x"]
    lines = "".join(f"  # - {on}  # 0.5 by values\n" for on in comments)
    assert [p.on for p in parse_schema(f"{RELATIONS}joins:\n{lines}").possible] == ["a.x = b.x"]


@pytest.mark.parametrize("line_end", ["\n", "\r\n"])
def test_other_lines_keep_their_ends(line_end: str) -> None:
    text = f"# no joins yet\n{RELATIONS}joins: []\n".replace("\n", line_end)
    new_text = with_join(text, Join.of("a", "b", (("x", "x"),)))
    assert new_text == text.replace("joins: []", f"joins:{line_end}  - a.x = b.x")


def test_several_conditions_are_one_join() -> None:
    schema = parse_schema(f"{RELATIONS}joins: []\n")
    join = join_of(["a.x=b.x", "b.y = a.y"], schema)
    assert join == Join.of("a", "b", (("x", "x"), ("y", "y")))
    assert join in parse_schema(with_join(f"{RELATIONS}joins: []\n", join)).joins


@pytest.mark.parametrize(
    ("conditions", "fault"),
    [
        (["a.x"], "needs '='"),
        (["a.x=c.x"], "no relation 'c'"),
        (["a.x=b.z"], "no attribute 'z' in 'b'"),
        (["a.x=b.y"], "a.x is text but b.y is integer; a join needs equal types"),
        (["a.x=b.x", "a.y=a.y"], "expected a condition between a and b"),
    ],
)
def test_an_invalid_condition_is_named(conditions: list[str], fault: str) -> None:
    with pytest.raises(UsageError, match=fault):
        join_of(conditions, parse_schema(f"{RELATIONS}joins: []\n"))


@pytest.mark.parametrize(
    ("joins", "fault"),
    [
        ("joins:\n  - b.x = a.x\n", "has the join"),
        ("joins: [a.y = b.y]\n", "add this line under joins:"),
        ("joins: &none []\n", "add this line under joins:"),
        ("...\n", "add this line under joins:"),
    ],
)
def test_a_join_that_cannot_be_added_is_rejected(joins: str, fault: str) -> None:
    with pytest.raises(UsageError, match=fault):
        with_join(f"{RELATIONS}{joins}", Join.of("a", "b", (("x", "x"),)))


@pytest.mark.parametrize(
    ("second", "is_suggested"),
    [
        ([None, *(f"<{n // 2}@x>" for n in range(1, 60))], True),  # replies
        ([f"<{n}@x>" for n in range(60)], False),  # the same ids in another form
        ([None, *(f"<{n - n % 2}@x>" for n in range(1, 60))], False),  # some rows name themselves
        ([None, *(f"<{n + 900}@x>" for n in range(1, 60))], False),
    ],
)
def test_texts_may_refer_to_other_rows_of_their_relation(second: list[object], is_suggested: bool) -> None:
    mails: dict[str, list[object]] = {"Message-ID": [f"<{n}@x>" for n in range(60)], "In-Reply-To": second}
    possible = [each.on for each in infer({"mail": mails}).schema().possible]
    assert possible == ["mail.In-Reply-To = mail.Message-ID"] * is_suggested
