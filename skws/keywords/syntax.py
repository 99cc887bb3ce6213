"""The grammar of keyword queries: Whoosh's query parser, configured and made strict.

Whoosh tags the text and builds the tree of groups, scopes and operators. It
repairs whatever is malformed by silently dropping it, which for a standing
query is worse than an error, so the tags are checked in between: what passes
is well-formed, and Whoosh has nothing to repair.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeAlias

from whoosh.qparser import plugins as whoosh_plugins
from whoosh.qparser import syntax as whoosh_syntax
from whoosh.qparser.default import QueryParser

from skws.keywords import foreign
from skws.keywords.fault import fault

MAX_DEPTH: Final = 40
"""Nested parentheses; Whoosh's filters recurse."""

# Whoosh is typed in part, and its nodes not at all.
plugins: Any = whoosh_plugins
syntax: Any = whoosh_syntax
Node: TypeAlias = Any

QUOTES: Final = '"\u201c\u201d\u201e'
_START: Final = r"(?<![^\s(:])"  # where a term may begin
_NAME: Final = rf"(?P<text>[^\s():*{QUOTES}-][^\s():*{QUOTES}]*)"
_BETWEEN: Final = rf"(?<![^\s(){QUOTES}])"  # where a connective may

Word = syntax.WordNode
Phrase = plugins.PhrasePlugin.PhraseNode
Either = syntax.OrGroup
All = syntax.AndGroup
Not = syntax.NotGroup


class Prefix(syntax.TextNode):  # type: ignore[misc]  # untyped base
    """A word with a star at its end; ``text`` lacks the star."""


class Negation(syntax.PrefixOperator):  # type: ignore[misc]  # untyped base
    """``-`` or ``NOT``, before the node it excludes."""


class Without(syntax.TextNode):  # type: ignore[misc]  # untyped base
    """``-relation:`` with nothing behind the colon; ``text`` is the name."""


class Connective(syntax.InfixOperator):  # type: ignore[misc]  # untyped base
    """``AND`` or ``OR``, between two nodes."""


Open = plugins.GroupPlugin.OpenBracket
Close = plugins.GroupPlugin.CloseBracket
Scope = syntax.FieldnameNode


class _WithoutPlugin(plugins.TaggingPlugin):  # type: ignore[misc]  # untyped base
    nodetype = Without


class _PrefixPlugin(plugins.PrefixPlugin):  # type: ignore[misc]  # untyped base
    nodetype = Prefix


def _operators() -> Any:
    tag = plugins.OperatorsPlugin.OpTagger
    return plugins.OperatorsPlugin(
        ops=[
            (tag(_START + r"NOT(?=[\s(]|$)", Not, Negation), 0),
            (tag(_START + r"-(?=\S)", Not, Negation), 0),
            (tag(_BETWEEN + r"AND(?=[\s()]|$)", All, Connective), 0),
            (tag(_BETWEEN + r"OR(?=[\s()]|$)", Either, Connective), 0),
        ],
        clean=True,
    )


_PARSER: Final[Any] = QueryParser(
    None,
    None,
    plugins=[
        plugins.PhrasePlugin(f"[{QUOTES}](?P<text>[^{QUOTES}]*)[{QUOTES}](?P<slop>(?!))?"),
        plugins.GroupPlugin(),
        _WithoutPlugin(rf"{_START}(?:-|NOT\s+){_NAME}:(?=[\s)]|$)"),
        _operators(),
        plugins.FieldsPlugin(rf"(?<![^\s(:\-]){_NAME}:(?=\S)", remove_unknown=False),
        _PrefixPlugin(rf"(?P<text>[^\s()*{QUOTES}]+)\*(?=[\s)]|$)"),
    ],
)


def parse(text: str, shown: str | None = None) -> tuple[Node, dict[str, int]]:
    """The tree of a query and the position of each scope in it. Errors show ``shown``, else the text.

    The tree's leaves are ``Word``, ``Phrase``, ``Prefix`` and ``Without`` (with ``fieldname``,
    ``text``, ``startchar``), its groups ``All``, ``Either`` and ``Not``. Raises
    ``QueryError`` for what the grammar does not allow.
    """
    tagged = _PARSER.tag(text)
    tags = [node for node in tagged if not node.is_ws()]
    _check_balance(tags, shown or text)
    for check in _CHECKS:
        for before, node, after in zip([None, *tags], tags, [*tags[1:], None], strict=False):
            check(before, node, after, shown or text)
    _check_quotes(tags, shown or text)
    scopes = {node.fieldname: node.startchar for node in reversed(tags) if isinstance(node, Scope)}
    return _PARSER.filterize(tagged), scopes


