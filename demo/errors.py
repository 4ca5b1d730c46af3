"""What goes wrong in the demo."""


class DemoError(Exception):
    """The trace did not go as it must; the message says what was expected and what was found."""
