"""Sources, sinks and kinds of queries that other packages add, found by their entry points.

A package names each in its metadata, under the group of what it adds:

    [project.entry-points."skws.sources"]
    program = "my_package:Program"
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from skws_schema.errors import UsageError

SOURCES: Final = "skws.sources"
"""By the scheme of an address: called with the address, gives a ``skws.sources.feed.Source``."""
SINKS: Final = "skws.sinks"
"""By the scheme of an address: called with the address, gives a ``skws.sinks.base.Sink``."""
KINDS: Final = "skws.kinds"
"""By the name of a kind: called without arguments, gives a ``skws.queries.operator.QueryKind``."""


def extension(group: str, name: str) -> Callable[..., Any] | None:
    """What an installed package adds to a group under a name; None if there is none.

    Raises UsageError if two packages add it, or if it cannot be loaded.
    """
    from importlib.metadata import entry_points  # noqa: PLC0415 - only for names that skws itself does not know

    found = [*entry_points(group=group, name=name)]
    if not found:
        return None
    if len(found) > 1:
        raise UsageError(
            f"{name}: {' and '.join(one.value for one in found)} both add it to {group}; uninstall one"
        )
    (one,) = found
    try:
        loaded = one.load()
    except Exception as error:  # whatever the other package does
        raise UsageError(f"{name}: {one.value} cannot be loaded: {error}") from error
    if not callable(loaded):
        raise UsageError(f"{name}: {one.value} cannot be called; it should be a class or a function")
    return loaded  # type: ignore[no-any-return] # checked above
