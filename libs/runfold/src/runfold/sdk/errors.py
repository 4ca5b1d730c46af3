"""What is raised when an author's declarations do not hold together; always while the app is being imported."""

from __future__ import annotations


class DefinitionError(TypeError):
    """A tool, an agent or an app is declared wrongly. The message names it and says how to mend it."""


class AppNotFound(Exception):
    """``module:attribute`` does not lead to an ``App``. The message says which part failed."""
