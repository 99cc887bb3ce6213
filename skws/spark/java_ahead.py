"""A Java for Spark on this machine, started before anything of Spark is loaded in Python."""

from __future__ import annotations

from skws.spark.java import use_java
from skws.spark.local_java import LocalJava, is_local, is_plain, java_options, started_java
from skws_schema.errors import SourceError


def java_ahead(master: str | None) -> LocalJava | None:
    """None where it is for Spark's scripts to start one, or there is no Java, which the session says."""
    if not is_local(master) or not is_plain():
        return None
    try:
        use_java()
    except SourceError:
        return None
    return started_java(java_options())
