"""The parser for terms without operators has the same results as the full grammar."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skws.keywords import syntax
from skws_schema.errors import QueryError
from tests.strategies import examples

ATOMS = (
    *(
        "a",
        "pulp",
        "use-after-free",
        "CVE-2025-7425",
        "libstdc++6",
        "gir1.2-x-0.0",
        "Foo",
        "NOTE",
        "x.y",
        "_",
        ".",
    ),
    *(
        "AND",
        "OR",
        "NOT",
        "NEAR3",
        "W",
        "name:",
        "rel.name:",
        "AND:",
        "W:",
        '"a b"',
        '"x-y z."',
        '"',
        ":",
        "-",
        " ",
    ),
)
texts = st.lists(
    st.tuples(st.sampled_from(ATOMS), st.sampled_from(("", " ", "  "))), min_size=1, max_size=6
).map(lambda pairs: "".join(atom + blanks for atom, blanks in pairs))


FULL_GRAMMAR_SUFFIX = "\t"
"""White space that only the full grammar accepts."""


def leaves(node: syntax.Node) -> Iterator[tuple[Any, ...]]:
    if isinstance(node, syntax.All | syntax.Either | syntax.Not):
        for child in node:
            yield from leaves(child)
    else:
        yield type(node), node.text, node.fieldname, node.startchar, node.endchar


def read(text: str) -> object:
    """The leaves and scopes of a text, or its rejection."""
    try:
        tree, scopes = syntax.parse(text)
    except QueryError:
        return None
    return list(leaves(tree)), scopes


@given(texts)
@examples(2000)
def test_plain_terms_equal_those_of_the_full_grammar(text: str) -> None:
    assert read(text) == read(text + FULL_GRAMMAR_SUFFIX)


@pytest.mark.parametrize(
    "text",
    ["use-after-free libxml2", '"use after free" package.name:libxml2-utils', "name:a name:b name:NOT"],
)
def test_plain_terms_with_names_and_versions_are_parsed(text: str) -> None:
    assert read(text) == read(text + FULL_GRAMMAR_SUFFIX)
    assert (read(text) is None) == text.endswith("NOT")
