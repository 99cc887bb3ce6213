"""Programs that run in their own process: ``CHILD TASK``, with the task as JSON, prints measurements as JSON.

The programs of other engines import only the standard library and that engine. Reading the file of events is
not measured. The output has ``matches``, and ``cpu`` of all threads and ``wall`` in seconds, or is null for a
query that the engine cannot express.
"""
