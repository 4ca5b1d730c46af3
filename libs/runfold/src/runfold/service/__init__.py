"""What the services and the command line share: settings, logs, health, metrics, start and stop."""
