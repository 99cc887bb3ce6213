from __future__ import annotations

import pytest

from skws.cli.main import run
from tests.cli.command_lines import Outcome, Skws


@pytest.fixture
def skws(capsys: pytest.CaptureFixture[str]) -> Skws:
    """Runs a command line in this process."""

    def invoke(*arguments: object) -> Outcome:
        capsys.readouterr()
        code = run([str(a) for a in arguments])
        shown = capsys.readouterr()
        return Outcome(code, shown.out, shown.err)

    return invoke
