"""A result as one line of a golden script: everything visible except its id."""

from __future__ import annotations

from typing import Any

import orjson

from skws.results.result import LiveResult


def line_of(result: LiveResult) -> str:
    """``OP QUERY START..END`` with details by kind of query, then the network or labels with the rows."""
    fields = result.to_dict()
    prefix = f"{fields['op']} {fields['query']} {_span(fields)}"
    parts = [prefix, *_extras(fields), _body(fields)]
    return "  ".join(part for part in parts if part)


def _span(fields: dict[str, Any]) -> str:
    start, end = fields.get("start"), fields.get("end")
    return f"{_number(start)}..{_number(end)}"


def _number(value: Any) -> str:
    if value is None:
        return "-"
    return f"{value:.6f}".rstrip("0").rstrip(".")


def _extras(fields: dict[str, Any]) -> list[str]:
    extras = []
    if fields.get("snapshot"):
        extras.append("snapshot")
    if "event" in fields:
        reason = f" {fields['reason']}" if fields.get("reason") else ""
        extras.append(f"{fields['event']} {fields['rank']} at {_number(fields['at'])}{reason}")
    if "changed" in fields and "event" not in fields:
        extras.append(f"at {_number(fields['at'])}")
    if "changed" in fields:
        extras += [f"{name}: {', '.join(names)}" for name, names in fields["changed"].items()]
    extras += [f"{key}={fields[key]}" for key in ("group", "folded", "held_back", "count") if key in fields]
    if "score" in fields:
        extras.append(f"score={fields['score']:.4f}")
    if "window" in fields:
        extras.append(f"window={orjson.dumps(fields['window']).decode()}")
    return extras


def _body(fields: dict[str, Any]) -> str:
    tuples = " ".join(_tuple(tuple_fields) for tuple_fields in fields["tuples"])
    return f"{fields['network']}: {tuples}" if "network" in fields else tuples


def _tuple(fields: dict[str, Any]) -> str:
    labels = f"{','.join(fields['labels'])}=" if fields.get("labels") else ""
    position = f"@{fields['position']}" if "position" in fields else ""
    keywords = "{" + ",".join(fields["keywords"]) + "}" if fields["keywords"] else ""
    values = ", ".join(orjson.dumps(value).decode() for value in fields["row"].values())
    return f"{labels}{fields['relation']}{keywords}{position}({values})"
