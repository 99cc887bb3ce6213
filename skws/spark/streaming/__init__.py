"""Live searches on Spark: Structured Streaming around meshes that stay in memory."""
