"""The costs of very many saved searches, and of a percolator that joins in a database first."""
