"""The grammar of patterns and of conjunctive queries, and its error messages."""

from __future__ import annotations

import re
from functools import cache
from typing import Final

from lark import Lark, Token, Tree
from lark.exceptions import UnexpectedCharacters, UnexpectedInput, UnexpectedToken

from skws_schema.errors import PatternError
from skws_windows.language.window_grammar import unquote

_GRAMMAR: Final = r"""
    pattern: ["pattern"i ":"] _expression [_WHERE condition (_AND condition)*] [_WITHIN window]

    _expression: conjunction | alternation
    alternation: conjunction (_OR conjunction)+
    conjunction: sequence (_AND sequence)*
    sequence: _repeated (";" _repeated)*
    _repeated: _primary | repetition
    repetition: _primary "+"
    _primary: atom | "(" _expression ")"
    atom: (NAME | STAR | STRING) [NAME]

    condition: _operand (COMPARISON _operand)+ -> comparison
             | (reference | NAME) ":" (STRING | NAME) -> contains
             | (reference | NAME) "~" STRING -> formerly_contains
    _operand: reference | _constant
    reference: NAME "." NAME
    window: (NUMBER NAME)+

    rule: NAME "(" [_terms] ")" _ARROW body_atom ("," body_atom)*
    body_atom: NAME "(" [_terms] ")"
    _terms: _term ("," _term)*
    _term: NAME | _constant
    _constant: STRING | NUMBER | TRUE | FALSE

    _WHERE.2: /where\b/i
    _WITHIN.2: /within\b/i
    _AND.2: /and\b/i
    _OR.2: /or\b/i
    TRUE.2: /true\b/i
    FALSE.2: /false\b/i
    _ARROW: "<-" | ":-"
    STAR: "*"
    COMPARISON: "=" | "!=" | "<=" | ">=" | "<" | ">"
    NAME: /[^\W\d]\w*/
    NUMBER: /-?\d+(\.\d+)?/
    STRING: /"(\\.|[^"\\])*"/ | /'(\\.|[^'\\])*'/
    %ignore /\s+/
"""

_WORDS: Final = {
    "_WHERE": "'where'",
    "_WITHIN": "'within'",
    "_AND": "'AND'",
    "_OR": "'OR'",
    "SEMICOLON": "';'",
    "PLUS": "'+'",
    "LPAR": "'('",
    "RPAR": "')'",
    "COMMA": "','",
    "DOT": "'.'",
    "COLON": "':'",
    "STAR": "'*'",
    "_ARROW": "'<-'",
    "COMPARISON": "a comparison (=, !=, <, <=, >, >=)",
    "NAME": "a name",
    "NUMBER": "a number",
    "STRING": "a quoted text",
    "TRUE": "true",
    "FALSE": "false",
    "$END": "the end",
}


@cache
def _parser() -> Lark:
    return Lark(
        _GRAMMAR, parser="lalr", start=["pattern", "rule"], propagate_positions=True, maybe_placeholders=False
    )


def parse(text: str, start: str) -> Tree[Token]:
    """The syntax tree of a ``pattern`` or a ``rule``. Raises PatternError with carets below the fault."""
    try:
        return _parser().parse(text, start=start)
    except UnexpectedInput as error:
        raise _fault(text, error) from None


_ABSENCE: Final = re.compile(
    r"(?:^|[\s(])(?P<word>no|not|unless|without|absent|!)(?:\s+[^\W\d][\w-]*){0,2}$", re.IGNORECASE
)
"""The end of the valid text, and a word by which other languages ask for the absence of a tuple."""


def _fault(text: str, error: UnexpectedInput) -> PatternError:
    position, word, names = len(text.rstrip()), "", set[str]()
    if isinstance(error, UnexpectedCharacters):
        position, names = error.pos_in_stream or 0, error.allowed
        word = text[position]
    elif isinstance(error, UnexpectedToken):
        names = error.accepts or error.expected
        if error.token.type != "$END":
            position, word = error.pos_in_stream or 0, str(error.token)
    problem = f"unexpected {word!r}" if word else "the text ends here"
    expected = " or ".join(sorted({_WORDS[name] for name in names if name in _WORDS}))
    absence = _ABSENCE.search(text, 0, position + len(word))
    if absence is not None:
        return PatternError.at(
            text,
            *absence.span("word"),
            f"there is no {absence['word']!r}: a match is reported when its last tuple arrives,"
            " so a pattern cannot wait for one that does not arrive",
        )
    return PatternError.at(
        text, position, position + len(word), f"{problem}; expected {expected or 'something else'}"
    )


_MOST_DIGITS: Final = 1_000
"""Python refuses to convert integers of thousands of digits."""


def constant_value(token: Token) -> str | int | float | bool:
    match token.type:
        case "STRING":
            return unquote(token)
        case "TRUE" | "FALSE":
            return token.type == "TRUE"
        case _:
            return float(token) if "." in token or len(token) > _MOST_DIGITS else int(token)


def span(tree: Tree[Token] | Token) -> tuple[int, int]:
    """The offsets at which a tree or token begins and ends in its text."""
    position = tree if isinstance(tree, Token) else tree.meta
    return position.start_pos or 0, position.end_pos or 0
