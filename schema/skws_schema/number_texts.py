"""How numbers are written, exactly; for schemas that are inferred, and for values that are converted."""

from __future__ import annotations

import re
from decimal import Decimal
from typing import Final

NOT_FINITE_TEXT: Final = re.compile(r"[+-]?(?:nan|inf|infinity)", re.ASCII | re.IGNORECASE)
"""Texts in a column of numbers that mean that there is no number."""


def digits(number: Decimal) -> str:
    """An exact number without an exponent; equal numbers have equal texts: ``1`` for ``1.00``."""
    integer, _, fraction = f"{number:f}".partition(".")
    fraction = fraction.rstrip("0")
    text = f"{integer}.{fraction}" if fraction else integer
    return "0" if text == "-0" else text


def is_double(number: Decimal) -> bool:
    """True if a double can represent all digits of an exact number."""
    return Decimal(repr(float(number))) == number
