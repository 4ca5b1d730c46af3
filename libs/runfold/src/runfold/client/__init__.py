"""The client: start runs, decide gates, read what happened. ``Client`` is the command line in Python (async)."""

from runfold.client.client import Client
from runfold.client.errors import NoSuchEventError, RunCancelledError, RunFailedError, RunNotFoundError
from runfold.client.inputs import Submitted
from runfold.client.reader import Settled

__all__ = [
    "Client",
    "NoSuchEventError",
    "RunCancelledError",
    "RunFailedError",
    "RunNotFoundError",
    "Settled",
    "Submitted",
]
