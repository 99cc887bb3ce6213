"""What is asked for in the query box: keywords, or ``pattern: ...``. All of the text names the query."""

from __future__ import annotations

from typing import Final

PATTERN: Final = "pattern"
_PREFIX: Final = f"{PATTERN}:"


def is_pattern(asked: str) -> bool:
    """True if a pattern is asked for, no keywords."""
    return asked.lstrip().startswith(_PREFIX)


def query_of(asked: str) -> str:
    """The text that results name: without what tells a pattern."""
    return asked.strip().removeprefix(_PREFIX).strip() if is_pattern(asked) else asked
