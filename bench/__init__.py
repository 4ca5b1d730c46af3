"""Throughput and latency on real services: `make bench`."""
