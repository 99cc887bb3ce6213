"""The pattern language: from a text over the schema's relations to an unambiguous PCEA."""

from patterns.language.compile import CompiledPattern, compile_pattern
from patterns.language.parse import parse_pattern
from patterns.language.resolve import TextMatch

__all__ = ["CompiledPattern", "TextMatch", "compile_pattern", "parse_pattern"]
