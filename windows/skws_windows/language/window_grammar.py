"""The language of windows: its grammar, and errors that point at the position."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import TYPE_CHECKING, Final, TypeAlias

from skws_schema.errors import UsageError, nearest, pointed

if TYPE_CHECKING:
    from lark import Lark, Token, Tree

    Node: TypeAlias = Tree[Token] | Token


def kind_and_parts(node: Node) -> tuple[str, list[Node]]:
    """The kind of a node, and its parts."""
    node_tree = tree(node)
    return str(node_tree.data), node_tree.children


def tree(node: object) -> Tree[Token]:
    from lark import Tree as LarkTree  # noqa: PLC0415 - only window expressions need it

    assert isinstance(node, LarkTree)  # noqa: S101 - the grammar has no tokens here
    return node


def position(node: Node) -> int:
    """The offset at which a node begins in its text."""
    meta = getattr(node, "meta", None)
    offset = getattr(node, "start_pos", None) if meta is None else getattr(meta, "start_pos", None)
    return offset or 0


def integer(token: object, most: int) -> int:
    """The value of an INT, at most ``most`` + 1; Python refuses to convert thousands of digits."""
    digits = str(token).lstrip("0")
    return min(int(digits or "0"), most + 1) if len(digits) <= len(str(most)) else most + 1


def unquote(text: str) -> str:
    """The value of a quoted text, without its quotes and backslashes."""
    return re.sub(r"\\(.)", r"\1", text[1:-1], flags=re.S)


GRAMMAR: Final = r"""
window: selection? form limit* per?
!selection: "every"i | "first"i | "longest"i
?form: "open"i "when"i condition "close"i "when"i condition -> open_close
     | "after"i condition "until"i condition               -> after_until
     | "match"i regular ("after"i regular)?                -> match
limit: "at"i "most"i INT _RECORDS   -> at_most
     | "at"i "least"i INT _RECORDS  -> at_least
     | "within"i duration           -> within
per: "per"i name ("," name)*

?regular: sequence ("|" sequence)*  -> either
?sequence: item+                    -> sequence
?item: base
     | item "*"                     -> star
     | item "+"                     -> plus
     | item "?"                     -> optional
     | item "{" INT "}"             -> times
     | item "{" INT "," INT? "}"    -> between
?base: "[" condition "]"            -> letter
     | "."                          -> any
     | "(" regular ")"
     | "(" ")"                      -> identity

?formula: or_formula
        | or_formula _IMPLIES formula        -> implication
?or_formula: and_formula
           | and_formula ("or"i and_formula)+ -> some_formula
?and_formula: part
            | part ("and"i part)+            -> every_formula
?part: "not"i part                           -> no_formula
     | "(" formula ")"
     | "[" condition "]" "(" NAME ")"        -> satisfies
     | NAME "(" NAME ")"                     -> member
     | NAME (OPERATOR NAME)+                 -> ordered
     | QUANTIFIER NAME ("," NAME)* ":" formula -> quantified

condition: disjunction
?disjunction: conjunction
            | conjunction ("or"i conjunction)+    -> any_of
?conjunction: negation
            | negation ("and"i negation)+         -> all_of
?negation: comparison
         | "not"i negation                        -> negation
?comparison: sum
           | sum OPERATOR sum                     -> compare
           | sum "is"i "null"i                    -> is_null
           | sum "is"i "not"i "null"i             -> is_not_null
           | sum ":" (STRING | NAME)              -> contains
           | sum "contains"i STRING               -> formerly_contains
           | sum "in"i "(" sum ("," sum)* ")"     -> among
?sum: product
    | sum "+" product                             -> add
    | sum "-" product                             -> subtract
?product: unary
        | product "*" unary                       -> multiply
        | product "/" unary                       -> divide
?unary: atom
      | "-" unary                                 -> negative
?atom: name ("[" "-" INT "]")?                    -> field
     | "contains"i STRING                         -> formerly_contains_anywhere
     | INT                                        -> integer
     | DECIMAL                                    -> decimal
     | duration
     | STRING                                     -> text
     | "true"i                                    -> true
     | "false"i                                   -> false
     | "(" disjunction ")"
     | "[" disjunction "]"
duration: ((INT | DECIMAL) UNIT)+
name: (NAME | QUOTED) ("." (NAME | QUOTED))?

