"""Measurements. `skws bench` runs most of them; the others are modules, such as `python -m bench.replay`."""
