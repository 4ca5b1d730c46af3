"""What is raised when an author's declarations do not hold together; always while the app is being imported."""

from __future__ import annotations


class DefinitionError(TypeError):
    """A tool, an agent or an app is declared wrongly. The message names it and says how to mend it."""


class NoEffectsTable(DefinitionError):
    """An app has tools whose outcome the effects table keeps, and was started without one."""


class NoTransaction(RuntimeError):
    """``ctx.connection`` was asked for where there is no transaction."""


class AppNotFound(Exception):
    """``module:attribute`` does not lead to an ``App``. The message says which part failed."""


class NoRevision(Exception):
    """An app's code cannot be told from other code. The message says why, and to give a revision."""
