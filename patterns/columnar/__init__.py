"""Evaluation of automata by columns, a batch at a time: faster where partial runs are few."""

from patterns.columnar.batch import Found, TooManyRunsError, Tuples
from patterns.columnar.evaluator import ColumnarEvaluator
from patterns.columnar.plan import ColumnPlan, column_plan

__all__ = ["ColumnPlan", "ColumnarEvaluator", "Found", "TooManyRunsError", "Tuples", "column_plan"]
