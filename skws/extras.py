"""Packages beside skws: those that an extra installs, and those that add sources, sinks and kinds of queries.

A package names what it adds in its metadata, under a group of entry points:

    [project.entry-points."skws.sources"]
    program = "my_package:Program"
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

from skws_schema.errors import SourceError, UsageError

_EXTRAS: Final = {
    "pyspark": ("Spark", "spark", "; --engine local does not need it"),
    "textual": ("the terminal UI", "tui", ""),
    "z3": ("the check of window expressions", "windows", ""),
    "networkx": ("a graph, as for the check of window expressions,", "windows", ""),
    "psycopg2": ("PostgreSQL", "postgres", ""),
    "fastapi": ("skws serve", "serve", ""),
    "starlette": ("skws serve", "serve", ""),
    "uvicorn": ("skws serve", "serve", ""),
    "confluent_kafka": ("Kafka", "kafka", ""),
    "pandas": ("a data frame of pandas", "spark", ""),
}
"""By module: the feature that needs it, the extra that installs it, and advice."""


def missing_extra(error: ImportError) -> SourceError | None:
    """The error that names the extra for a missing module; None if no extra installs it."""
    module = (error.name or "").partition(".")[0].replace("py4j", "pyspark")  # which installs it
    if module not in _EXTRAS or not isinstance(error, ModuleNotFoundError):
        return None
    feature, extra, advice = _EXTRAS[module]
    return SourceError(f"{feature} needs {module}: pip install 'skws[{extra}]'{advice}")


@contextmanager
def installed() -> Iterator[None]:
    """Turn failed imports inside into a SourceError that names the extra that installs the package."""
    try:
        yield
    except ModuleNotFoundError as error:
        raise missing_extra(error) or error from None


SOURCES: Final = "skws.sources"
"""By the scheme of an address: a function of the address that returns a ``skws.sources.feed.Source``."""
SINKS: Final = "skws.sinks"
"""By the scheme of an address: a function of the address that returns a ``skws.sinks.base.Sink``."""
KINDS: Final = "skws.kinds"
"""By the name of a kind: a class of ``skws.queries.operator.QueryPlan``, made of a query and a stream."""


def extension(group: str, name: str) -> Callable[..., Any] | None:
    """The object that an installed package adds to a group under a name; None if there is none.

    Raises UsageError if two packages add it, or if it cannot be loaded.
    """
    from importlib.metadata import entry_points  # noqa: PLC0415 - only for names that skws itself does not know

    candidates = [*entry_points(group=group, name=name)]
    if not candidates:
        return None
    if len(candidates) > 1:
        raise UsageError(
            f"{name}: {' and '.join(one.value for one in candidates)} both add it to {group}; uninstall one"
        )
    (entry_point,) = candidates
    try:
        factory = entry_point.load()
    except Exception as error:  # the package may raise anything
        raise UsageError(f"{name}: {entry_point.value} cannot be loaded: {error}") from error
    if not callable(factory):
        raise UsageError(f"{name}: {entry_point.value} cannot be called; it should be a class or a function")
    return factory  # type: ignore[no-any-return] # checked above
