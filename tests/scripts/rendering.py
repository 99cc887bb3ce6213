"""A result as one line of a golden script: everything visible except its id."""

from __future__ import annotations

from typing import Any

import orjson

from skws.results.result import LiveResult


def line_of(result: LiveResult) -> str:
    """``OP QUERY START..END`` with details by kind of query, then the network or labels with the rows."""
    shown = result.to_dict()
    head = f"{shown['op']} {shown['query']} {_span(shown)}"
    parts = [head, *_extras(shown), _body(shown)]
    return "  ".join(part for part in parts if part)


def _span(shown: dict[str, Any]) -> str:
    start, end = shown.get("start"), shown.get("end")
    return f"{_number(start)}..{_number(end)}"


def _number(value: Any) -> str:
    if value is None:
        return "-"
    return f"{value:.6f}".rstrip("0").rstrip(".")


def _extras(shown: dict[str, Any]) -> list[str]:
    found = []
    if shown.get("snapshot"):
        found.append("snapshot")
    if "event" in shown:
        reason = f" {shown['reason']}" if shown.get("reason") else ""
        found.append(f"{shown['event']} {shown['rank']} at {_number(shown['at'])}{reason}")
    if "changed" in shown and "event" not in shown:
        found.append(f"at {_number(shown['at'])}")
    if "changed" in shown:
        found += [f"{name}: {', '.join(changed)}" for name, changed in shown["changed"].items()]
    found += [f"{key}={shown[key]}" for key in ("group", "folded", "held_back", "count") if key in shown]
    if "score" in shown:
        found.append(f"score={shown['score']:.4f}")
    if "window" in shown:
        found.append(f"window={orjson.dumps(shown['window']).decode()}")
    return found


def _body(shown: dict[str, Any]) -> str:
    tuples = " ".join(_tuple(one) for one in shown["tuples"])
    return f"{shown['network']}: {tuples}" if "network" in shown else tuples


def _tuple(shown: dict[str, Any]) -> str:
    labels = f"{','.join(shown['labels'])}=" if shown.get("labels") else ""
    position = f"@{shown['position']}" if "position" in shown else ""
    keywords = "{" + ",".join(shown["keywords"]) + "}" if shown["keywords"] else ""
    values = ", ".join(orjson.dumps(value).decode() for value in shown["row"].values())
    return f"{labels}{shown['relation']}{keywords}{position}({values})"
