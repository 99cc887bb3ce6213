"""Words that mean the same: groups from a file or from the YAML of a schema, one a line."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Final, TypeAlias

Groups: TypeAlias = tuple[tuple[str, ...], ...]
"""Words and phrases that mean the same, group by group."""
_COMMENT: Final = re.compile(r"(?:^|\s)#.*")  # but "c#" is a word


def read_group(line: str) -> tuple[str, ...]:
    """The words and phrases between commas. Raises ValueError with the fault."""
    words = [" ".join(word.split()) for word in line.split(",")]
    if not all(words):
        raise ValueError("expected a word between commas, found nothing")
    odd = next((word for word in words if not any(map(str.isalnum, word))), None)
    if odd is not None:
        raise ValueError(f"expected a word, found {odd!r}")
    group = tuple(dict.fromkeys(words))
    if len(group) < 2:
        raise ValueError(f"expected at least two words that mean the same, found {group[0]!r} alone")
    return group


def read_groups(lines: Iterable[str]) -> Iterator[tuple[int, tuple[str, ...] | ValueError]]:
    """The groups of a file's lines, or their faults, with the numbers of the lines from 1."""
    for number, line in enumerate(lines, 1):
        written = _COMMENT.sub("", line).strip()
        if written:
            try:
                yield number, read_group(written)
            except ValueError as error:
                yield number, error
