"""Complaints of customers called Byron that something leaks, as a table that a pipeline keeps up to date."""

from __future__ import annotations

from pathlib import Path

from pyspark import pipelines
from pyspark.sql import DataFrame, SparkSession

import skws.spark

HERE = Path(__file__).parents[1]
TYPES = {
    "purchase": "id long, customer_id long, item string, time timestamp",
    "complaint": "purchase_id long, body string, time timestamp",
}

spark = SparkSession.builder.getOrCreate()
frames = {name: spark.readStream.schema(types).json(str(HERE / "in" / name)) for name, types in TYPES.items()}
frames["customer"] = spark.read.schema("id long, name string").json(str(HERE / "in" / "customer"))

# Outside of the function, since a pipeline does not allow access to columns inside.
results = skws.spark.search(spark, frames, "byron leaks", schema=HERE / "shop.yaml", lateness="1 minute")


@pipelines.table
def alerts() -> DataFrame:
    return results
