"""What a query means and how it is run, as one tree: printed, as DOT, or drawn."""

from skws.explain.dot import to_dot
from skws.explain.explanation import DEFAULT_LIMIT, Explanation, explain
from skws.explain.observed import Observed, observe
from skws.explain.observed_paper import observe_paper
from skws.explain.printer import to_text
from skws.explain.svg import to_svg

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
