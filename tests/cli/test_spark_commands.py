"""Commands on Spark: the demo, the same results as the local engine, and errors inside workers."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest
from py4j.protocol import Py4JError, Py4JNetworkError

from skws.cli.data import engine_of
from skws.cli.options import EngineOptions
from skws.spark.faults import SparkFailedError, plain_errors, skws_error
from skws.spec.enums import EngineChoice, EngineName
from skws_schema.errors import BadRecordsError, SourceError
from tests.commands import IDS, REPLAY, SEARCH, Skws, process
from tests.strategies import some


@pytest.mark.spark
@some("own_process", [False], [True])
def test_the_demo_on_spark_prints_trees(
    skws: Skws, request: pytest.FixtureRequest, own_process: bool
) -> None:
    if own_process:
        outcome = process("demo", "--engine", "spark")
    else:
        request.getfixturevalue("spark")
        outcome = skws("demo", "--engine", "spark")
    assert outcome.code == 0, outcome.err
    headings = [line for line in outcome.out.splitlines() if line.startswith("+")]
    assert [heading.split("  ")[1].count("{") for heading in headings] == [4, 5]
    assert outcome.out.count("title: Pulp Fiction") == 2
    assert outcome.err.startswith("769 rows, 2 results in")  # without messages of Spark


def test_the_address_of_a_master_chooses_spark(capsys: pytest.CaptureFixture[str]) -> None:
    assert engine_of(EngineOptions(master="local[1]")) is EngineName.SPARK
    note = "engine: spark, since --master is given; --engine local runs in process\n"
    assert capsys.readouterr().err == note
    assert engine_of(EngineOptions(EngineChoice.LOCAL, "local[1]")) is EngineName.LOCAL


@pytest.mark.spark
@pytest.mark.slow
def test_spark_writes_the_output_of_the_local_engine(skws: Skws, tmp_path: Path) -> None:
    broken = tmp_path / "broken.jsonl"
    broken.write_text('{"relation": "movie", "row": {"mid": "one"}}\n')
    options = ("--replay", broken, "--on-error", "skip", "--format", "jsonl")
    local = skws(*SEARCH, *options)
    spark = skws(*SEARCH, *options, "--engine", "spark")
    assert (spark.code, spark.out) == (0, local.out)
    assert all(key in spark.out for key in IDS)
    assert spark.err.splitlines()[:2] == local.err.splitlines()[:2]
    assert "769 rows, 2 results, 1 bad in" in spark.err


@pytest.mark.spark
@pytest.mark.usefixtures("spark")
def test_errors_in_spark_workers_keep_their_message_and_exit_code(skws: Skws, tmp_path: Path) -> None:
    truncated = tmp_path / "cut.jsonl.gz"
    truncated.write_bytes(
        gzip.compress(REPLAY.read_bytes())[:-1000]
    )  # its start is intact, so planning succeeds
    outcome = skws(*SEARCH, "--replay", truncated, "--engine", "spark")
    assert (outcome.code, outcome.out) == (4, "")
    assert outcome.err == f"skws: {truncated}: the gzip stream is cut off\n"


@pytest.mark.parametrize(
    ("text", "kind", "message"),
    [
        (
            "An exception was thrown from the Python worker:\nTraceback (most recent call last):\n"
            '  File "x.py", line 3, in read\nskws_schema.errors.SourceError: a.gz: the gzip stream is cut off'
            "\n\nJVM stacktrace:\norg.apache.spark.SparkException",
            SourceError,
            "a.gz: the gzip stream is cut off",
        ),
        (
            "Job aborted\nskws_schema.errors.BadRecordsError: a:1: one\n  two\n\tat org.apache.spark.X.run",
            BadRecordsError,
            "a:1: one\n  two",
        ),
        (
            "o.a.s.SparkException: Job aborted\nCaused by: java.io.IOException: No space left on device",
            SparkFailedError,
            "Spark failed: No space left on device",
        ),
        (
            "An exception was thrown from the Python worker:\nTraceback (most recent call last):\n"
            '  File "x.py", line 3, in read\n    at()\n    ^^^^\nZeroDivisionError: division by zero',
            SparkFailedError,
            "Spark failed: ZeroDivisionError: division by zero",
        ),
        (
            "Job aborted due to stage failure: Task"
            " 0 in stage 0.0 failed 1 times\n"
            "Caused by: org.apache.spark.api.python.PythonException: Traceback (most recent call last):\n"
            '  File "x.py", line 3, in read\nKeyError: 7\n\n\tat org.apache.spark.api.python.X.run',
            SparkFailedError,
            "Spark failed: KeyError: 7",
        ),
        ("[JAVA_GATEWAY_EXITED] Java gateway process exited", SourceError, "Spark cannot start: [JAVA"),
    ],
)
def test_spark_errors_are_translated(text: str, kind: type[Exception], message: str) -> None:
    error = skws_error(text)
    assert type(error) is kind
    assert str(error).startswith(message)


@pytest.mark.parametrize(
    ("error", "exited"),
    [
        (Py4JNetworkError("Error while sending or receiving"), True),
        (Py4JError("An error occurred while calling o12.load"), True),
        (ConnectionRefusedError(111, "Connection refused"), True),
        (Py4JError("An error occurred while calling o1.x. Trace:\npy4j.Py4JException: no method x"), False),
    ],
)
def test_an_exited_java_process_is_reported(error: Exception, *, exited: bool) -> None:
    with pytest.raises(SparkFailedError, match=r"^Spark failed: ") as failure, plain_errors():
        raise error
    assert ("its Java process has gone" in str(failure.value)) is exited
