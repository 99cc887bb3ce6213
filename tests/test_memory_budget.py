"""The memory budget: sizes, the warning at half of it, and the error with its reasons."""

from __future__ import annotations

import re
import resource
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from weakref import WeakSet

import orjson
import pytest

import skws as library
from skws.keywords.parse import parse_query
from skws.keywords.plan import Plan
from skws.memory import LEAST, MemoryShare, free, free_in_container, read_size
from skws.queries.keywords.stream_engine import StreamEngine
from skws_mesh.candidate_networks import drawn_networks
from skws_schema import budgets
from skws_schema.budgets import Footprint, MemoryBudget
from skws_schema.errors import MemoryBudgetError, UsageError
from skws_schema.yaml.load import parse_schema
from skws_windows.window import Unbounded

SCHEMA = """\
window: 20 hours
relations:
  a: {attributes: {t: text, k: integer}, search: [t]}
  b: {attributes: {t: text, k: integer}, search: [t]}
joins: [a.k = b.k]
"""


@pytest.fixture(autouse=True)
def no_budget() -> Iterator[None]:
    yield
    budgets.use(None)


class FakeHolder:
    """Claims to hold memory."""

    def footprint(self) -> Footprint:
        return Footprint(1 << 62, "query 'x' holds 7 results")


@pytest.mark.parametrize(
    ("limit", "used", "statistics", "counter"),
    [
        ("memory.max", "memory.current", "memory.stat", "inactive_file"),
        (
            "memory/memory.limit_in_bytes",
            "memory/memory.usage_in_bytes",
            "memory/memory.stat",
            "total_inactive_file",
        ),
    ],
)
def test_cached_files_of_a_container_count_as_free(
    tmp_path: Path, limit: str, used: str, statistics: str, counter: str
) -> None:
    unlimited = free_in_container(tmp_path)
    (tmp_path / "memory").mkdir()
    (tmp_path / limit).write_text("4000\n")
    (tmp_path / used).write_text("3900\n")
    assert free_in_container(tmp_path) == 100
    (tmp_path / statistics).write_text(f"file 3600\n{counter} 3500\n")
    assert free_in_container(tmp_path) == 3600
    (tmp_path / used).write_text("9000\n")
    assert free_in_container(tmp_path) == 0
    (tmp_path / limit).write_text("max\n")
    assert free_in_container(tmp_path) == unlimited


