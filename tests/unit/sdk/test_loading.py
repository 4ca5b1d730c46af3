"""Finding an app by name, its lifespan; and what ``import runfold`` costs."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

import runfold
from runfold import Agent, App, Recovery, ToolContext, tool
from runfold.sdk.errors import AppNotFound, DefinitionError
from runfold.sdk.loading import load_app
from runfold.testing import ScriptedModel


@pytest.mark.usefixtures("project")
def test_an_app_is_found_from_the_current_folder() -> None:
    """``module:attribute``, with the folder where one stands on the path."""
    assert repr(load_app("loading_app:app")) == "<app: one>"


@pytest.mark.usefixtures("project")
@pytest.mark.parametrize(
    ("reference", "said"),
    [
        ("loading_app", "write module:attribute"),
        (":app", "write module:attribute"),
        ("loading_nowhere:app", "there is no module 'loading_nowhere'"),
        ("loading_app.sub:app", "there is no module 'loading_app.sub'"),
        ("loading_app:nothing", "module 'loading_app' has no attribute 'nothing'; it has loading_app:app"),
        ("loading_app:number", "is a int, not a runfold.App; its module has loading_app:app"),
        ("loading_app_helper:app", "has no attribute 'app'; it has no App"),
        (
            "loading_script:app",
            r"what it imports ends the process by sys.exit\(0\) \(loading_script.py:3\): keep",
        ),
        ("loading_lazy:app", r"what it imports ends the process by sys.exit\(\) \(loading_lazy.py:4\): keep"),
        ("loading_app.py:app", "write the module, not its file: loading_app:app"),
    ],
)
def test_what_is_no_app_is_an_error_with_the_reference(reference: str, said: str) -> None:
    """Which part failed, and how to write it."""
    with pytest.raises(AppNotFound, match=said) as caught:
        load_app(reference)
    assert reference in str(caught.value)


@pytest.mark.usefixtures("project")
def test_what_the_authors_module_misses_is_its_own_error() -> None:
    """The module is there: to say it is not would mislead."""
    with pytest.raises(ModuleNotFoundError, match="not_installed_anywhere"):
        load_app("loading_broken:app")


async def test_the_lifespan_is_entered_once_with_the_role_and_left() -> None:
    """Its value is every tool's ``ctx.deps``."""
    told: list[str] = []

    @asynccontextmanager
    async def lifespan(role: str) -> AsyncIterator[list[str]]:
        told.append(f"in {role}")
        yield told
        told.append("out")

    @tool(recovery=Recovery.RERUN)
    async def read(ctx: ToolContext[list[str]]) -> int:
        return len(ctx.deps)

    app = App([Agent("one", model=ScriptedModel([]), instructions="", tools=[read])], lifespan=lifespan)
    async with app.running("reconciler") as agents:
        assert told == ["in reconciler"]
        assert agents.get("two") is None
        assert len(agents.revision) in (40, 59, 71)
    assert told == ["in reconciler", "out"]


async def test_a_lifespan_that_is_no_context_manager_is_named() -> None:
    """The usual mistake is a forgotten decorator."""

    async def lifespan(role: str) -> AsyncIterator[str]:
        yield role

    app = App([Agent("one", model=ScriptedModel([]), instructions="")], lifespan=lifespan)  # type: ignore[arg-type]
    with pytest.raises(DefinitionError, match="put @asynccontextmanager above it"):
        async with app.running("executor", revision="r1"):
            pass


def test_importing_runfold_imports_nothing_heavy() -> None:
    """A client or a compactor must not pay for pydantic-ai."""
    code = "import sys, runfold; print(*(m for m in ('pydantic', 'pydantic_ai', 'asyncio') if m in sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout.strip() == ""
    assert set(runfold.__all__) == set(dir(runfold))
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = runfold.nothing
    for name in runfold.__all__:
        if name != "Client":  # needs the client's own extras
            assert getattr(runfold, name) is not None
