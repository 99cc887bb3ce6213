"""Verdicts on patterns and conjunctive queries, compared with growth."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from skws.queries.patterns.normal_form import memory_lines, pattern_query, pattern_verdict
from skws_bounds.normal_form import Union
from skws_bounds.verdict import check
from skws_schema.model import Op
from skws_schema.yaml.load import parse_schema
from tests.commands import Skws

YAML = """\
version: 1
name: bank
window: none
relations:
  login: {attributes: {user: {type: integer, min: 1, max: 9}, place: text}}
  transfer: {attributes: {user: integer, memo: text, amount: integer}}
  refund: {attributes: {user: integer, amount: integer}}
  kind: {attributes: {user: integer, name: text}, table: true}
"""
SCHEMA = parse_schema(YAML)


def atoms(union: Union) -> list[set[str]]:
    return [{f"{a.left} {a.op} {a.right}" for a in q.atoms if not a.assumed} for q in union.queries]


def test_a_sequence_is_an_order_of_positions_and_a_choice_a_union() -> None:
    text = "(login l OR transfer l) ; (refund r AND refund s) where l.user = r.user and r.amount > 5"
    union = pattern_query(text, SCHEMA, ())
    assert [[s.relation for s in q.streams] for q in union.queries] == [
        ["login", "refund", "refund"],
        ["transfer", "refund", "refund"],
    ]
    assert atoms(union)[0] == {
        "r.position > l.position",
        "s.position > l.position",
        "r.position != s.position",
        "l.user = r.user",
        "r.amount > 5",
    }
    (order,) = {
        a.text for a in union.queries[0].atoms if str(a.right) == "l.position" and str(a.left)[0] == "r"
    }
    assert order == "l ; r"
    assert {a.op for a in union.queries[0].atoms if a.assumed} == {Op.AT_LEAST, Op.AT_MOST}


def test_what_a_variable_stands_for_more_than_once_agrees_everywhere() -> None:
    union = pattern_query("transfer t ; transfer t ; refund r where t.user = r.user", SCHEMA, ())
    assert {"t.user = t_2.user", "t_2.user = r.user"} <= atoms(union)[0]


def test_a_conjunctive_query_puts_out_its_head() -> None:
    union = pattern_query("Q(u, a) <- login(u, 'here'), refund(u, a), refund(_, 7)", SCHEMA)
    (query,) = union.queries
    assert query.names == ("login.user", "refund.amount")
    assert atoms(union) == [{"login.place = 'here'", "login.user = refund.user", "refund_3.amount = 7"}]


@pytest.mark.parametrize(
    ("text", "shown", "bounded"),
    [
        ("login l ; refund r where l.user = r.user", None, False),
        ("login l ; refund r where l.user = r.user", ("l.user", "r.amount"), True),
        ("login l AND refund r where l.user = r.user", ("r.amount",), False),
        ("login l AND refund r where l.user = r.user", ("r.user",), True),
        ("refund r ; login l where l.user = r.user", ("r.amount",), False),
        ("transfer t ; refund r where t.user = r.user", (), False),
        ("transfer t ; refund r where t.user = r.user and t.user >= 1 and t.user <= 9", (), True),
        ("transfer t ; refund r", (), True),
        ("transfer t OR refund r", None, True),
        ("transfer t", None, True),
        ("Q(u) <- login(u, _), refund(u, _)", None, True),
        ("Q(u, a) <- login(u, _), refund(u, a)", None, False),
        ("Q(u, a) <- kind(u, _), refund(u, a)", None, True),
    ],
)
def test_verdicts(text: str, shown: tuple[str, ...] | None, bounded: bool) -> None:
    assert check(pattern_query(text, SCHEMA, shown)).bounded is bounded


def test_matches_show_whole_tuples_and_so_need_them() -> None:
    verdict = pattern_verdict("Q(u) <- login(u, _), refund(u, _)", SCHEMA)
    assert verdict.bounded is False
    assert [(f.condition, f.streams, f.message) for f in verdict.failures] == [
        ("C3", (name,), f"results show each {name} tuple whole, and more of them may come at any time")
        for name in ("login", "refund")
    ]
    assert pattern_verdict("Q(a) <- kind(u, _), refund(u, a)", SCHEMA).bounded
    assert memory_lines("login l+ ; refund r", SCHEMA) == [
        "memory, as nothing expires: not known, a repetition (+) is no select-project-join, "
        "and its memory is not decided"
    ]


def test_the_commands(tmp_path: Path, skws: Skws) -> None:
    (tmp_path / "bank.yaml").write_text(YAML)
    schema = ("--schema", tmp_path / "bank.yaml")
    text = "transfer t ; refund r where t.user = r.user"
    done = skws("bounds", "check", *schema, "--pattern", text, "--select", "r.amount", "--format", "json")
    told = json.loads(done.out)
    assert done.code == 1
    assert told["projection"] == "preserving"
    assert told["failed"][0]["condition"] == "C4"
    assert told["failed"][0]["atoms"] == [{"text": "t.user = r.user", "line": 1, "column": 29}]
    counted = skws("bounds", "check", *schema, "--pattern", "transfer t ; refund r", "--select", "")
    assert counted.code == 0
    assert skws("bounds", "check", *schema).code == 2
    assert skws("bounds", "check", *schema, "--select", "a", tmp_path / "bank.yaml").code == 2
    shown = skws("explain", *schema, "--pattern", text).out
    assert "memory, as nothing expires: not bounded\n  C3: results show each t tuple whole" in shown
    shown = skws("explain", *schema, "--pattern", text, "--window", "1 hour").out
    assert shown
    assert "memory" not in shown
