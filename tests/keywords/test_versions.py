"""Orders of versions, compared with dpkg and the tables in their definitions, and rejected uses."""

from __future__ import annotations

import subprocess
from itertools import pairwise
from shutil import which

import pytest
from hypothesis import given
from hypothesis import strategies as st

import skws
from skws.data.blocks import RowBlock
from skws.data.versions import VersionKey, known_key
from skws.keywords.match import Matcher
from skws.keywords.parse import parse_query
from skws_schema.errors import PatternError, QueryError, SchemaError
from skws_schema.model import VersionOrder
from skws_schema.yaml.document import to_yaml
from skws_schema.yaml.load import parse_schema
from tests.strategies import examples

DEBIAN, SEMANTIC = VersionOrder.DEBIAN, VersionOrder.SEMANTIC
ASCENDING = {
    DEBIAN: (
        *("0~~", "0~~a", "0~", "0", "0a", "0+", "0.9", "1.0~rc1-1", "1.0-0.1", "1.0-1~deb12u1", "1.0-1"),
        *("1.0-1+b1", "1.0-1.1", "1.0-2", "1.0a-1", "1.0+dfsg-1", "1.0.1", "1.2", "1.10", "1:0.1", "2:0"),
    ),
    # The examples in sections 9 to 11 of Semantic Versioning 2.0.0.
    SEMANTIC: (
        *("0.9", "1.0.0-alpha", "1.0.0-alpha.1", "1.0.0-alpha.beta", "1.0.0-beta", "1.0.0-beta.2"),
        *("1.0.0-beta.11", "1.0.0-rc.1", "1.0.0", "1.0.1", "1.9.0", "1.10.0", "2.0.0", "2.1.0", "2.1.1"),
    ),
}
EQUAL = {
    DEBIAN: (("1.0", "1.0-0"), ("1.0", "0:1.0"), ("1.00", "1.0"), ("1.a", "1.a0")),
    SEMANTIC: (("1", "1.0.0"), ("v1.2", "1.2.0"), ("1.0.0+x.1", "1.0.0+y"), ("01.2.3", "1.2.3")),
}
INVALID = {
    DEBIAN: ("", " ", "1 2", "a:1", "1:", ":1", "1-", "-1", "x" * 2000),
    SEMANTIC: ("", "a", "1.2.3.4", "1.", "1.0-", "1.0-a..b", "1 2", "x1", "1" * 2000, "1.2.³"),
}


def key(order: VersionOrder, text: str) -> VersionKey:
    version_key = known_key(order, text)
    assert version_key is not None, text
    return version_key


@pytest.mark.parametrize("order", VersionOrder)
def test_versions_are_ordered_as_in_the_tables(order: VersionOrder) -> None:
    for one, other in pairwise(ASCENDING[order]):
        assert key(order, one) < key(order, other), (one, other)
    for one, other in EQUAL[order]:
        assert key(order, one) == key(order, other), (one, other)
    for text in INVALID[order]:
        assert known_key(order, text) is None


PIECES = ("0", "1", "10", "9", "00", "~", "+", ".", "a", "b", "Z", "rc", "-", "1:", "~~", "dfsg")
versions = st.lists(st.sampled_from(PIECES), max_size=5).map(lambda pieces: "1" + "".join(pieces))


def dpkg(one: str, sign: str, other: str) -> bool:
    process = subprocess.run(
        ["dpkg", "--compare-versions", one, sign, other], capture_output=True, check=False
    )
    return process.returncode == 0


@pytest.mark.skipif(which("dpkg") is None, reason="no dpkg")
@given(versions, versions)
@examples(400)
def test_debian_versions_are_ordered_as_by_dpkg(one: str, other: str) -> None:
    first, second = known_key(DEBIAN, one), known_key(DEBIAN, other)
    if first is not None and second is not None:
        assert (first < second, first == second) == (dpkg(one, "lt", other), dpkg(one, "eq", other))


@pytest.mark.skipif(which("dpkg") is None, reason="no dpkg")
def test_dpkg_agrees_with_the_debian_table() -> None:
    assert all(dpkg(one, "lt", other) for one, other in pairwise(ASCENDING[DEBIAN]))
    assert all(dpkg(one, "eq", other) for one, other in EQUAL[DEBIAN])


YAML = """
name: inventory
relations:
  package:
    attributes:
      name: text
      version: {type: string, order: debian}
      available: {type: string, order: debian}
      tag: {type: text, order: semantic}
      size: integer
      most: integer
"""
SCHEMA = parse_schema(YAML)


