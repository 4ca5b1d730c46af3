"""The three engines: executor, compactor, reconciler. They use asyncio and the ports, nothing else."""
