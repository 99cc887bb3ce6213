"""Joins that comments in an inferred schema suggest, with the evidence for them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from skws_schema.model import Possible

IMPLIED: Final = "but other joins imply it"
"""Ends the reason of a join that would only repeat results."""
_LINE: Final = re.compile(
    r"\s*# - (?P<on>[^\s#\[=]+ = [^\s#=]+)\s+# [01](?:\.[0-9]+)? (?P<reason>.*)", re.ASCII
)


def possible_of(line: str) -> Possible | None:
    """The join that a line suggests; None if it is not such a comment."""
    match = _LINE.fullmatch(line)
    return match and Possible(match["on"].strip("'\""), match["reason"])


def possible_joins(text: str) -> Iterator[Possible]:
    """The suggested joins of a YAML text, without implied ones."""
    for join in map(possible_of, text.splitlines()):
        if join is not None and not join.reason.endswith(IMPLIED):
            yield join
