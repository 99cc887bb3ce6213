"""Pattern queries: texts, evaluation over streams, results."""
