"""What an author may want to know of an app that is in order: for ``runfold check``."""

from __future__ import annotations

from collections.abc import Iterator
from inspect import Parameter

from pydantic_ai.models import infer_model

from runfold.sdk.agent import Agent
from runfold.sdk.app import App
from runfold.sdk.calls import AnyTool


def remarks(app: App) -> Iterator[tuple[str, str, str]]:
    """Give (what, found, mend) for tools that the model is told little of, and models that cannot be used here."""
    tools = {id(tool): tool for agent in app.agents for tool in agent.tools}
    for tool in tools.values():
        yield from _of_tool(tool)
    for agent in app.agents:
        yield from _of_model(agent)


def _of_tool(tool: AnyTool) -> Iterator[tuple[str, str, str]]:
    what = f"tool {tool.name}"
    if not (tool.function.__doc__ or "").strip():
        yield what, "it has no docstring, so the model is not told what it does", "write one"
    bare = [repr(p.name) for p in tool.shape.parameters if p.annotation is Parameter.empty]
    if bare:
        named = f"parameter {bare[0]} has" if len(bare) == 1 else f"parameters {', '.join(bare)} have"
        yield what, f"{named} no type, so whatever the model gives is accepted", "annotate every parameter"


def _of_model(agent: Agent) -> Iterator[tuple[str, str, str]]:
    if not isinstance(agent.model, str):
        return
    try:
        infer_model(agent.model)
    except Exception as error:  # noqa: BLE001 - whatever a provider's package raises: the executor would meet it too
        found = f"model {agent.model!r} cannot be used from here: {' '.join(str(error).split())}"
        yield f"agent {agent.name}", found, "install its provider and set its key where the step executors run"
