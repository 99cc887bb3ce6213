"""Where to go on in a source that is opened anew under another schema."""

from __future__ import annotations

from itertools import chain
from typing import Final

from schema.errors import UsageError
from skws.records import BadRecord
from skws.sources.feed import Feed, Offset, Source
from skws.sources.paced import PacedReplay

_ALL: Final[Offset] = {"items": 1 << 62}


def reopened_at(source: Source, feed: Feed, offset: Offset, until: int | None) -> Offset:
    """The offset in ``feed``, newly opened, of what comes behind ``offset`` in the one before.

    ``until``: the latest event time that was taken in, in microseconds. A
    replay counts its items, bad ones first, and what is bad changes with the
    schema: there all up to ``until`` counts as taken. Raises UsageError for a
    source that cannot be opened twice.
    """
    if source.local_only:
        raise UsageError(f"{source.name} cannot be read under another schema: it can be opened only once")
    if not isinstance(source, PacedReplay):
        return offset
    if until is None:
        return feed.start()
    items = feed.again(feed.start(), _ALL)
    taken = 0
    for item in chain(items):
        if not isinstance(item, BadRecord) and item.time > until:
            break
        taken += 1
    return {"items": taken}
