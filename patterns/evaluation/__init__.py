"""Streaming evaluation of unambiguous PCEA under a sliding window (PCEA paper, Section 5)."""

from patterns.evaluation.counting import count
from patterns.evaluation.evaluator import Evaluator
from patterns.evaluation.heap import Mark
from patterns.evaluation.valuations import Valuation, by_label, valuations

__all__ = ["Evaluator", "Mark", "Valuation", "by_label", "count", "valuations"]
