"""``skws explain``, ``skws search --mesh`` and ``python -m skws``."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.commands import IDS, REPLAY, SCHEMA, SEARCH, Skws

EXPLAIN = ("explain", "tarantino", "travolta", "-s", SCHEMA)


def test_text_tells_window_and_networks(skws: Skws) -> None:
    shown = skws(*EXPLAIN, "--window", "90 minutes", "--max-size", 3)
    assert (shown.code, shown.err) == (0, "")
    assert "window: 90 minutes\n" in shown.out
    assert "candidate networks of at most 3 relations: 17\n" in shown.out


def test_replay_tells_who_is_idle(skws: Skws) -> None:
    shown = skws(*EXPLAIN, "--replay", REPLAY, "--max-size", 4).out
    assert "      => director{tarantino} - movie{} - plays{} - actor{travolta}: 1 result\n" in shown
    assert "    movie{tarantino}: idle\n" in shown


def test_replay_tells_who_sleeps_in_the_full_mesh(skws: Skws) -> None:
    shown = skws(*EXPLAIN, "--replay", REPLAY, "--max-size", 4, "--mesh", "full")
    assert (shown.code, shown.err) == (0, "")
    assert "evaluator: full mesh, tuple by tuple\n" in shown.out
    asleep = "=> director{tarantino} - movie{travolta}: 0 results, asleep: no movie{travolta} is alive\n"
    assert asleep in shown.out


@pytest.mark.parametrize("options", [("--no-demand",), ("--mesh", "full", "--evaluator", "auto")])
def test_what_a_mesh_has_not_is_refused(skws: Skws, options: tuple[str, ...]) -> None:
    shown = skws(*EXPLAIN, *options)
    assert shown.code == 2
    assert "--mesh full" in shown.err


@pytest.mark.parametrize(("kind", "start"), [("dot", "digraph mesh {"), ("svg", "<svg ")])
def test_graphs(skws: Skws, kind: str, start: str) -> None:
    assert skws(*EXPLAIN, "--format", kind).out.startswith(start)


@pytest.mark.parametrize(
    "options",
    [
        ("--mesh", "full"),
        ("--mesh", "full", "--no-demand", "--purge", "eager"),
        ("--mesh", "partial", "--purge", "eager"),
        ("--mesh", "forest"),
        ("--mesh", "columnar"),
    ],
)
def test_every_mesh_finds_the_same(skws: Skws, options: tuple[str, ...]) -> None:
    plain = skws(*SEARCH, "-q", "-f", "jsonl")
    found = skws(*SEARCH, "-q", "-f", "jsonl", *options)
    assert (found.code, found.out) == (0, plain.out)
    assert all(known in found.out for known in IDS)


def test_a_retraction_shows_when_it_happened(skws: Skws, tmp_path: Path) -> None:
    row = '"row": {"did": 1, "name": "Quentin Tarantino"}'
    replay = tmp_path / "stream.jsonl"
    lines = [
        f'{{"relation": "director", "time": {t}, "op": "{op}", {row}}}' for t, op in ((5, "+"), (65, "-"))
    ]
    replay.write_text("\n".join(lines) + "\n")
    command = ("search", "tarantino", "-s", SCHEMA, "-r", replay, "--engine", "local", "-q")
    shown = skws(*command).out.splitlines()
    assert [line.split()[:2] for line in shown[1:]] == [
        ["+", "1970-01-01T00:00:05Z"],
        ["-", "1970-01-01T00:01:05Z"],
    ]


def test_runs_as_a_module() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "skws", "--version"], capture_output=True, text=True, check=True
    )
    assert done.stdout.startswith("skws ")
