"""The three engines, as libraries: executor, compactor, reconciler. They know ports, never adapters."""
