"""Spark finds the data source ``skws`` (``skws.spark.data_source``) by the name of this package."""

from __future__ import annotations

from skws.spark.data_source import SkwsSource as DefaultSource

__all__ = ["DefaultSource"]
