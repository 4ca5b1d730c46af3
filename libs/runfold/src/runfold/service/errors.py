"""What a service and the command line tell an operator to mend."""

from __future__ import annotations


class InstallationError(Exception):
    """The installation does not fit the settings (topics, tables, partition count): the message says how to mend it."""