@pytest.mark.parametrize(
    ("condition", "row", "holds"),
    [
        ("version<2.9.14", ("2.9.4", None), True),
        ("version<2.9.14", ("2.9.14~rc1", None), True),
        ("version<=2.9.14", ("2.9.14-0", None), True),
        ("version>2:1.2.3~rc1-4", ("2:1.2.3-1", None), True),
        ("version=1.0", ("1.00", None), True),
        ("version!=1.0", ("1.00", None), False),
        ("version!=1.0", ("1.1", None), True),
        ("version:1.0", ("1.00", None), True),
        ("version:1.9..1.10", ("1.9.5", None), True),
        ("version:..1.9", ("1.10", None), False),
        ("version<available", ("1.9", "1.10"), True),
        ("version>=available", ("1.9", "1.10"), False),
        ("version=package.available", ("1.0", "1.00"), True),
        ("version<available", ("1.9", None), False),
        ("version<available", (None, "1.9"), False),
        ("version!=available", ("no version", "1.9"), False),
        ("version!=1.9", ("no version", None), False),
        ('version<"available"', ("1.9", "1.8"), True),  # in quotes it is a version, not the attribute
    ],
)
def test_version_conditions_hold_alike_for_rows_and_blocks(
    condition: str, row: tuple[str | None, str | None], holds: bool
) -> None:
    matcher = Matcher(parse_query(f"!{condition}", SCHEMA), SCHEMA)
    full_row = ("x", *row, None, None, None)
    (by_block,) = matcher.bitmaps_of([RowBlock(0, [full_row])])
    assert (matcher.bitmap(0, full_row) == 1, int(by_block[0]) == 1) == (holds, holds)


@pytest.mark.parametrize(
    ("size", "maximum", "signs"), [(1, 2, {"<", "<=", "!="}), (2, 2, {"<=", "=", ">="}), (None, 2, set())]
)
def test_numbers_of_a_row_are_compared_with_each_other(
    size: int | None, maximum: int | None, signs: set[str]
) -> None:
    row = ("x", None, None, None, size, maximum)
    satisfied = {
        sign
        for sign in ("<", "<=", "=", "!=", ">=", ">")
        if Matcher(parse_query(f"!size{sign}most", SCHEMA), SCHEMA).bitmap(0, row)
    }
    assert satisfied == signs


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("x tag<latest", "tag is compared in semantic order: expected a semantic version such as"),
        ("x tag<1.2.3.4", "got '1.2.3.4'"),
        ("x version<1:", "compared in debian order: expected a version of Debian such as"),
        ("x version:2.0..1.9", "the range 2.0..1.9 ends before it begins"),
        ("x version<tag", "compared in different orders: debian and semantic"),
        ("x version<name", "compared in different orders: debian and letter by letter"),
        ("x size<package.name", "size is of type integer, and name of type text"),
    ],
)
def test_comparisons_without_a_common_order_are_rejected(query: str, message: str) -> None:
    with pytest.raises(QueryError) as error:
        parse_query(query, SCHEMA)
    assert message in str(error.value)


def test_version_orders_are_written_to_yaml() -> None:
    assert parse_schema(to_yaml(SCHEMA)) == SCHEMA
    assert SCHEMA.relations[0].attributes[3].order is SEMANTIC


@pytest.mark.parametrize(
    ("attribute", "message"),
    [
        (
            "{type: integer, order: debian}",
            "r.v: only a string or text has an order of versions; this is integer",
        ),
        ("{type: string, order: rpm}", "unknown order of versions 'rpm'; expected one of debian, semantic"),
        ("version", "versions are texts with an order: {type: string, order: semantic}, or debian"),
    ],
)
def test_an_invalid_version_order_is_rejected(attribute: str, message: str) -> None:
    with pytest.raises(SchemaError) as error:
        parse_schema(f"relations:\n  r:\n    attributes: {{t: text, v: {attribute}}}\n")
    assert message in str(error.value)


@pytest.mark.parametrize("where", ["p.version < '2.0'", "p.version < p.available"])
def test_patterns_reject_comparisons_of_versions(where: str) -> None:
    query = skws.Query.of_pattern(f"package p ; package q where {where} within 1 minute")
    with pytest.raises(
        PatternError, match=r"version is a version \(debian\), and patterns do not order versions"
    ):
        skws.Session(YAML).add(query)
