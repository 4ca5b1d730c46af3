"""The step executor of Runfold: drives the runs of the partitions it owns."""