_RECORDS: /records?/i
_IMPLIES: "->"
QUANTIFIER.2: /(exists|forall)(?!\w)/i
OPERATOR: "<=" | ">=" | "!=" | "<>" | "==" | "=" | "<" | ">"
UNIT.2: /(?:microseconds?|us|milliseconds?|ms|seconds?|sec|s|minutes?|min|m|hours?|h|days?|d|weeks?)(?!\w)/i
NAME: /[^\W\d]\w*/
QUOTED: /`[^`]+`/
STRING: /'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"/
DECIMAL: /\d+\.\d*(?:[eE][+-]?\d+)?|\.\d+(?:[eE][+-]?\d+)?|\d+[eE][+-]?\d+/
INT: /\d+/
%ignore /\s+/
"""

_QUOTED_TEXT: Final = re.compile(r"""'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|`[^`]+`""", re.DOTALL)
MAX_LENGTH: Final = 10_000
MAX_DEPTH: Final = 60
_EXPECTED: Final = {
    "INT": "a number",
    "DECIMAL": "a number",
    "NAME": "a name",
    "QUOTED": "a name",
    "STRING": "a text in quotes",
    "OPERATOR": "a comparison",
    "UNIT": "a unit of time",
    "_RECORDS": "'records'",
    "_IMPLIES": "'->'",
    "QUANTIFIER": "'exists'",
    "$END": "the end",
    "LSQB": "'['",
    "RSQB": "']'",
    "LPAR": "'('",
    "RPAR": "')'",
    "LBRACE": "'{'",
    "RBRACE": "'}'",
    "VBAR": "'|'",
    "STAR": "'*'",
    "PLUS": "'+'",
    "QMARK": "'?'",
    "DOT": "'.'",
    "COMMA": "','",
    "COLON": "':'",
    "MINUS": "'-'",
    "SLASH": "'/'",
}


def fault(message: str, text: str, position: int) -> UsageError:
    """The error for a ``text`` that is wrong at an offset, to which a caret points."""
    return UsageError(pointed(message, text, position))


def parse(text: str, start: str) -> Tree[Token]:
    """The tree of a ``window``, a ``regular`` expression or a ``formula``. Raises UsageError."""
    from lark.exceptions import UnexpectedCharacters, UnexpectedEOF, UnexpectedToken  # noqa: PLC0415

    _check_size(text)
    try:
        return _parser(start).parse(text)
    except UnexpectedToken as error:
        at_end = error.token.type == "$END"
        position = len(text.rstrip()) if at_end else (error.token.start_pos or 0)
        found_token = "the end" if at_end else repr(str(error.token))
        hint = "" if at_end else _nearest_word(str(error.token), error.accepts or error.expected)
        message = f"expected {_token_list(error.accepts or error.expected)}, not {found_token}{hint}"
        raise fault(message, text, position) from None
    except UnexpectedCharacters as error:
        position = error.pos_in_stream or 0
        message = f"expected {_token_list(error.allowed or set())}, not {text[position]!r}"
        raise fault(message, text, position) from None
    except UnexpectedEOF as error:
        raise fault(
            f"expected {_token_list(set(error.expected))}, not the end", text, len(text.rstrip())
        ) from None


@contextmanager
def shallow() -> Iterator[None]:
    """Refuse texts too deep for recursion: a long chain of operators nests as deeply as it is long."""
    try:
        yield
    except RecursionError:
        raise UsageError("the expression is nested too deeply") from None


def _check_size(text: str) -> None:
    if len(text) > MAX_LENGTH:
        raise UsageError(
            f"a window expression may have at most {MAX_LENGTH:,} characters; this one has {len(text):,}"
        )
    depth = 0
    for position, char in enumerate(_QUOTED_TEXT.sub(lambda match: " " * len(match[0]), text)):
        depth += (char in "([") - (char in ")]")
        if depth > MAX_DEPTH:
            raise fault(f"brackets nested deeper than {MAX_DEPTH}", text, position)


@cache
def _parser(start: str) -> Lark:
    from lark import Lark  # noqa: PLC0415 - only window expressions need it

    return Lark(GRAMMAR, parser="lalr", start=start, propagate_positions=True, maybe_placeholders=False)


def _token_list(expected: set[str]) -> str:
    """The tokens that a message lists as expected: the likeliest few."""
    names = sorted({_EXPECTED.get(name, f"'{name.lower()}'") for name in expected})
    if len(names) > 8:
        if "a name" in names:
            return "a condition"
        # After a whole condition or letter: the words, and one phrase for all signs.
        names = [*(name for name in names if name[1:-1].isalpha() or name == "the end"), "an operator"]
    return " or ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names or ["nothing"])


def _nearest_word(word: str, expected: set[str]) -> str:
    return nearest(
        word.lower(), [name.lower() for name in expected if name.isalpha() and name not in _EXPECTED]
    )
