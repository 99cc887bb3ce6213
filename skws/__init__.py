"""Continuous keyword search over relational data streams: a library, and the command ``skws``.

``search``, ``Session`` and the other names are loaded at their first use, so that the command starts fast.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from skws.library import Results, Session, search
    from skws.spec.query_spec import Query
    from skws_schema.errors import SkwsError

__version__ = "0.1.0"

__all__ = ["Query", "Results", "Session", "SkwsError", "search"]

_HOME = {
    "Query": "skws.spec.query_spec",
    "Results": "skws.library",
    "Session": "skws.library",
    "SkwsError": "skws_schema.errors",
    "search": "skws.library",
}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOME[name]), name)


def __dir__() -> list[str]:
    """The names that a notebook completes."""
    return [*__all__, "__version__"]
