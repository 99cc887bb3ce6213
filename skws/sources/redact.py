"""Addresses as they may be shown: without passwords."""

from __future__ import annotations

import re
from typing import Final

HIDDEN: Final = "***"
# To the last @, so that a password with one in it is hidden whole (a query may be hidden with it).
_USER_INFO: Final = re.compile(r"(?<=://)([^:/?#@]*):(.*)@", re.S)
_PARAMETER: Final = re.compile(
    r"(?i)((?:^|[?&\s;])[\w.]*(?:password|secret|token)\s*=\s*)('(?:[^'\\]|\\.)*'|[^&\s;]*)"
)


def redacted(address: str) -> str:
    """``address`` with every password replaced by stars."""
    return _PARAMETER.sub(rf"\g<1>{HIDDEN}", _USER_INFO.sub(rf"\g<1>:{HIDDEN}@", address))
