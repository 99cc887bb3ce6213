"""Topics of Kafka as a source; the only package that imports confluent_kafka."""
