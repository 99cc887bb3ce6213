"""By its name, Spark finds here the data source ``skws`` (``skws.spark.data_source``)."""

from __future__ import annotations

from skws.spark.data_source import SkwsSource as DefaultSource

__all__ = ["DefaultSource"]
