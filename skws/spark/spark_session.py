"""The Spark session: local by default, on a cluster with ``--master`` or spark-submit."""

from __future__ import annotations

import atexit
import os
import shutil
import signal
import sys
import tempfile
import zipfile
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path
from threading import current_thread, main_thread
from typing import Any, Final, TypeAlias

from py4j.protocol import INPUT_CONVERTER, Py4JError
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.types import NumpyArrayConverter, NumpyScalarConverter

from skws.memory import MemoryShare, size_text
from skws.spark.class_archive import archive_options
from skws.spark.local_java import driver_memory, is_local, java_options, use_java

PACKAGES = (
    "skws_schema",
    "skws_windows",
    "skws_purging",
    "skws_mesh",
    "skws_patterns",
    "skws_bounds",
    "skws",
)
# Repeats a task whose Python worker was killed, as on a cluster.
_LIVE_MASTER: Final = "local[*,4]"

Ahead: TypeAlias = Future[SparkSession]
"""A session that is starting."""


def start_session(
    master: str | None = None,
    packages: Sequence[str] = (),
) -> SparkSession:
    """A session set up for skws; on a cluster, executors get the packages of this installation.

    ``packages``: coordinates of connectors for Spark to load.

    Raises SourceError if there is no Java.
    """
    java = use_java()
    options = f"{java_options()} {archive_options(java)}".rstrip()
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # otherwise workers choose another Python
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    is_submitted = "SPARK_ENV_LOADED" in os.environ and master is None
    builder = SparkSession.builder.appName("skws")
    for name, value in _settings(options).items():
        builder = builder.config(name, value)
    if packages:
        builder = builder.config("spark.jars.packages", ",".join(packages))
    if not is_submitted:
        target_master = master or "local[*]"
        builder = builder.master(target_master)
        if target_master.startswith("local"):
            builder = builder.config("spark.driver.host", "127.0.0.1").config(
                "spark.driver.bindAddress", "127.0.0.1"
            )
            _convert_no_arrays()
    session = builder.getOrCreate()
    _ignore_java_end(session)
    _log_java_errors(session)
    if not is_local(session.sparkContext.master):
        session.sparkContext.addPyFile(str(packages_zip()))
    return session


def live_master(master: str | None) -> str | None:
    """The master of a live search: the user's, or the default. None: that of spark-submit."""
    return master or (None if "SPARK_ENV_LOADED" in os.environ else _LIVE_MASTER)


def session_ahead(master: str | None) -> Ahead:
    """The session of a live search, which starts in a thread."""
    thread = ThreadPoolExecutor(1, "spark")
    future = thread.submit(start_session, live_master(master))
    thread.shutdown(wait=False)
    return future


def stop_quietly(target: StreamingQuery | SparkSession) -> None:
    """Stop a query or session, also if Java has ended: the end of a service sends signals to Java, too."""
    with suppress(Py4JError, OSError):
        target.stop()


def worker_memory(session: SparkSession) -> MemoryShare:
    """The share of its machine's memory that a Python worker may use: one task runs on each core."""
    context = session.sparkContext
    if is_local(context.master):
        return MemoryShare(size_text(), context.defaultParallelism)
    # By default an executor of a standalone cluster has all cores of its machine.
    return MemoryShare(size_text(), int(context.getConf().get("spark.executor.cores", None) or 0))


@contextmanager
def interrupts_deferred() -> Iterator[None]:
    """Inside, an interrupt is raised at the end; a second one at once.

    PySpark, interrupted between the start of Java and its first message, would
    leave Java running for ever. Afterwards the earlier handler is restored in
    place of PySpark's, which calls Java even during another call to Java;
    stopping the session also cancels its jobs.
    """
    old_handler = signal.getsignal(signal.SIGINT)
    if current_thread() is not main_thread():
        yield
        return
    is_interrupted = False

    def note(*_: object) -> None:
        nonlocal is_interrupted
        if is_interrupted:
            raise KeyboardInterrupt
        is_interrupted = True

    if old_handler is not signal.SIG_IGN:
        signal.signal(signal.SIGINT, note)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, old_handler)
    if is_interrupted:
        raise KeyboardInterrupt


def _convert_no_arrays() -> None:
    """Keeps PySpark from checking each argument to Java for NumPy arrays, which loads pandas."""
    numpy_converters = NumpyArrayConverter, NumpyScalarConverter
    INPUT_CONVERTER[:] = (
        converter for converter in INPUT_CONVERTER if not isinstance(converter, numpy_converters)
    )


def _ignore_java_end(session: SparkSession) -> None:
    """Suppresses PySpark's traceback when Java ends while PySpark listens to it; the job reports the end."""
    server = session.sparkContext._accumulatorServer  # noqa: SLF001 - there is no other way to it
    handle = type(server).handle_error

    def handle_error(request: Any, address: Any) -> None:
        if not isinstance(sys.exception(), EOFError | ConnectionError):
            handle(server, request, address)

    server.handle_error = handle_error  # type: ignore[method-assign, assignment]


def _log_java_errors(session: SparkSession) -> None:
    """Has Spark's handler log the errors of Java's threads in our layout.

    Otherwise a thread that fails, say because its Python worker is killed, prints a traceback. The handler
    only ends Java if it is out of memory.
    """
    jvm: Any = session.sparkContext._jvm  # noqa: SLF001 - there is no other way to it
    jvm.java.lang.Thread.setDefaultUncaughtExceptionHandler(
        jvm.org.apache.spark.util.SparkUncaughtExceptionHandler(False)
    )


def _settings(options: str) -> dict[str, str]:
    return {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.execution.arrow.maxRecordsPerBatch": "20000",
        # Partitions carry slices and shards here: merging them would undo the plan.
        "spark.sql.adaptive.enabled": "false",
        "spark.driver.memory": driver_memory(),
        "spark.driver.extraJavaOptions": options,
    }


def packages_zip() -> Path:
    """The installed packages as one zip, so that executors only need Python and the dependencies.

    It exists until this process ends, since Spark sends it to executors that start later, too.
    """
    folder = tempfile.mkdtemp(prefix="skws-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    target = Path(folder) / "skws-packages.zip"
    with zipfile.ZipFile(target, "w") as archive:
        for package in PACKAGES:
            spec = find_spec(package)
            if spec is None or spec.origin is None:
                raise RuntimeError(f"package {package} is not installed")
            root = Path(spec.origin).parent
            for file in sorted(root.rglob("*")):
                if file.suffix in (".py", ".properties", ".typed"):
                    archive.write(file, str(Path(package) / file.relative_to(root)))
    return target
