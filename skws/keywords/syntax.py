"""The grammar of keyword queries: Whoosh's query parser, configured and made strict.

Whoosh tags the text and builds the tree of groups, scopes and operators. It
silently drops malformed parts, which for a standing query is worse than an
error. So the tags are checked before Whoosh builds the tree: a text that
passes is well-formed, and there is nothing to repair.

Analysis drops punctuation, so ``timeout^`` would be searched as ``timeout``. If
another search engine, SQL or a shell has an operator with that sign, it is
therefore an error, and the message says what to write instead.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, TypeAlias

from whoosh.qparser import plugins as whoosh_plugins
from whoosh.qparser import syntax as whoosh_syntax
from whoosh.qparser.default import QueryParser

from skws_schema.errors import QueryError, pointed, printable, shown

MAX_DEPTH: Final = 40
"""The deepest nesting of parentheses, since Whoosh's filters recurse."""

# Whoosh is only partly typed, and its nodes not at all.
plugins: Any = whoosh_plugins
syntax: Any = whoosh_syntax
Node: TypeAlias = Any

_NO_OPERATOR: Final = r"(?!(?:NOT|AND|OR|NEAR|ADJ|WITHIN|ONEAR|W|XOR|ANDNOT)\d*(?:[\s:]|$))"
_PLAIN_TERM: Final = re.compile(
    rf"{_NO_OPERATOR}(?:(?P<name>[A-Za-z_]\w*+(?:\.[A-Za-z_]\w*+)?):{_NO_OPERATOR})?"
    r"(?:(?P<word>[A-Za-z0-9]+(?:[.-][A-Za-z0-9]+)*+)|"
    r'"(?P<phrase>[\w .-]*\w[\w .-]*)")(?: +|$)',
    re.ASCII,
)
_PLAIN: Final = re.compile(rf" *(?:{re.sub('P<.*?>', ':', _PLAIN_TERM.pattern)})+", re.ASCII)
"""Words and phrases without operators, possibly after a name: most terms of most queries."""
QUOTES: Final = '"\u201c\u201d\u201e'
_START: Final = r"(?<![^\s(:])"  # where a term may begin
_NAME: Final = rf"(?P<text>[^\s():*{QUOTES}-][^\s():*{QUOTES}]*)"
_BETWEEN: Final = rf"(?<![^\s(){QUOTES}])"  # where a connective may begin

Word = syntax.WordNode
Phrase = plugins.PhrasePlugin.PhraseNode
Either = syntax.OrGroup
All = syntax.AndGroup
Not = syntax.NotGroup


class PrefixNode(syntax.TextNode):  # type: ignore[misc]  # untyped base
    """A word with a star at its end; ``text`` is without the star."""


class FuzzyNode(syntax.TextNode):  # type: ignore[misc]  # untyped base
    """A word with ``~``, ``~1`` or ``~2`` at its end; ``text`` is without it, ``distance`` may be empty."""

    def __init__(self, text: str, distance: str) -> None:
        super().__init__(text)
        self.distance = distance


class WildcardNode(syntax.TextNode):  # type: ignore[misc]  # untyped base
    """A word with stars or question marks, other than a single star at its end."""


class ComparisonNode(syntax.TextNode):  # type: ignore[misc]  # untyped base
    """``price<500``, or ``!price<500``: ``text`` is the value, without quotes around it."""

    def __init__(self, must: str, name: str, sign: str, text: str) -> None:
        super().__init__(text.strip(QUOTES))
        self.quoted = text[:1] in QUOTES
        self.must, self.name, self.sign = bool(must), name, sign


class Range(syntax.TextNode):  # type: ignore[misc]  # untyped base
    """``price:100..500``: ``text`` is the part after the colon; either end may be empty."""

    def __init__(self, name: str, low: str, high: str) -> None:
        super().__init__(f"{low}..{high}")
        self.name, self.low, self.high = name, low.strip(QUOTES), high.strip(QUOTES)


class NegationNode(syntax.PrefixOperator):  # type: ignore[misc]  # untyped base
    """``-`` or ``NOT``, before the node that it excludes."""


