"""Spark: keyword search over DataFrames (``skws.spark.search``), and the jobs behind the command line.

Nothing outside this package imports pyspark. Modules are loaded on first use, since Java is started before
any module of PySpark is loaded.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from skws.extras import missing_extra

if TYPE_CHECKING:
    from skws.spark.dataframe_search import RECORDS, Source, search
    from skws.spark.shard_state import state

__all__ = ["RECORDS", "Source", "search", "state"]

# A search does not load the module that reads the state of shards.
_HOME: Final = {
    "RECORDS": "skws.spark.dataframe_search",
    "Source": "skws.spark.dataframe_search",
    "search": "skws.spark.dataframe_search",
    "state": "skws.spark.shard_state",
}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        module = import_module(_HOME[name])
    except ModuleNotFoundError as error:
        raise missing_extra(error) or error from None
    return getattr(module, name)


def __dir__() -> list[str]:
    """The names for completion in a notebook."""
    return list(__all__)