def _check_balance(tags: list[Node], text: str) -> None:
    opened: list[int] = []
    scoped: list[bool] = []
    for before, node in zip([None, *tags], tags, strict=False):
        if isinstance(node, Open):
            opened.append(node.startchar)
            scoped.append(isinstance(before, Scope) or any(scoped))
            if len(opened) > MAX_DEPTH:
                raise fault(f"parentheses nested deeper than {MAX_DEPTH}", text, node.startchar)
        elif isinstance(node, Close):
            if not opened:
                raise fault("this parenthesis closes nothing", text, node.startchar)
            opened.pop()
            scoped.pop()
        elif isinstance(node, Scope | Without) and any(scoped):
            name = node.fieldname if isinstance(node, Scope) else node.text
            raise fault(f"{name!r} stands inside a group that has a scope already", text, node.startchar)
    if opened:
        raise fault("this parenthesis is never closed", text, opened[-1])


def _check_word(_before: Node | None, node: Node, _after: Node | None, text: str) -> None:
    if not isinstance(node, Word | Prefix):
        return
    for offset, char in enumerate(node.text):
        if char in QUOTES:
            raise fault("this quotation mark has no partner", text, node.startchar + offset)
        if char == "*":
            message = "'*' stands for the end of a word only (trav*); put quotes around a literal one"
            raise fault(message, text, node.startchar + offset)


def _check_group(_before: Node | None, node: Node, after: Node | None, text: str) -> None:
    if isinstance(node, Open) and isinstance(after, Close):
        raise fault("there is nothing between these parentheses", text, node.startchar)


def _check_scope(_before: Node | None, node: Node, after: Node | None, text: str) -> None:
    if isinstance(node, Scope) and not isinstance(after, Word | Phrase | Prefix | Open):
        hint = ""
        if isinstance(after, Scope | Negation | Without):
            hint = " (a scope goes after the minus and before one term; literal colons go in quotes)"
        raise fault(f"{node.fieldname}: is followed by no term{hint}", text, node.startchar)


def _check_negation(_before: Node | None, node: Node, after: Node | None, text: str) -> None:
    if not isinstance(node, Negation):
        return
    if isinstance(after, Negation) or (isinstance(after, Word) and after.text.startswith("-")):
        raise fault("an exclusion cannot be excluded", text, after.startchar)
    if after is None or isinstance(after, Connective | Close):
        raise fault(f"{node.text} is followed by no term", text, node.startchar)


def _check_connective(before: Node | None, node: Node, after: Node | None, text: str) -> None:
    if not isinstance(node, Connective):
        return
    sides = (
        isinstance(before, Word | Phrase | Prefix | Close),
        not (after is None or isinstance(after, Connective | Close)),
    )
    if not all(sides):
        side = "before" if not sides[0] else "after"
        raise fault(
            f'{node.text} needs a term {side} it (to search for the word, write "{node.text}")',
            text,
            node.startchar,
        )


def _check_foreign(before: Node | None, node: Node, after: Node | None, text: str) -> None:
    if not isinstance(node, Word | Prefix):
        return
    follows = isinstance(before, Phrase | Close) and before.endchar == node.startchar
    leads = isinstance(after, Phrase | Open | Scope) and node.endchar == after.startchar
    found = foreign.in_word(node.text, follows=follows, leads=leads)
    if found is not None:
        message = f"{found.message}; {foreign.literally(text[node.startchar : node.endchar])}"
        raise fault(message, text, node.startchar + found.place)
    sides = (
        isinstance(before, Word | Phrase | Prefix | Close),
        isinstance(after, Word | Phrase | Prefix | Open),
    )
    if all(sides) and foreign.is_connective(node.text):
        message = f'there is no {node.text} between keywords (to search for the word, write "{node.text}")'
        raise fault(message, text, node.startchar)


def _check_quotes(tags: list[Node], text: str) -> None:
    words = [node for node in tags if isinstance(node, Word)]
    for number in foreign.quoted([node.text for node in words]):
        message = 'double quotes make a phrase: "pulp fiction"; others are left out'
        raise fault(message, text, words[number].startchar)


_CHECKS: Final[tuple[Callable[[Node | None, Node, Node | None, str], None], ...]] = (
    _check_word,
    _check_group,
    _check_scope,
    _check_negation,
    _check_connective,
    _check_foreign,
)
