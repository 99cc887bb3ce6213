"""Live searches: standing queries over a source that goes on, results to sinks as they come."""
