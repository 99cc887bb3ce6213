"""Pattern queries beside other engines, and how updates grow.

Run: ``python -m bench.patterns engines|growth``. DuckDB and Pathway run in environments of their
own, made when first needed; CORE (which needs Python 3.13) and Flink (a gigabyte) in those of interpreters
that are given.
"""
