"""The three engines, as libraries: executor, compactor, reconciler; and rebuild. They know ports, never adapters."""
