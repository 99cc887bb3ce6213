"""Joins that a draft has as comments, with what speaks for them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from skws_schema.model import Possible

IMPLIED: Final = "but other joins imply it"
"""Ends the reason of a doubtful join that would only repeat results."""
_LINE: Final = re.compile(
    r"\s*# - (?P<on>[^\s#\[=]+ = [^\s#=]+)\s+# [01](?:\.[0-9]+)? (?P<reason>.*)", re.ASCII
)


def possible_of(line: str) -> Possible | None:
    """The join of one line, if it is such a comment."""
    found = _LINE.fullmatch(line)
    return found and Possible(found["on"].strip("'\""), found["reason"])


def possible_joins(text: str) -> Iterator[Possible]:
    """Those of a YAML text, but for implied ones."""
    for one in map(possible_of, text.splitlines()):
        if one is not None and not one.reason.endswith(IMPLIED):
            yield one
