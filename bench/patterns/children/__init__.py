"""What runs in a process of its own: ``CHILD TASK`` with the task as JSON prints what it took, as JSON.

The children of peers import the standard library and the peer alone. Reading the file of events is not
measured. What is printed: ``matches``, ``cpu`` of all threads and ``wall`` in seconds; or null for a query
that the engine cannot express.
"""
