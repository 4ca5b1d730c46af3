"""The reconciler of Runfold: finds out what became of dangling tool calls."""
