"""The schema of the simulations: customers and their orders, and refunds for a while."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

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
_REFUND: Final = replace(SCHEMA.relations[1], name="refund")
MORE: Final = replace(
    SCHEMA,
    relations=(*SCHEMA.relations, _REFUND),
    joins=(*SCHEMA.joins, Join("customer.cid = refund.cid", "customer", "refund", (("cid", "cid"),))),
)
_AT: Final = Attribute("at", AttributeType.TIMESTAMP)
STAMPED: Final = replace(
    SCHEMA,
    relations=(
        SCHEMA.relations[0],
        replace(SCHEMA.relations[1], attributes=(*SCHEMA.relations[1].attributes, _AT), time="at"),
    ),
)
"""Orders have a time of their own."""
