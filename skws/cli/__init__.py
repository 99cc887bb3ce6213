"""The command line: one command a file. Nothing is searched here; that is ``skws.search``."""

from skws.cli.main import main

__all__ = ["main"]
