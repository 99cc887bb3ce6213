"""Guards: conditions on a record and those before it, decided by z3 and evaluated by columns."""
