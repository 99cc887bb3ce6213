"""One mesh for very many queries: delta joins outward from each new tuple, over shared live tuples.

``DeltaJoins`` returns the results of ``skws_mesh.columnar.mesh``, but keeps no partial results.
"""