class Without(syntax.TextNode):  # type: ignore[misc]  # untyped base
    """``-relation:`` with nothing after the colon; ``text`` is the name."""


class Connective(syntax.InfixOperator):  # type: ignore[misc]  # untyped base
    """``AND`` or ``OR``, between two nodes."""


WORDS: Final = Word | PrefixNode | FuzzyNode | WildcardNode
"""Nodes that are one word."""
TERMS: Final = WORDS | Phrase | ComparisonNode | Range
"""Nodes that are search terms."""
Open = plugins.GroupPlugin.OpenBracket
Close = plugins.GroupPlugin.CloseBracket
Scope = syntax.FieldnameNode


def _tagging(kind: type[Node], expression: str) -> Any:
    """A plugin that makes nodes of a kind from the matches of an expression, given its groups."""
    plugin = plugins.TaggingPlugin(expression)
    plugin.nodetype = kind
    return plugin


def _operators() -> Any:
    tag = plugins.OperatorsPlugin.OpTagger
    return plugins.OperatorsPlugin(
        ops=[
            (tag(_START + r"NOT(?=[\s(]|$)", Not, NegationNode), 0),
            (tag(_START + r"-(?=\S)", Not, NegationNode), 0),
            (tag(_BETWEEN + r"AND(?=[\s()]|$)", All, Connective), 0),
            (tag(_BETWEEN + r"OR(?=[\s()]|$)", Either, Connective), 0),
        ],
        clean=True,
    )


_NOT_WITHIN: Final = r"(?<![^\s(:\-])"  # where a name may begin
_END: Final = r"(?=[\s)]|$)"
_VALUE: Final = rf"(?:[{QUOTES}][^{QUOTES}]*[{QUOTES}]|[^\s(){QUOTES}]+)"
_LOW: Final = rf"(?:[{QUOTES}][^{QUOTES}]*[{QUOTES}]|(?:(?!\.\.)[^\s(){QUOTES}])*)"

_PARSER: Final[Any] = QueryParser(
    None,
    None,
    plugins=[
        plugins.PhrasePlugin(f"[{QUOTES}](?P<text>[^{QUOTES}]*)[{QUOTES}](?P<slop>(?!))?"),
        plugins.GroupPlugin(),
        _tagging(Without, rf"{_START}(?:-|NOT\s+){_NAME}:(?=[\s)]|$)"),
        _operators(),
        _tagging(
            ComparisonNode,
            rf"{_NOT_WITHIN}(?P<must>!?)(?P<name>[^\s():*<>=!{QUOTES}-][^\s():*<>=!{QUOTES}]*)"
            rf"(?P<sign>[<>=!]*[<>=][<>=!]*)(?P<text>(?![<>=!]){_VALUE}){_END}",
        ),
        _tagging(
            Range,
            rf"{_NOT_WITHIN}{_NAME.replace('<text>', '<name>')}:"
            rf"(?!\.\.{_END})(?P<low>{_LOW})\.\.(?P<high>{_VALUE}|){_END}",
        ),
        plugins.FieldsPlugin(rf"{_NOT_WITHIN}{_NAME}:(?=\S)", remove_unknown=False),
        _tagging(FuzzyNode, rf"(?P<text>[^\s()*~{QUOTES}]+)~(?P<distance>\d*){_END}"),
        _tagging(
            WildcardNode,
            rf"(?!\W*\*?{_END})(?![^*?\s(){QUOTES}]*\*{_END})(?=[^\s(){QUOTES}]*\w)"
            rf"(?P<text>[^\s(){QUOTES}*?]*[*?][^\s(){QUOTES}]*){_END}",
        ),
        _tagging(PrefixNode, rf"(?P<text>[^\s()*{QUOTES}]+)\*(?=[\s)]|$)"),
    ],
)


def fault(message: str, text: str, position: int) -> QueryError:
    """The error for a query ``text`` that is wrong at ``position`` (an offset in characters)."""
    return QueryError(pointed(message, text, position))


