"""The virtual environments of peers, created when first needed.

Peers have their own licences, so they are never dependencies of skws. The environments are in the
user's cache folder; deleting them is safe.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import venv
from collections.abc import Callable
from pathlib import Path

from skws_schema.errors import SourceError, UsageError, nearest

_PINS = Path(__file__).parent
PEERS = ("duckdb", "pathway")
_READY = ".ready"
_INSTALL_SECONDS = 1800


def select_peers(names: str) -> tuple[str, ...]:
    """The peers of a list such as ``duckdb,pathway``. Raises UsageError."""
    peers = tuple(dict.fromkeys(name.strip() for name in names.split(",")))
    for name in peers:
        if name not in PEERS:
            raise UsageError(f"--engines {name!r}: expected some of {', '.join(PEERS)}{nearest(name, PEERS)}")
    return peers


def pins(peer: str) -> tuple[str, ...]:
    """The packages that are installed for a peer, with exact versions."""
    return tuple((_PINS / f"{peer}.txt").read_text().split())


def folder(peer: str) -> Path:
    """The folder of a peer's environment, which depends on the versions of the peer and of Python."""
    # By the specification, a relative XDG_CACHE_HOME counts as not set.
    cache_home = Path(os.environ.get("XDG_CACHE_HOME", ""))
    cache = cache_home if cache_home.is_absolute() else Path.home() / ".cache"
    python = f"py{sys.version_info.major}.{sys.version_info.minor}"
    return cache / "skws" / "peers" / f"{'-'.join(pins(peer)).replace('==', '-')}-{python}"


def python_of(peer: str, report: Callable[[str], None]) -> Path:
    """The interpreter of a peer's environment, which is created if missing. Raises SourceError."""
    path = folder(peer)
    python = path / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
    if not (path / _READY).exists():
        report(f"creating an environment with {', '.join(pins(peer))} in {path}")
        try:
            _make(path, python, pins(peer))
        except (OSError, subprocess.SubprocessError) as error:
            shutil.rmtree(path, ignore_errors=True)
            raise SourceError(_not_installed(peer, path, error)) from None
    return python


def _make(path: Path, python: Path, packages: tuple[str, ...]) -> None:
    venv.create(path, clear=True, with_pip=True)
    # Without PYTHONPATH and the user's packages, which pip would consider installed.
    install = ["-E", "-s", "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *packages]
    subprocess.run(
        [str(python), *install], check=True, capture_output=True, text=True, timeout=_INSTALL_SECONDS
    )
    (path / _READY).touch()


def _not_installed(peer: str, path: Path, error: Exception) -> str:
    # The reason that pip gives is its last error line, followed by notices.
    output_lines = str(getattr(error, "stderr", None) or error).strip().splitlines()
    complaints = [line for line in output_lines if "error" in line.lower()] or output_lines or ["no message"]
    other_peers = ",".join(name for name in PEERS if name != peer)
    return (
        f"{peer} could not be installed ({', '.join(pins(peer))}, in {path}): {complaints[-1].strip()}; "
        f"it is loaded from the package index when first needed; --engines {other_peers} does without"
    )
