"""A Java started without Spark's scripts: PySpark connects to it, and it ends with its standard input."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from skws.spark.java_ahead import java_ahead
from skws.spark.local_java import LocalJava, class_path, is_plain

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
