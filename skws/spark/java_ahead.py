"""A Java for Spark on this machine, started before anything of Spark is loaded in Python.

A command that ends with its search kills its Java: Spark sleeps for a second as it stops, and there is
nothing left to save. Most of Java's start is loading classes. The first such Java lists them; then a process
in the background writes them to an archive in the user's cache, which later ones map.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from hashlib import sha256
from pathlib import Path
from typing import Final

from skws.durable import cache_folder
from skws.spark.local_java import (
    PLAIN,
    LocalJava,
    class_path,
    is_local,
    is_plain,
    java_options,
    spark_home,
    started_java,
    use_java,
)
from skws.spark.preloaded import BATCH, preloaded_python
from skws_schema.errors import SourceError

_KEPT: Final = 4  # archives, of several installations
_GIVEN_UP: Final = 3600.0  # seconds after which one that was begun is begun again
_LIST, _FRESH = "list", "archive"
# Its size beside it: Java breaks down over one that is cut off.
_WRITE: Final = f"""folder=$1 archive=$2; shift 2
nice -n 19 "$@" && wc -c < "$folder/{_FRESH}" > "$archive.size" && mv "$folder/{_FRESH}" "$archive"
rm -rf "$folder"
"""


def java_ahead(master: str | None) -> LocalJava | None:
    """None where it is for Spark's scripts to start one, or there is no Java, which the session says."""
    return started_java(java_options()) if _java(master) else None


def _java(master: str | None) -> Path | None:
    if not is_local(master) or not is_plain():
        return None
    try:
        return use_java()
    except SourceError:
        return None


@contextmanager
def search_ahead(master: str | None) -> Iterator[LocalJava | None]:
    """A Java for a command that is one search; Spark's Python processes are forked from one that is loaded.

    None where ``java_ahead`` gives none, and where ``preloaded_python`` does: Java's temporary files are in
    its folder, which goes even if this process is killed. If Spark is loaded already, its Java may be wanted
    later.
    """
    with preloaded_python(master, BATCH) as folder:
        found = None if folder is None else _java(master)
        if folder is None or found is None:
            yield None
            return
        archive = _archive(found)
        new = _begun(archive)
        # That an archive is of no use to Java is for no user. The file of its counters would outlive it.
        own = ["-Xlog:disable", "-XX:-UsePerfData", f"-Djava.io.tmpdir={folder}"]
        if new:
            own.append(f"-XX:DumpLoadedClassList={new / _LIST}")
        elif _is_wanted() and archive.exists():
            own.append(f"-XX:SharedArchiveFile={archive}")
        java = started_java(f"{java_options()} {shlex.join(own)}", folder)
        searched = False
        try:
            yield java
            searched = java.process.poll() is None
        finally:
            if java.process.poll() is not None:
                with suppress(OSError):
                    archive.unlink()  # it may be why Java has broken down
            java.kill()
            if new:
                _end(new, archive, found) if searched else shutil.rmtree(new, ignore_errors=True)


def _is_wanted() -> bool:
    return os.environ.get("SKWS_JAVA_ARCHIVE") != "0"


def _archive(java: Path) -> Path:
    """In the user's cache, by the Java, the jars and the options."""
    jars = spark_home() / "jars"
    times = [str(path.stat().st_mtime_ns) for path in (java.resolve(), jars)]
    told = "\n".join([str(java), *times, *class_path(), java_options()])
    return cache_folder("java") / f"search-{sha256(told.encode()).hexdigest()[:16]}.jsa"


def _begun(archive: Path) -> Path | None:
    """A folder to make the archive in; None if it is there, made by others, not wanted, or cannot be."""
    new = archive.with_suffix(".new")
    with suppress(OSError):
        if _is_whole(archive) or not _is_wanted():
            return None
        archive.unlink(missing_ok=True)
        if new.exists() and time.time() - new.stat().st_mtime > _GIVEN_UP:
            shutil.rmtree(new)
        new.mkdir(parents=True)
        known = sorted(new.parent.glob("search-*.jsa"), key=lambda path: path.stat().st_mtime)
        for old in known[: 1 - _KEPT]:
            old.unlink()
        return new
    return None


def _is_whole(archive: Path) -> bool:
    size = archive.with_name(f"{archive.name}.size")
    return archive.exists() and size.exists() and size.read_bytes().strip() == b"%d" % archive.stat().st_size


def _end(new: Path, archive: Path, java: Path) -> None:
    """Have the archive written by a process that outlives this one, and gives way to all others."""
    asked = (f"-XX:SharedClassListFile={new / _LIST}", f"-XX:SharedArchiveFile={new / _FRESH}")
    options = (*shlex.split(java_options()), *asked, "-Xshare:dump", "-Xlog:disable")
    write = ("/bin/sh", "-c", _WRITE, "skws", str(new), str(archive))
    subprocess.Popen(  # noqa: S603 - the user's own Java
        [*write, str(java), "-cp", os.pathsep.join(class_path()), *PLAIN, *options],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
