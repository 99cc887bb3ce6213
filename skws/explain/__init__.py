"""Explains a query and its plan as one tree: as text, DOT or SVG."""

from skws.explain.branch import to_dot, to_svg, to_text
from skws.explain.explanation import DEFAULT_LIMIT, Explanation, explain
from skws.explain.observed import Observed, observe, observe_paper

__all__ = [
    "DEFAULT_LIMIT",
    "Explanation",
    "Observed",
    "explain",
    "observe",
    "observe_paper",
    "to_dot",
    "to_svg",
    "to_text",
]
