"""Sort keys of version numbers, whose order is neither that of texts nor of numbers."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache
from typing import Any, Final

from skws_schema.model import VersionOrder

VersionKey = tuple[Any, ...]

_PARTS: Final = re.compile(r"([^0-9]*)([0-9]*)")
_SEMANTIC: Final = re.compile(
    r"v?(?P<numbers>[0-9]+(?:\.[0-9]+){0,2})(?:-(?P<early>[0-9A-Za-z-]+(?:\.[0-9A-Za-z-]+)*))?"
    r"(?:\+[0-9A-Za-z.-]+)?"
)
_LONGEST: Final = 1_000
"""The most characters of a version; Python can parse a number of this many digits."""
EXPECTED: Final = {
    VersionOrder.DEBIAN: "a version of Debian such as 2:1.4~rc1-3",
    VersionOrder.SEMANTIC: "a semantic version such as 1.4.0-rc.1",
}


@lru_cache(maxsize=1 << 16)
def known_key(order: VersionOrder, text: str) -> VersionKey | None:
    """The sort key of a version; None for a text that is not a version of this order."""
    return _KEYS[order](text) if len(text) <= _LONGEST else None


def _debian(text: str) -> VersionKey | None:
    """The key for the order of ``dpkg --compare-versions`` (Debian Policy, section 5.6.12)."""
    epoch, _, version_text = text.partition(":") if ":" in text else ("0", "", text)
    version, _, revision = version_text.rpartition("-") if "-" in version_text else (version_text, "", "0")
    if not (epoch.isascii() and epoch.isdigit() and version and revision) or any(map(str.isspace, text)):
        return None
    return int(epoch), _pieces(version), _pieces(revision)


def _pieces(text: str) -> VersionKey:
    """Alternating signs and numbers. A tilde sorts before the end of the text, letters before other signs."""
    return tuple(
        part for signs, digits in _PARTS.findall(text) for part in ((*map(_rank, signs), 0), int(digits or 0))
    )


def _rank(sign: str) -> int:
    if sign == "~":
        return -1
    return ord(sign) if sign.isascii() and sign.isalpha() else ord(sign) + 256


def _semantic(text: str) -> VersionKey | None:
    """The key by Semantic Versioning 2.0.0, section 11. Missing numbers are 0; ignores build metadata."""
    match = _SEMANTIC.fullmatch(text)
    if match is None:
        return None
    numbers = [int(number) for number in match["numbers"].split(".")]
    prerelease = match["early"]
    parts = () if prerelease is None else tuple(map(_identifier, prerelease.split(".")))
    return (*numbers, *[0] * (3 - len(numbers)), prerelease is None, parts)


def _identifier(text: str) -> tuple[int, int, str]:
    return (0, int(text), "") if text.isascii() and text.isdigit() else (1, 0, text)


_KEYS: Final[dict[VersionOrder, Callable[[str], VersionKey | None]]] = {
    VersionOrder.DEBIAN: _debian,
    VersionOrder.SEMANTIC: _semantic,
}
