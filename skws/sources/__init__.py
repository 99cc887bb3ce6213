"""Live sources: growing files, paced replays, standard input, PostgreSQL, Kafka; read by offsets."""
