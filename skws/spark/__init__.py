"""The Spark runtime. Nothing outside this package imports pyspark."""
