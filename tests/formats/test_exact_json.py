"""Integers of JSON beyond 64 bits."""

from __future__ import annotations

import pytest

from skws.formats.exact_json import loads


@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize("digits", range(17, 23))
def test_integers_are_exact(sign: int, digits: int) -> None:
    for first in range(1, 10):
        number = sign * (first * 10 ** (digits - 1) + 7)
        assert loads(f'{{"id": [{number}]}}') == {"id": [number]}
