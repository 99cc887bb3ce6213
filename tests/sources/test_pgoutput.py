"""Every message of logical replication, from bytes as PostgreSQL documents them."""

from __future__ import annotations

import struct
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skws.sources.postgres.pgoutput import (
    EPOCH_MICROS,
    UNCHANGED,
    BeginMessage,
    Change,
    Commit,
    Delete,
    Insert,
    Other,
    RelationColumn,
    RelationMessage,
    ReplicaIdentity,
    Truncate,
    Update,
    decode,
)
from skws_schema.errors import SourceError

LSN = 0x16_B374_8D10
ROW = struct.pack(">h", 4) + b"n" + b"u" + b"t" + struct.pack(">i", 3) + b"abc" + b"t" + struct.pack(">i", 0)
CELLS = (None, UNCHANGED, b"abc", b"")
MESSAGES: list[tuple[bytes, Change]] = [
    (b"B" + struct.pack(">qqi", LSN, 5, 77), BeginMessage(LSN, EPOCH_MICROS + 5)),
    (b"C\0" + struct.pack(">qqq", LSN, LSN + 8, 5), Commit(LSN, LSN + 8, EPOCH_MICROS + 5)),
    (b"O" + struct.pack(">q", LSN) + b"elsewhere\0", Other("O")),
    (
        b"R" + struct.pack(">I", 2**32 - 1) + b"public\0movie\0d" + struct.pack(">h", 2)
        + b"\1mid\0" + struct.pack(">Ii", 23, -1) + "\0título\0".encode() + struct.pack(">Ii", 1043, 14),
        RelationMessage(
            2**32 - 1,
            "public",
            "movie",
            ReplicaIdentity.DEFAULT,
            (RelationColumn("mid", True, 23), RelationColumn("título", False, 1043)),
        ),
    ),
    (
        b"R" + struct.pack(">I", 1) + b"\0pg_class\0f" + struct.pack(">h", 0),
        RelationMessage(1, "pg_catalog", "pg_class", ReplicaIdentity.FULL, ()),
    ),
    (b"Y" + struct.pack(">I", 9) + b"public\0mood\0", Other("Y")),
    (b"I" + struct.pack(">I", 9) + b"N" + ROW, Insert(9, CELLS)),
    (b"U" + struct.pack(">I", 9) + b"N" + ROW, Update(9, None, None, CELLS)),
    (b"U" + struct.pack(">I", 9) + b"K" + ROW + b"N" + ROW, Update(9, CELLS, None, CELLS)),
    (b"U" + struct.pack(">I", 9) + b"O" + ROW + b"N" + ROW, Update(9, None, CELLS, CELLS)),
    (b"D" + struct.pack(">I", 9) + b"K" + ROW, Delete(9, CELLS, None)),
    (b"D" + struct.pack(">I", 9) + b"O" + ROW, Delete(9, None, CELLS)),
    (b"T" + struct.pack(">iBII", 2, 3, 9, 10), Truncate((9, 10))),
    (b"T" + struct.pack(">iBI", 1, 0, 9), Truncate((9,))),
    (
        b"M\1" + struct.pack(">q", LSN) + b"prefix\0" + struct.pack(">i", 4) + b"\0\1\2\3",
        Other("M"),
    ),
]  # fmt: skip


@pytest.mark.parametrize(("payload", "message"), MESSAGES)
def test_messages_are_decoded(payload: bytes, message: Change) -> None:
    assert decode(payload) == message


@pytest.mark.parametrize(("payload", "message"), MESSAGES)
def test_messages_of_wrong_length_are_rejected(payload: bytes, message: Change) -> None:
    for length in range(len(payload)):
        with pytest.raises(SourceError, match="is truncated"):
            decode(payload[:length])
    with pytest.raises(SourceError, match="is longer than its kind"):
        decode(payload + b"x")


@pytest.mark.parametrize(
    ("payload", "fault"),
    [
        (b"?", "unknown kind '[?]'"),
        (b"I" + struct.pack(">I", 9) + b"X", "has 'X' where one of N was expected at byte 6"),
        (b"D" + struct.pack(">I", 9) + b"N", "has 'N' where one of K, O was expected"),
        (
            b"I" + struct.pack(">I", 9) + b"N" + struct.pack(">h", 1) + b"t" + struct.pack(">i", -5),
            "is truncated",
        ),
    ],
)
def test_messages_of_unknown_kinds_are_rejected(payload: bytes, fault: str) -> None:
    with pytest.raises(SourceError, match=fault):
        decode(payload)


@given(st.binary(max_size=60))
def test_any_bytes_are_a_message_or_an_error(payload: bytes) -> None:
    with suppress(SourceError):
        decode(payload)
