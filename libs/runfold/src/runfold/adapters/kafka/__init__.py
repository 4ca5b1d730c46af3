"""The ports on Apache Kafka, by librdkafka. What was measured about it stands in ARCHITECTURE.md."""
