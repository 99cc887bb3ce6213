"""Where indexes are kept between runs, and who makes them."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import blake2b
from pathlib import Path
from typing import Final

CACHE: Final = "SKWS_CACHE"


def cache_folder(of: str) -> Path:
    """Where indexes of one kind are kept: in ``SKWS_CACHE``, or the user's cache."""
    given = os.environ.get(CACHE)
    user = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return (Path(given) if given else Path(user).expanduser() / "skws") / of


def digest(text: str) -> str:
    """A name for what an index was made from: equal for equal texts alone."""
    return blake2b(text.encode(), digest_size=16).hexdigest()


@contextmanager
def alone(folder: Path) -> Iterator[None]:
    """No other process makes an index in the folder meanwhile."""
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
