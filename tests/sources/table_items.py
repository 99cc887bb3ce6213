"""The static tables of a feed as items."""

from __future__ import annotations

from skws.data.batch import Item
from skws.sources.feed import Feed


def table_items(feed: Feed) -> list[Item]:
    """The rows and bad records of each chunk, bad ones first."""
    return [item for chunk in feed.tables() for item in chunk]
