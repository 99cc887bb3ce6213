"""Relations that a change of the schema removed can no longer be named in keywords."""

from __future__ import annotations

from dataclasses import replace

import pytest

from skws.keywords.parse import parse_query
from skws.queries.stream_state import changed
from skws.spec.stream import Stream
from skws_schema.errors import QueryError
from skws_schema.model import Attribute, AttributeType, Relation, Schema
from skws_schema.yaml.write import to_yaml
from skws_windows.window import TimeWindow

NAME = Attribute("name", AttributeType.TEXT)
BEFORE = Schema("shop", tuple(Relation(name, (NAME,), search=("name",)) for name in ("shop", "item")), ())
AFTER = changed(
    Stream(BEFORE, TimeWindow(10)), to_yaml(replace(BEFORE, relations=BEFORE.relations[1:]))
).schema


@pytest.mark.parametrize(
    "text", ["shop:lamp", "lamp -shop:rome", "lamp shop.name=rome", "lamp !shop.name=rome", "lamp -shop:"]
)
def test_a_removed_relation_is_unknown(text: str) -> None:
    parse_query(text, BEFORE)
    with pytest.raises(QueryError, match="shop"):
        parse_query(text, AFTER)


def test_what_was_ambiguous_is_not_any_more() -> None:
    with pytest.raises(QueryError, match="2 relations"):
        parse_query("lamp name=rome", BEFORE)
    (restriction,) = parse_query("lamp name=rome", AFTER).exclusions
    assert restriction.same(parse_query("lamp item.name=rome", AFTER).exclusions[0])
