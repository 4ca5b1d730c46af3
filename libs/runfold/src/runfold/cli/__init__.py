"""The operator's command ``runfold``, written on ``runfold.Client``."""

from runfold.cli.app import main

__all__ = ["main"]
