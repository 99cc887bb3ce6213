"""What runs in a process of its own: ``CHILD LOAD EVENTS_FILE WINDOW`` prints matches and seconds as JSON.

The children of peers import the standard library and the peer alone. Reading the file is not measured.
"""
