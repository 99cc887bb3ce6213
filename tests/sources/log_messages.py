"""Encodes messages of logical replication as PostgreSQL does, from their decoded form."""

from __future__ import annotations

import struct

from skws.sources.postgres.pgoutput import (
    EPOCH_MICROS,
    UNCHANGED,
    BeginMessage,
    Cells,
    Change,
    Commit,
    Delete,
    Insert,
    RelationMessage,
    Truncate,
    Update,
)


def encoded(change: Change) -> bytes:
    """The encoded message of a change."""
    match change:
        case BeginMessage(lsn, time):
            return b"B" + struct.pack(">qqi", lsn, time - EPOCH_MICROS, 1)
        case Commit(lsn, end, time):
            return b"C\0" + struct.pack(">qqq", lsn, end, time - EPOCH_MICROS)
        case RelationMessage(oid, namespace, name, identity, columns):
            prefix = struct.pack(">I", oid) + f"{namespace}\0{name}\0{identity.value}".encode()
            column_descriptions = (
                bytes([column.key]) + column.name.encode() + b"\0" + struct.pack(">Ii", column.type, -1)
                for column in columns
            )
            return b"R" + prefix + struct.pack(">h", len(columns)) + b"".join(column_descriptions)
        case Insert(oid, new):
            return b"I" + struct.pack(">I", oid) + b"N" + _row(new)
        case Update(oid, key, old, new):
            return b"U" + struct.pack(">I", oid) + _old_row(key, old) + b"N" + _row(new)
        case Delete(oid, key, old):
            return b"D" + struct.pack(">I", oid) + _old_row(key, old)
        case Truncate(oids):
            return b"T" + struct.pack(">iB", len(oids), 0) + b"".join(struct.pack(">I", oid) for oid in oids)
        case _:
            raise ValueError(f"no message of kind {change.kind}")


def _old_row(key: Cells | None, old: Cells | None) -> bytes:
    if old is not None:
        return b"O" + _row(old)
    return b"" if key is None else b"K" + _row(key)


def _row(cells: Cells) -> bytes:
    return struct.pack(">h", len(cells)) + b"".join(map(_cell, cells))


def _cell(cell: object) -> bytes:
    if isinstance(cell, bytes):
        return b"t" + struct.pack(">i", len(cell)) + cell
    return b"u" if cell is UNCHANGED else b"n"
