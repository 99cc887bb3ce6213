"""Pattern queries beside other engines, and how the time of an update grows.

Run: ``python -m bench.patterns [--events N] [--core PYTHON] [--pathway PYTHON]``. Peers run in
environments of their own, named by their interpreters; without them skws is measured alone.
"""
