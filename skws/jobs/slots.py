"""Drops replication slots that no job reads any more: they fill the disk of their server."""

from __future__ import annotations

from pathlib import Path

from skws.jobs.log import Log
from skws.sources.addresses import is_postgres, parse_source
from skws.sources.feed import redacted
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
    dropped = database.drop_slot()
    said = "dropped the slot" if dropped.slot else "there is no slot"
    kept = f"; its publication stays: {', '.join(dropped.readers)} may read it" if dropped.readers else ""
    return f"{said} {database.address.slot!r} in {database.name}{kept}"


def leave_nothing(source: str, notes: Log) -> None:
    """Drop the slot of a run that cannot be resumed, and log it.

    With ``snapshot=no`` a run resumes from the slot itself, so the slot stays.
    """
    if not is_postgres(source):
        return
    from skws.sources.postgres.address import Address  # noqa: PLC0415 - psycopg2 is an extra

    if Address.of(source).snapshot:
        try:
            line = drop(source)
        except SourceError as error:
            line = str(error)
        notes.info("source", line)
