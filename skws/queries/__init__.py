"""Queries of every kind over one stream.

``session.py`` answers them; ``operator.py`` defines the plan and the operator of a query, ``kinds.py`` lists
the kinds, ``order.py`` orders records. Each kind has a package or a file: ``keywords``, ``windowed``,
``patterns``, ``sql.py``. ``partitioning`` divides results among tasks.
"""
