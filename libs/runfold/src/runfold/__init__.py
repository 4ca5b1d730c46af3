"""Runfold: a durable runtime for LLM agents on Kafka, Postgres and an object store."""
