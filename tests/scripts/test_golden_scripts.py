"""Every golden script has its output on every host. ``make golden`` rewrites them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

import pytest
from pyspark.sql import SparkSession

from skws.queries.partitioning.parts import Partitioning
from skws.spec.enums import EngineName
from tests.scripts.hosts import JobHost, ReplaySearch, SessionHost, ShardsHost
from tests.scripts.script import Block, Host, StepInput, StepOutput, parse_script, play

FOLDER: Final = Path(__file__).parent
SCRIPTS: Final = sorted(FOLDER.glob("*/*.skws"))
HOSTS: Final[dict[str, Callable[[Path], Host]]] = {
    "job": JobHost,
    "restarted job": lambda folder: JobHost(folder, restarted=True),
    "shards": lambda _: ShardsHost(),
    "rebuilt shards": lambda _: ShardsHost(rebuilt=True),
    "shards of queries": lambda _: ShardsHost(spread=Partitioning.QUERIES),
}


def of_scripts(paths: Sequence[Path], few: int | None = None) -> pytest.MarkDecorator:
    """Runs a test with each script; all but every ``few``-th are slow."""
    slow = pytest.mark.slow
    return pytest.mark.parametrize(
        "path",
        [
            pytest.param(path, id=f"{path.parent.name}/{path.stem}", marks=slow if few and n % few else ())
            for n, path in enumerate(paths)
        ],
    )


def read(path: Path) -> list[Block]:
    return parse_script(path.read_text(encoding="utf-8"))


@of_scripts(SCRIPTS)
def test_scripts_have_their_output_in_a_session(path: Path, tmp_path: Path) -> None:
    """Results must have the order of the script."""
    search = ReplaySearch(tmp_path, EngineName.LOCAL)
    for block, output in play(read(path), SessionHost(), search):
        assert output == list(block.output), block.input


def of_hosts(paths: Sequence[Path]) -> pytest.MarkDecorator:
    """Runs a test with each script on each host; for every other script, one host in turn is not slow."""
    return pytest.mark.parametrize(
        ("path", "host"),
        [
            pytest.param(path, host, id=f"{path.parent.name}/{path.stem}-{host}", marks=marks)
            for n, path in enumerate(paths)
            for host_number, host in enumerate(HOSTS)
            for marks in [() if n % (2 * len(HOSTS)) == 2 * host_number else pytest.mark.slow]
        ],
    )


@of_hosts([path for path in SCRIPTS if path.parent.name != "errors"])  # errors start no host
def test_scripts_have_their_output_on_other_hosts(path: Path, host: str, tmp_path: Path) -> None:
    """Results of a micro-batch may have any order."""
    for block, output in play(read(path), HOSTS[host](tmp_path)):
        if output is not None:
            assert sorted(output) == sorted(block.output), block.input


@pytest.mark.spark
@of_scripts([path for path in SCRIPTS if "\nsearch" in path.read_text(encoding="utf-8")], few=8)
def test_searches_of_scripts_have_their_results_on_spark(
    path: Path, tmp_path: Path, spark: SparkSession
) -> None:
    """Results may have any order."""
    search = ReplaySearch(tmp_path, EngineName.SPARK)
    for block, output in play(read(path), SessionHost(), search):
        if block.input and block.verb == "search":
            assert sorted(output or ()) == sorted(block.output), block.input


def test_a_host_is_closed_after_a_failure() -> None:
    class FailingHost(SessionHost):
        closed = False

        def work(self, step: StepInput) -> StepOutput:
            raise RuntimeError("a defect")

        def close(self) -> None:
            self.closed = True
            super().close()

    host = FailingHost()
    script = "schema\nrelations: {note: {attributes: {text: text}}}\n---\n\nquery q: lamp\n---\n"
    with pytest.raises(RuntimeError, match="a defect"):
        play(parse_script(script), host)
    assert host.closed
