"""Drops replication slots that no job reads any more: they fill the disk of their server."""

from __future__ import annotations

from pathlib import Path

from skws.jobs.log import Log
from skws.sources.addresses import is_postgres, parse_source
from skws.sources.feed import Source, redacted
from skws_schema.errors import SourceError, UsageError


def drop(source: str, folder: Path | None = None) -> str:
    """Drop the slot of a database; returns a line for the user.

    ``folder``: where its snapshot is kept. Raises UsageError for another source, SourceError.
    """
    if not is_postgres(source):
        raise UsageError(f"--drop-slot needs a source postgresql://..., not {redacted(source)}")
    from skws.sources.postgres.feed import PostgresSource  # noqa: PLC0415 - psycopg2 is an extra

    database = parse_source(source, folder=folder)
    assert isinstance(database, PostgresSource)  # noqa: S101 - by its address
    return database.drop_slot().told(database.address)


def leave_nothing(source: Source, notes: Log) -> None:
    """Drop the slot of a run that cannot be resumed, and log it."""
    try:
        line = source.leave_nothing()
    except SourceError as error:
        line = str(error)
    if line:
        notes.info("source", line)
