"""What goes wrong with a stack, in words for the person who started it."""


class StackError(Exception):
    """A server could not be found, started or stopped; the message says which, why and what to do."""


class NoServersError(StackError):
    """Nothing on this machine can provide a server that was asked for: tests may skip on it."""
