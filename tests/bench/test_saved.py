"""The measurements of saved searches, in small: both ways match the same, and rates are measured."""

from __future__ import annotations

import pytest

from bench.saved.courts import compare
from bench.saved.percolator import Percolator


def test_skws_and_the_percolator_match_the_same_dockets() -> None:
    pytest.importorskip("ahocorasick")
    by_skws, percolated = compare(400, 50, 3000)
    assert by_skws.change[0] > 0
    assert percolated.hub[1] > 0


def test_a_docket_is_percolated_as_it_is_now() -> None:
    pytest.importorskip("ahocorasick")
    percolator = Percolator({"a": "docket:zenith filing:seal", "b": "docket:doe filing:seal"})
    assert percolator.store("docket", {"id": 1, "name": "Doe v. Acme"}) == 1
    percolator.store("filing", {"id": 1, "docket": 1, "description": "motion to seal"})
    assert percolator.percolate(1) == ({"b"}, set())
    percolator.store("docket", {"id": 1, "name": "Zenith v. Doering"})
    assert percolator.percolate(1) == ({"a"}, {"b"})
