"""Schemas of the streams whose cost is measured."""

from __future__ import annotations

from typing import Final

from skws_schema.yaml.load import parse_schema
from skws_windows.window import ExpressionWindow

PAIR: Final = parse_schema("""\
window: none
relations:
  a: {attributes: {t: text, k: integer}, key: [k], search: [t]}
  b: {attributes: {t: text, k: integer}, search: [t]}
joins: [a.k = b.k]
""")
WARD: Final = parse_schema("""\
window: 1 hour
relations:
  vital: {attributes: {p: integer, temp: integer}}
  visit: {attributes: {p: integer, note: text}, key: [p], search: [note]}
joins: [vital.p = visit.p]
""")
FEVER: Final = ExpressionWindow("open when temp > 38 close when temp < 38 per p")
MINUTE: Final = 60_000_000