_DASHES: Final = "\u2010-\u2015\u2212\ufe58\ufe63\uff0d"
_FOREIGN_QUOTES: Final = {"'": "'", "\u2018": "\u2019", "`": "`", "\u00ab": "\u00bb", "\u2039": "\u203a"}
_WIDE: Final = {"\uff02": '"', "\uff08": "(", "\uff09": ")", "\uff0a": "*", "\uff1a": ":", "\uff1b": ";"}


_ANYWHERE: Final = (
    (r"&&", "write AND instead, or nothing"),
    (r"[|\uff5c]", "join alternatives with OR"),
    (r"[<>=]", "a condition is an attribute, a comparison and a value without blanks: price<500"),
    (r"[\[\]{}]", "write a range as price:100..500; there are no character classes"),
)
_AT_WORDS: Final = (
    (r"[~\uff5e]", "'~' is only allowed at the end of a word, for typing errors (travlota~ or travlota~2)"),
    (r"\?$", "'?' stands for one character within a word (t?avolta); omit it at the end"),
    (r"\uff1f", "this sign is full-width, so it is not an operator"),
    (r"\^", "'^' is not supported: all words have the same weight"),
    (r"^[+\uff0b](?=[^\W\d]|\()", "all keywords are required; omit '+'"),
    (
        r"^[!\uff01](?=[\w(])",
        "an exclusion begins with '-'; '!' precedes a condition (!price<500)",
    ),
    (r"^-(?=[\w(])", "an exclusion needs a blank before its '-'"),
    (rf"^[{_DASHES}](?=[\w(])", "an exclusion begins with '-'; this is another dash"),
    (r"^:", "the name before this colon is missing"),
    (r"\\", "'\\' is not an escape character"),
    (r"(?<=[^\W\d])%|%(?=\w)", "'*' stands for any characters of a word (tra*ta), and '?' for one"),
    (r"^/(?=.*/$)", "regular expressions are not supported"),
    (rf"[{''.join(_WIDE)}]", "this sign is full-width, so it is not an operator"),
)
_RULES: Final = tuple(
    (re.compile(pattern), message, lone)
    for rules, lone in ((_ANYWHERE, True), (_AT_WORDS, False))
    for pattern, message in rules
)
_FOREIGN_CONNECTIVE: Final = re.compile(r"(?:NEAR|ADJ|WITHIN|ONEAR)(?:/?\d+)?|W/\d+|XOR|ANDNOT")


def _foreign_operator(word: str, *, follows: bool, leads: bool) -> tuple[int, str] | None:
    """The offset of an operator of another language in a word, and a message about it.

    ``follows``, ``leads``: a phrase or a parenthesis is next to the word, without
    a blank. Otherwise punctuation by itself is usually not an operator.
    """
    is_alone = not (follows or leads or any(map(str.isalnum, word)))
    text = word + "(" * leads
    violations = (
        (match.start(), message)
        for rule, message, applies_alone in _RULES
        if (applies_alone or not is_alone) and (match := rule.search(text))
    )
    return min(violations, default=None)


def _literally(word: str) -> str:
    """How to search for a text that contains signs of operators."""
    if not any(map(str.isalnum, word)):
        return "put quotes around it to mean the sign itself"
    return f'to search for the text itself, write "{printable(word)}"'


_TERM: Final = re.compile(
    rf"[{QUOTES}][^{QUOTES}]*[{QUOTES}]|(?<![^\s(])-?(?P<term>[^\s(){QUOTES}-][^\s(){QUOTES}]*)"
)
_SCOPE: Final = re.compile(r"(?P<name>[^\s:*<>=!]+):(?=\S)")
_PASTED: Final = re.compile(
    r"[^\W\d_][\w+.-]*://\S"  # an address, with any signs
    r"|[^\W\d_]:[\\/]|\\\\\w|~\w*/"  # a path on Windows, on a server, or in a home folder
    r"|[\w.+-]*\d~[^\W\d]"  # a version that precedes a release
    r"|(?:[0-9a-fA-F]{1,4}:){2}[0-9a-fA-F:]+|[\w:]*::\w"  # a network address, a qualified name
    r"|\d{1,2}:\d{2}$"
    # A time, a version with an epoch, a host with a port; but not a range of times.
    r"|(?!.*\.\.)(?:\d(?=\S*[.:-]\S*:|\S*:\S*[.:-])[^\s:*?<>=]*|[\w-]+(?:\.[\w-]+)+(?=:\d)):[^\s*?<>=]+$"
)


