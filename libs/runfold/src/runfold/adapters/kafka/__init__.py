"""The ports on Apache Kafka, by librdkafka."""
