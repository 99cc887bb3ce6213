"""Very many saved searches: what they cost, and what a percolator costs that joins in a database first."""
