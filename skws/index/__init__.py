"""Large static tables: indexed once on disk, probed by every process."""