@pytest.mark.parametrize(
    ("line", "folder", "limit", "used"),
    [
        ("0::/user.slice/run-7.scope", ".", "memory.max", "memory.current"),
        (
            "4:cpu,memory:/user.slice/run-7.scope",
            "memory",
            "memory.limit_in_bytes",
            "memory.usage_in_bytes",
        ),
    ],
)
def test_the_limits_of_all_groups_around_the_process_apply(
    tmp_path: Path, line: str, folder: str, limit: str, used: str
) -> None:
    own_groups, scope = tmp_path / "cgroup", tmp_path / folder / "user.slice" / "run-7.scope"
    own_groups.write_text(f"9:pids:/elsewhere\n{line}\n")
    scope.mkdir(parents=True)
    for group, free_bytes in ((scope, 500), (scope.parent, 300), (scope.parent.parent, 800)):
        (group / limit).write_text(f"{1000 + free_bytes}\n")
        (group / used).write_text("1000\n")
    assert free_in_container(tmp_path, own_groups) == 300
    (scope / used).write_text("1400\n")
    assert free_in_container(tmp_path, own_groups) == 100


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("2GiB", 2 << 30),
        ("2 g", 2 * 1000**3),
        ("500MB", 500 * 1000**2),
        ("0.5 gib", 1 << 29),
        ("268435456", 1 << 28),
    ],
)
def test_memory_sizes_are_parsed(text: str, size: int) -> None:
    assert read_size(text) == size
    assert read_size(text, 2) == max(LEAST, size // 2)


@pytest.mark.parametrize(
    "text", ["", "much", "-1GiB", "0%", "101%", "1KiB", "1 GiB more", "nan%", f"{10**400}GiB"]
)
def test_invalid_memory_sizes_are_rejected(text: str) -> None:
    with pytest.raises(UsageError, match="--memory"):
        read_size(text)


def test_a_percentage_is_of_the_free_memory() -> None:
    half = read_size("50%")
    assert budgets.used_bytes() < half < budgets.used_bytes() + free()


def test_the_budget_warns_once_and_its_error_names_the_largest_holder() -> None:
    holder, warnings = FakeHolder(), list[str]()
    budgets.register(holder)
    budgets.check()  # no budget, no limit
    budgets.use(MemoryBudget(int(1.5 * budgets.used_bytes()), warnings.append))
    budgets.check()
    budgets.check()
    assert len(warnings) == 1
    assert "half of the memory budget" in warnings[0]
    assert "query 'x' holds 7 results" in warnings[0]
    with pytest.raises(MemoryBudgetError, match="used up: query 'x' holds 7 results") as error:
        budgets.check(budgets.used_bytes())
    assert "--max-size" in str(error.value)


def test_an_explanation_of_very_many_networks_ends_at_the_budget() -> None:
    """``skws explain --limit`` makes as many networks as it shows."""
    schema = parse_schema(SCHEMA, "s.yaml")
    generator = Plan(schema, parse_query("x y", schema), Unbounded(), 3).generator()
    root, *_ = generator.roots
    assert drawn_networks(generator, *root, limit=1)
    budgets.use(MemoryBudget(budgets.used_bytes() // 2))
    with pytest.raises(MemoryBudgetError):
        drawn_networks(generator, *root, limit=1)


def test_searches_may_begin_while_the_largest_holder_is_found() -> None:
    """Other threads of a server begin them."""
    later = [FakeHolder() for _ in range(100)]

    class FirstHolder(FakeHolder):
        def footprint(self) -> Footprint:
            for holder in later:
                budgets.register(holder)
            return Footprint(1 << 63, "the first holds 9 results")

    first_holders = [FirstHolder() for _ in range(3)]
    for holder in first_holders:
        budgets.register(holder)
    budgets.use(MemoryBudget(1))
    with pytest.raises(MemoryBudgetError, match="the first holds 9 results"):
        budgets.check()


def test_queries_without_rows_are_counted_as_holders() -> None:
    schema = parse_schema(SCHEMA, "s.yaml")
    engine = StreamEngine(schema, Unbounded())
    engine.add_all([Plan(schema, parse_query(word, schema), Unbounded(), 1) for word in ("x", "y")])
    assert engine.footprint().text.startswith("2 queries hold")


TIMED = """\
window: {window}
relations:
  a: {{attributes: {{t: text, k: integer}}, search: [t]}}
  b: {{attributes: {{t: text, k: integer}}, search: [t], finite: true}}
  z: {{attributes: {{t: text}}}}
joins: [a.k = b.k]
"""


@pytest.mark.parametrize(
    ("window", "query", "kind", "text"),
    [
        ("1 hour", "a x ; a y+ where x.k = y.k", "pattern", "8,178 results of a batch"),
        ("none", "SELECT b.t FROM b, b c WHERE b.time < 99 AND c.time < 99", "sql", "201 entries"),
        ("open when a close when z", "alpha beta", "keywords", "1,300 results"),
    ],
)
def test_a_query_of_any_kind_that_holds_the_most_is_named(
    monkeypatch: pytest.MonkeyPatch, window: str, query: str, kind: str, text: str
) -> None:
    monkeypatch.setattr(budgets, "_holders", WeakSet())  # other tests leave some in this process
    session = library.Session(TIMED.format(window=window), max_size=2)
    session.add([library.Query("x y"), library.Query(query, kind=kind)])
    alpha = [{"t": "alpha", "k": 1, "time": time} for time in range(13)]
    beta = [{"t": "beta", "k": 1, "time": 20} for _ in range(100)]
    session.process({"a": alpha, "b": [*beta, {"t": "gamma", "k": 1, "time": 21}]})
    budgets.use(MemoryBudget(1))
    with pytest.raises(MemoryBudgetError, match=f"{re.escape(repr(query))}.* hold.* {text}"):
        budgets.check()


def test_out_of_memory_errors_are_reported_like_the_budget() -> None:
    with pytest.raises(MemoryBudgetError, match="the system is out of memory"), budgets.explain_refusals():
        raise MemoryError
    with (
        pytest.raises(MemoryBudgetError, match="the system is out of memory"),
        MemoryShare("50%", 2).apply(),
    ):
        raise MemoryError


def test_processes_of_an_executor_with_all_cores_share_the_memory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("os.cpu_count", lambda: 4)
    previous = budgets.size()
    with MemoryShare("4GiB", 0).apply():
        assert budgets.size() == 1 << 30
    budgets.use(None if previous is None else MemoryBudget(previous))


def hot_key_search(tmp_path: Path, number: int) -> list[str]:
    """A command that searches ``number`` tuples, each of which joins as many others at one instant."""
    (tmp_path / "hot.yaml").write_text(SCHEMA)
    with (tmp_path / "hot.jsonl").open("wb") as file:
        for row_number in range(2 * number):
            relation, word = (("a", "alpha"), ("b", "beta"))[row_number % 2]
            record = {"relation": relation, "time": 1, "row": {"t": word, "k": 1}}
            file.write(orjson.dumps(record) + b"\n")
    options = ["-s", str(tmp_path / "hot.yaml"), "-r", str(tmp_path / "hot.jsonl"), "--engine", "local"]
    return [sys.executable, "-m", "skws", "search", "alpha", "beta", *options, "--max-size", "2"]


@pytest.mark.check
def test_a_search_warns_and_ends_at_its_memory_budget(tmp_path: Path) -> None:
    process = subprocess.run(
        [*hot_key_search(tmp_path, 2_500), "-f", "jsonl", "--memory", "256MiB"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (process.returncode, process.stdout) == (1, "")
    assert "half of the memory budget of 256.0 MiB is in use" in process.stderr
    assert "the memory budget of 256.0 MiB is used up: query 'alpha beta'" in process.stderr
    assert "network a{alpha} - b{beta}" in process.stderr
    assert "What would help" in process.stderr


@pytest.mark.slow
def test_an_address_space_limit_ends_a_search_like_the_budget(tmp_path: Path) -> None:
    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_AS, (1_200 << 20, 1_200 << 20))

    process = subprocess.run(
        [*hot_key_search(tmp_path, 4_000), "-f", "jsonl", "--memory", "100GiB"],
        capture_output=True,
        text=True,
        check=False,
        preexec_fn=limit,
        env={"OPENBLAS_NUM_THREADS": "1"},
    )
    assert (process.returncode, process.stdout) == (1, "")
    assert "the system is out of memory" in process.stderr
    assert "unexpected" not in process.stderr
    assert "What would help" in process.stderr


@pytest.mark.slow
def test_a_limited_search_stays_within_its_memory_budget(tmp_path: Path) -> None:
    process = subprocess.run(
        [*hot_key_search(tmp_path, 800), "-f", "jsonl", "--limit", "10", "--memory", "256MiB"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert len(process.stdout.splitlines()) == 10


@pytest.mark.check
def test_search_rejects_an_invalid_memory_size() -> None:
    process = subprocess.run(
        [sys.executable, "-m", "skws", "search", "x", "-s", "s", "-r", "r", "--memory", "lots"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert process.returncode == 2
    assert "--memory lots: expected a size such as 2GiB" in process.stderr
