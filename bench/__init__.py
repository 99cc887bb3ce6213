"""Measurements: run as modules, `python -m bench.throughput`."""
