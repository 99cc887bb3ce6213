"""The page on testing has the rows that its command counts, and figures that are about right."""

from __future__ import annotations

import pytest

from docs.testing_counts import PAGE, of_items, of_tree, read, shown


@pytest.fixture(scope="module")
def table() -> dict[str, int]:
    return read(PAGE.read_text(encoding="utf-8"))


def test_it_has_the_rows_that_are_counted(table: dict[str, int]) -> None:
    assert list(table) == [*of_items([]), *of_tree()]
    assert all(table.values())


def test_counts_of_the_tree_are_about_those_of_the_page(table: dict[str, int]) -> None:
    """So that nobody has to run the command for each new test."""
    for name, count in of_tree().items():
        assert 0.7 * count <= table[name] <= 1.3 * count, name


def test_items_are_counted_by_kind(request: pytest.FixtureRequest) -> None:
    counts = of_items([request.node, request.node])
    assert counts["tests"] == 2
    assert sum(counts.values()) == 2


def test_a_table_reads_back() -> None:
    assert read(shown({"tests": 12_345, "of them slow": 7})) == {"tests": 12_345, "of them slow": 7}
