"""The commands in the READMEs of examples that take longer than a search."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from shutil import copytree

import pyarrow.parquet
import pytest

from tests.docs.blocks import steps
from tests.docs.shell import Shell
from tests.places import ROOT

EXAMPLES = ROOT / "examples"


@pytest.fixture
def shell(tmp_path: Path) -> Iterator[Shell]:
    copytree(EXAMPLES, tmp_path / "examples")
    new_shell = Shell(tmp_path)
    yield new_shell
    new_shell.close()


@pytest.mark.slow
def test_the_courts_example_runs(shell: Shell, tmp_path: Path) -> None:
    generate, renamed, parties, alerts = steps(EXAMPLES / "courts" / "README.md", __file__, tmp_path)
    shell.run(generate)
    assert "docket{docket:zenith}" in shell.run(renamed)
    assert "party{party:mike} - " in shell.run(parties)
    assert len(shell.run(alerts).splitlines()) > 100


@pytest.mark.slow
def test_the_transfers_example_runs(shell: Shell, tmp_path: Path) -> None:
    (step,) = steps(EXAMPLES / "transfers" / "README.md", __file__, tmp_path)
    assert " of them too late" in shell.run(step)


@pytest.mark.slow
def test_the_vulnerabilities_example_runs(shell: Shell, tmp_path: Path) -> None:
    comparison, alerts = steps(EXAMPLES / "vulnerabilities" / "README.md", __file__, tmp_path)
    assert "0 differ" in shell.run(comparison)
    assert "change{" in shell.run(alerts)


@pytest.mark.spark
@pytest.mark.slow
def test_the_pipeline_example_runs(shell: Shell, tmp_path: Path) -> None:
    (step,) = steps(EXAMPLES / "pipeline" / "README.md", __file__, tmp_path)
    spec = tmp_path / "examples" / "pipeline" / "spark-pipeline.yml"
    storage = (tmp_path / "kept").as_uri()
    text = spec.read_text(encoding="utf-8").replace("file:///tmp/skws-shop-pipeline", storage)
    spec.write_text(text, encoding="utf-8")
    shell.run(step)
    alerts = pyarrow.parquet.read_table(tmp_path / "my-pipeline" / "spark-warehouse" / "alerts").to_pylist()
    assert [alert["op"] for alert in alerts] == ["+"]