def pasted(text: str, named: Callable[[str], bool]) -> Iterator[tuple[int, int]]:
    """The ranges of terms that are texts in spite of signs of operators: addresses, paths, versions, times.

    A colon after a name of the schema (``named``) is an operator. In quotes all signs are already text.
    """
    for match in _TERM.finditer(text):
        start, end = match.span("term")
        scope = _SCOPE.match(text, start, end) if start >= 0 else None
        if scope is not None and named(scope["name"]):
            start = scope.end()
        if start >= 0 and _PASTED.match(text, start, end):
            yield start, end


def parse(
    text: str, original: str | None = None, plain: Sequence[tuple[int, int]] = ()
) -> tuple[Node, dict[str, int]]:
    """The tree of a query and the position of each scope in it. Errors show ``original``, or the text.

    ``plain``: the ranges of terms without operators.
    The tree's leaves are ``TERMS`` and ``Without`` (with ``fieldname``, ``text``, ``startchar``,
    ``endchar``), its groups ``All``, ``Either`` and ``Not``. Raises
    ``QueryError`` for a text outside the grammar.
    """
    if not plain and _PLAIN.fullmatch(text) is not None:
        return _plain_terms(text)
    masked = text
    for start, end in plain:
        masked = f"{masked[:start]}{_LETTER * (end - start)}{masked[end:]}"
    all_tags = _PARSER.tag(masked)
    tags = [node for node in all_tags if not node.is_ws()]
    _check_balance(tags, original or text)
    for check in _CHECKS:
        for before, node, after in zip([None, *tags], tags, [*tags[1:], None], strict=False):
            check(before, node, after, original or text)
    _check_quotes(tags, original or text)
    for node in tags:
        if (node.startchar, node.endchar) in plain:
            node.text = text[node.startchar : node.endchar]
    scopes = {
        node.fieldname if isinstance(node, Scope) else node.name: node.startchar
        for node in reversed(tags)
        if isinstance(node, Scope | Range)
    }
    return _PARSER.filterize(all_tags), scopes


_LETTER: Final = "x"
"""Replaces each character of a plain term; it has no meaning of its own."""


def _plain_terms(text: str) -> tuple[Node, dict[str, int]]:
    """Like ``parse``, in a fraction of the time, for a text that ``_PLAIN`` matches, which is well-formed."""
    nodes = All()
    scopes: dict[str, int] = {}
    for match in _PLAIN_TERM.finditer(text):
        name, word, phrase = match.groups()
        if word is not None:
            node = Word(word).set_range(*match.span("word"))
        else:
            start, end = match.span("phrase")
            node = Phrase(phrase, start).set_range(start - 1, end + 1)
        if name is not None:
            node.set_fieldname(name)
            scopes.setdefault(name, match.start())
        nodes.append(node)
    return nodes, scopes


def _check_balance(tags: list[Node], text: str) -> None:
    open_positions: list[int] = []
    in_scope: list[bool] = []
    for before, node in zip([None, *tags], tags, strict=False):
        if isinstance(node, Open):
            open_positions.append(node.startchar)
            in_scope.append(isinstance(before, Scope) or any(in_scope))
            if len(open_positions) > MAX_DEPTH:
                raise fault(f"parentheses nested deeper than {MAX_DEPTH}", text, node.startchar)
        elif isinstance(node, Close):
            if not open_positions:
                raise fault("this parenthesis has no opening one", text, node.startchar)
            open_positions.pop()
            in_scope.pop()
        elif isinstance(node, Scope | Without | ComparisonNode | Range) and any(in_scope):
            name = _name(node)
            raise fault(f"{shown(name)} is inside a group that already has a scope", text, node.startchar)
    if open_positions:
        raise fault("this parenthesis is never closed", text, open_positions[-1])


