"""Generated and mutated inputs of each grammar run in processes with limited memory and time."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.fuzz.__main__ import SIZE
from tests.fuzz.fuzzing import Language, TooSlowError, fuzz, processor_time, words_and_signs
from tests.fuzz.languages import LANGUAGES
from tests.places import ROOT
from tests.strategies import THOROUGH

LEAST_ACCEPTED = 0.8
"""The minimum share of accepted inputs of a grammar: checking only errors would be of little use."""


def run(folder: Path, number: int, *names: str) -> None:
    """Fails if an input breaks a property, too few are accepted, or one needs too much time or memory."""
    last = folder / "last"
    command = [sys.executable, "-m", "tests.fuzz", *names, "--number", str(number), "--last", str(last)]
    options = ["--fresh"] if THOROUGH else []
    process = subprocess.run([*command, *options], cwd=ROOT, capture_output=True, text=True, check=False)
    assert process.returncode == 0, (process.stdout, process.stderr[-4000:], last.read_bytes()[:4000])
    counts = {name: kinds for name, *kinds in map(json.loads, process.stdout.splitlines())}
    assert counts.keys() == set(names)
    for name, (generated, mutated) in counts.items():
        assert generated["checked"] == mutated["checked"] == number, name
        assert generated["accepted"] >= LEAST_ACCEPTED * number, name


@pytest.mark.check
def test_a_few_inputs_of_three_languages_are_handled(tmp_path: Path) -> None:
    run(tmp_path, 15, "keywords", "sql", "jsonl")


@pytest.mark.slow
@pytest.mark.parametrize("name", LANGUAGES)
def test_ten_thousand_inputs_of_a_language_are_handled(tmp_path: Path, name: str) -> None:
    run(tmp_path, 10_000, name)


def rejects_and(text: str, _: object) -> bool:
    assert "AND" not in text
    return True


def test_a_violated_property_is_detected(tmp_path: Path) -> None:
    patterns = LANGUAGES["patterns"]
    language = Language("broken", patterns.grammar, rejects_and, words_and_signs, ("AND",))
    with pytest.raises((AssertionError, ExceptionGroup)):
        fuzz(language, 200, fresh=False, last=tmp_path / "last")
    assert b"AND" in (tmp_path / "last").read_bytes()


def _never_ends() -> None:
    with processor_time(0.05):
        while True:
            pass


def test_a_slow_input_is_interrupted() -> None:
    with pytest.raises(TooSlowError):
        _never_ends()


@pytest.mark.skipif(not SIZE.exists(), reason="limits memory by /proc")
def test_excessive_memory_fails_the_process() -> None:
    program = "from tests.fuzz.__main__ import limit_memory; limit_memory(); bytearray(2 << 30)"
    process = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert "MemoryError" in process.stderr
