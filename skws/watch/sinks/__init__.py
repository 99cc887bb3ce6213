"""Where results of live searches go: files, standard output, databases, web hooks."""

from skws.watch.sinks.addresses import open_sinks, parse_sink
from skws.watch.sinks.base import Run, Sink, SinkError

__all__ = ["Run", "Sink", "SinkError", "open_sinks", "parse_sink"]