def _name(node: Node) -> str:
    if isinstance(node, Scope):
        return str(node.fieldname)
    return str(node.text if isinstance(node, Without) else node.name)


def _check_word(_before: Node | None, node: Node, _after: Node | None, text: str) -> None:
    if not isinstance(node, Word | PrefixNode):
        return
    for offset, char in enumerate(node.text):
        if char in QUOTES:
            raise fault("this quotation mark has no partner", text, node.startchar + offset)
        if char == "*":
            message = "'*' must be next to letters of a word (trav*, tra*ta); put quotes around a literal one"
            raise fault(message, text, node.startchar + offset)


def _check_group(_before: Node | None, node: Node, after: Node | None, text: str) -> None:
    if isinstance(node, Open) and isinstance(after, Close):
        raise fault("these parentheses are empty", text, node.startchar)


def _check_scope(_before: Node | None, node: Node, after: Node | None, text: str) -> None:
    if isinstance(node, Scope) and not isinstance(after, WORDS | Phrase | Open):
        hint = ""
        if isinstance(after, ComparisonNode):
            hint = f" (a condition is written {node.fieldname}.{after.name}{after.sign}...)"
        elif isinstance(after, Scope | Range | NegationNode | Without):
            hint = " (a scope follows the minus and precedes one term; put literal colons in quotes)"
        raise fault(f"{node.fieldname}: is followed by no term{hint}", text, node.startchar)


def _check_negation(_before: Node | None, node: Node, after: Node | None, text: str) -> None:
    if not isinstance(node, NegationNode):
        return
    if isinstance(after, NegationNode) or (isinstance(after, Word) and after.text.startswith("-")):
        raise fault("an exclusion cannot be excluded", text, after.startchar)
    if after is None or isinstance(after, Connective | Close):
        raise fault(f"{node.text} is followed by no term", text, node.startchar)


def _check_connective(before: Node | None, node: Node, after: Node | None, text: str) -> None:
    if not isinstance(node, Connective):
        return
    follows_term = isinstance(before, TERMS | Close)
    if not follows_term or after is None or isinstance(after, Connective | Close):
        side = "after" if follows_term else "before"
        raise fault(
            f'{node.text} needs a term {side} it (to search for the word, write "{node.text}")',
            text,
            node.startchar,
        )


def _check_foreign(before: Node | None, node: Node, after: Node | None, text: str) -> None:
    if not isinstance(node, WORDS):
        return
    follows = isinstance(before, Phrase | Close) and before.endchar == node.startchar
    leads = isinstance(after, Phrase | Open | Scope) and node.endchar == after.startchar
    violation = _foreign_operator(node.text, follows=follows, leads=leads)
    if violation is not None:
        offset, message = violation
        message += f"; {_literally(text[node.startchar : node.endchar])}"
        raise fault(message, text, node.startchar + offset)
    is_between = isinstance(before, TERMS | Close) and isinstance(after, TERMS | Open)
    if is_between and _FOREIGN_CONNECTIVE.fullmatch(node.text):
        message = f'there is no {node.text} between keywords (to search for the word, write "{node.text}")'
        raise fault(message, text, node.startchar)


def _check_quotes(tags: list[Node], text: str) -> None:
    words = [node for node in tags if isinstance(node, Word)]
    for number, node in enumerate(words):
        closing = _FOREIGN_QUOTES.get(node.text[:1])
        if closing is not None and any(other.text.endswith(closing) for other in words[number + 1 :]):
            message = 'use double quotes for a phrase: "pulp fiction"; omit other quotes'
            raise fault(message, text, node.startchar)


_CHECKS: Final[tuple[Callable[[Node | None, Node, Node | None, str], None], ...]] = (
    _check_word,
    _check_group,
    _check_scope,
    _check_negation,
    _check_connective,
    _check_foreign,
)
