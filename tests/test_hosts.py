"""Host names in Host headers."""

from __future__ import annotations

import pytest

from skws.hosts import LOOPBACK, asks_for, host_name


@pytest.mark.parametrize(
    ("authority", "name"),
    [
        ("localhost:8000", "localhost"),
        ("[::1]:80", "::1"),
        ("::1", ""),
        ("[::1", ""),
        ("a:b", ""),
        ("a/b", ""),
        ("a?localhost", ""),
        ("a#localhost", ""),
        ("user@localhost", ""),
        ("", ""),
        (" localhost", " localhost"),
    ],
)
def test_the_host_name_is_read_from_a_host_header(authority: str, name: str) -> None:
    assert host_name(authority) == name


def test_a_missing_host_header_is_not_accepted() -> None:
    assert not asks_for(None, LOOPBACK)
