"""One mesh for very many queries: delta joins outward from each new tuple, over live tuples that all share.

``DeltaJoins`` gives the results of ``skws_mesh.columnar.mesh``, but keeps no partial results.
"""
