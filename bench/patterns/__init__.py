"""Pattern queries compared with other engines, and the growth of update times.

Run: ``python -m bench.patterns engines|growth``. DuckDB and Pathway run in their own
environments, created when first needed. CORE (which needs Python 3.13) and Flink (a gigabyte) run in the
interpreters named on the command line.
"""
