"""Java for a local Spark, started here and not by Spark's scripts.

Those start three shells and a Java that only spells out how to start the next one, which then looks for
packages to load. And Java loads a tenth of all its classes (Scala's reflection) for the functions of a
library of machine learning, which here is not on its class path.

Started early, it loads while Python does. Needs no PySpark itself, so that nothing comes before it.
"""

from __future__ import annotations

import os
import re
import shlex
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Final

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
