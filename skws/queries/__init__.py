"""Queries of every kind over one stream.

``session.py`` answers them; ``operator.py`` is what a kind of query is made of, ``kinds.py`` lists the kinds,
``order.py`` gives records their order. Each kind has a package or a file: ``keywords``, ``windowed``,
``patterns``, ``sql.py``. ``partitioning`` divides results among tasks, ``snapshot`` searches what a database
has now.
"""
