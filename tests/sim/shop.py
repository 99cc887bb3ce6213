"""The schemas of the simulations: customers and their orders, refunds for a while, and a static table."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from skws.data.batch import Record
from skws_schema.model import Attribute, AttributeType, Join, Relation, Schema

SCHEMA: Final = Schema(
    "shop",
    (
        Relation(
            "customer",
            (Attribute("cid", AttributeType.INTEGER), Attribute("name", AttributeType.TEXT)),
            key=("cid",),
            search=("name",),
        ),
        Relation(
            "order",
            (Attribute("cid", AttributeType.INTEGER), Attribute("item", AttributeType.TEXT)),
            search=("item",),
        ),
    ),
    (Join("customer.cid = order.cid", "customer", "order", (("cid", "cid"),)),),
    "10 seconds",
)
_AT: Final = Attribute("at", AttributeType.TIMESTAMP)
STAMPED: Final = replace(
    SCHEMA,
    relations=(
        SCHEMA.relations[0],
        replace(SCHEMA.relations[1], attributes=(*SCHEMA.relations[1].attributes, _AT), time="at"),
    ),
)
"""Orders have their own time."""
TABLE: Final = "vip"
ROWS: Final = ((1, "gold"), (3, "gold old"), (7, "silver"))


def with_table(schema: Schema) -> Schema:
    """The schema with a static table, which customers and orders join."""
    level = Attribute("level", AttributeType.TEXT)
    table = Relation(TABLE, (schema.relations[0].attributes[0], level), search=("level",), table=True)
    joins = [
        Join(f"{name}.cid = {TABLE}.cid", name, TABLE, (("cid", "cid"),)) for name in ("customer", "order")
    ]
    return replace(schema, relations=(*schema.relations, table), joins=(*schema.joins, *joins))


def rows_of(schema: Schema) -> list[Record]:
    """The rows of the static table, if the schema has it."""
    return [Record(schema.index[TABLE], 0, row) for row in ROWS] if TABLE in schema.index else []


def with_refunds(schema: Schema) -> Schema:
    """The schema with another relation, for schema changes of a run."""
    refunds = replace(SCHEMA.relations[1], name="refund")
    join = Join("customer.cid = refund.cid", "customer", "refund", (("cid", "cid"),))
    return replace(schema, relations=(*schema.relations, refunds), joins=(*schema.joins, join))
