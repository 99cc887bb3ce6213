"""PostgreSQL as a source: a consistent snapshot, then the changes of logical replication."""
