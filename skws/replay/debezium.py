"""Debezium change events as records."""

from __future__ import annotations

from typing import Any


def is_change(item: dict[str, Any]) -> bool:
    """Whether a JSON object is a Debezium change event, bare, wrapped, or beside its key."""
    if "payload" in item or ("key" in item and "value" in item):
        return True
    return "op" in item and ("before" in item or "after" in item)
