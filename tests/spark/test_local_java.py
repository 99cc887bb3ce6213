"""A Java started without Spark's scripts: PySpark connects to it, and it ends with its standard input."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from skws.spark.java_ahead import java_ahead
from skws.spark.local_java import LocalJava, class_path, is_plain
from tests.waiting import until

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="elsewhere Spark's scripts start Java")

_JAVA = r"""#!/bin/sh
echo "$@" > {folder}/arguments
printf '\000\000\037\220\000\000\000\006secret' > {folder}/told
mv {folder}/told "$_PYSPARK_DRIVER_CONN_INFO_PATH"
exec cat
"""


@pytest.fixture
def plain(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith(("SPARK_", "PYSPARK_"))]:
        monkeypatch.delenv(name)


def program(folder: Path, text: str) -> Path:
    path = folder / "java"
    path.write_text(text.format(folder=folder))
    path.chmod(0o755)
    return path


def test_pyspark_finds_it_and_nothing_is_left_in_the_environment(plain: None, tmp_path: Path) -> None:
    java = LocalJava(program(tmp_path, _JAVA), '-Done="with a blank"', "1g")
    with java.found() as found:
        assert found
        assert os.environ["PYSPARK_GATEWAY_PORT"] == "8080"
        assert os.environ["PYSPARK_GATEWAY_SECRET"] == "secret"
    assert not any(name.startswith("PYSPARK_GATEWAY") for name in os.environ)
    arguments = (tmp_path / "arguments").read_text()
    assert " -Xmx1g -Done=with a blank " in arguments
    assert java.process.poll() is None
    java.close()
    assert java.process.wait(20) == 0


def test_one_that_does_not_run_is_told(plain: None, tmp_path: Path) -> None:
    java = LocalJava(program(tmp_path, "#!/bin/sh\nexit 1\n"), "", "1g")
    with java.found() as found:
        assert not found
    assert "PYSPARK_GATEWAY_PORT" not in os.environ


def test_where_most_classes_are_comes_first_and_machine_learning_stays_out() -> None:
    jars = [Path(jar).name for jar in class_path()]
    assert jars[0].startswith("spark-catalyst_")
    assert len(jars) > 100
    assert not any(jar.startswith("spark-mllib_") for jar in jars)


@pytest.mark.parametrize("name", ["SPARK_HOME", "SPARK_ENV_LOADED", "PYSPARK_SUBMIT_ARGS", "HADOOP_CONF_DIR"])
def test_what_spark_s_scripts_heed_is_left_to_them(
    plain: None, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("HADOOP_CONF_DIR", raising=False)
    assert is_plain()
    monkeypatch.setenv(name, "something")
    assert not is_plain()
    assert java_ahead(None) is None


def test_elsewhere_there_is_none_ahead(plain: None) -> None:
    assert java_ahead("spark://other:7077") is None
    assert java_ahead("local-cluster[2,1,1024]") is None


_ARCHIVING = r"""#!/bin/sh
for argument do
  case "$argument" in
    -XX:DumpLoadedClassList=*) echo a/Class > "${argument#*=}"; echo lists >> {folder}/done ;;
    -XX:SharedArchiveFile=*) archive="${argument#*=}" ;;
    -Djava.io.tmpdir=*) touch "${argument#*=}/left" ;;
    -Xshare:dump) echo classes > "$archive"; echo writes >> {folder}/done; exit ;;
  esac
done
if [ -n "$archive" ]; then echo "maps $(cat "$archive")" >> {folder}/done; fi
printf '\000\000\037\220\000\000\000\006secret' > {folder}/told
mv {folder}/told "$_PYSPARK_DRIVER_CONN_INFO_PATH"
exec cat
"""
_SEARCH = """
import sys
from skws.spark.java_ahead import search_ahead
with search_ahead("local[1]") as java, java.found() as found:
    assert found
    print(java.process.pid)
    if sys.argv[1:]:
        sys.exit("the search fails")
"""


@pytest.fixture
def java_home(plain: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home of the Java above; the cache, and what is temporary, are beside it."""
    home = tmp_path / "java"
    (home / "bin").mkdir(parents=True)
    (home / "bin" / "java").write_text(_ARCHIVING.replace("{folder}", str(tmp_path)))
    (home / "bin" / "java").chmod(0o755)
    (home / "release").write_text('JAVA_VERSION="17.0.1"\n')
    (tmp_path / "tmp").mkdir()
    monkeypatch.setenv("JAVA_HOME", str(home))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("SKWS_CACHE", raising=False)
    monkeypatch.setenv("TMPDIR", str(tmp_path / "tmp"))
    return tmp_path


def searched(*arguments: str) -> None:
    """A command with one search; its Java has gone when it ends, with all temporary files."""
    ended = subprocess.run(
        [sys.executable, "-c", _SEARCH, *arguments],
        check=False,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert ended.returncode == bool(arguments)
    assert not Path(f"/proc/{int(ended.stdout)}").exists()
    until(lambda: not list(Path(os.environ["TMPDIR"]).iterdir()))


def test_the_first_search_has_classes_archived_that_later_ones_map(java_home: Path) -> None:
    cache = java_home / "cache" / "skws" / "java"
    searched()
    until(lambda: not list(cache.glob("search-*.new")))
    searched()
    assert (java_home / "done").read_text().splitlines() == ["lists", "writes", "maps classes"]
    (archive,) = cache.glob("search-*.jsa")
    archive.write_text("cl")  # cut off
    searched()
    until(lambda: not list(cache.glob("search-*.new")))
    assert archive.read_text() == "classes\n"


def test_classes_of_a_search_that_failed_are_not_archived(java_home: Path) -> None:
    searched("fails")
    assert (java_home / "done").read_text() == "lists\n"
    assert not list((java_home / "cache").rglob("search-*"))


@pytest.mark.slow
def test_without_archives_java_starts_as_usual(java_home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SKWS_JAVA_ARCHIVE", "0")
    searched()
    assert not (java_home / "done").exists()
    monkeypatch.delenv("SKWS_JAVA_ARCHIVE")
    monkeypatch.setenv("SKWS_CACHE", os.devnull)  # as a home that cannot be written
    searched()
    assert not (java_home / "done").exists()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_search_that_is_killed_leaves_nothing(java_home: Path, number: signal.Signals) -> None:
    search = _SEARCH.replace("if sys.argv", "sys.stdin.read()\n    if sys.argv")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-uc", search]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline()  # Java runs
        process.send_signal(number)
        assert process.wait(60) == -number
    until(lambda: not list(Path(os.environ["TMPDIR"]).iterdir()))
