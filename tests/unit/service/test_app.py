"""What a service says of an app that it cannot use: the operator mends it, so the message has to lead there."""

from __future__ import annotations

import pytest

from runfold import Agent, App
from runfold.service.app import revision_of
from runfold.service.errors import InstallationError


async def test_an_app_whose_code_has_no_file_needs_a_revision() -> None:
    """One that nobody loaded by name, and that has no functions of its own."""
    app = App([Agent("one", model="test", instructions="")])
    with pytest.raises(InstallationError, match=r"RUNFOLD_APP: .* set RUNFOLD_REVISION"):
        await revision_of(app, None)
    assert await revision_of(app, "v7") == "v7"
