"""The same candidate networks over the same replay in other engines, beside skws.

``networks`` turns candidate networks into SQL and into shared join steps, ``environment`` makes the
peers' environments, ``children`` holds what runs inside them, ``compare`` runs all and compares.
"""
