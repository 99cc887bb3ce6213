"""Jobs: standing queries over a live source, with their control, log, sinks and metrics."""
