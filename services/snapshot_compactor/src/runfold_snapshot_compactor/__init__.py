"""The snapshot compactor of Runfold: folds the log into snapshots and query tables."""
