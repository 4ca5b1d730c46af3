"""For the tests of agents: a scripted model."""

from __future__ import annotations

from runfold.testing.models import ScriptedModel

__all__ = ["ScriptedModel"]
