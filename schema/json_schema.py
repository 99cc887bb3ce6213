"""The JSON Schema of the YAML document, from which editors complete and check it."""

from __future__ import annotations

from typing import Any

from schema.document import Document

DIALECT = "https://json-schema.org/draft/2020-12/schema"


def json_schema() -> dict[str, Any]:
    """The JSON Schema (2020-12) of a schema's YAML, as plain data."""
    described: dict[str, Any] = Document.model_json_schema()
    _close(described)
    return {"$schema": DIALECT, **described, "title": "skws stream schema"}


def _close(node: object) -> None:
    """Refuse keys that are no names: pydantic leaves mappings open beyond their pattern."""
    if isinstance(node, dict):
        if "patternProperties" in node:
            node["additionalProperties"] = False
        for value in node.values():
            _close(value)
    elif isinstance(node, list):
        for value in node:
            _close(value)
