"""Relations that a query leaves out, said in its text: that goes wherever queries go."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from schema.errors import QueryError

_NAME: Final = re.compile(r"[^\W-][^\s!-,./:-@\[-^`{-~]*")


def with_left_out(text: str, relations: Iterable[str]) -> str:
    """The query that leaves out some relations, too. Raises QueryError for what can be no relation's name."""
    for name in relations:
        if not _NAME.fullmatch(name):
            raise QueryError(f"{name!r}: expected the name of a relation to leave out")
        text += f" -{name}:"
    return text
