"""Measurements: `skws bench` runs most of them, others are run as modules: `python -m bench.replay`."""
