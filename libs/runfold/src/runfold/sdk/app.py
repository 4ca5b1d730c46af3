"""``App``: the agents of one code base, and what they share."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from typing import Any

from runfold.sdk.agent import Agent
from runfold.sdk.errors import DefinitionError
from runfold.sdk.live import LiveApp
from runfold.sdk.loading import find_revision

Lifespan = Callable[[str], AbstractAsyncContextManager[Any]]


class App:
    """Agents and their lifespan.

    Args:
        agents: At least one, each with its own name.
        lifespan: A function of the role (``executor`` or ``reconciler``) giving an async context manager, which
            gives the tools' ``ctx.deps``; entered once a process. Without one, ``ctx.deps`` is None.

    Raises:
        DefinitionError: Two agents of one name, a LOOKUP tool without a lookup function, or something that is not
            what it should be.
    """

    def __init__(self, agents: Sequence[Agent], *, lifespan: Lifespan | None = None) -> None:
        self.agents = _checked_agents(agents)
        self.lifespan = _checked_lifespan(lifespan)

    def __repr__(self) -> str:
        return f"<app: {', '.join(one.name for one in self.agents)}>"

    @property
    def modules(self) -> tuple[str, ...]:
        """Names of the modules that the app's functions come from; sorted."""
        functions: list[Any] = [tool.function for agent in self.agents for tool in agent.tools]
        functions += [agent.first_message for agent in self.agents] + [agent.planner for agent in self.agents]
        functions.append(self.lifespan)
        found = {getattr(function, "__module__", None) for function in functions}
        return tuple(sorted(name for name in found if name and not name.startswith("runfold.")))

    @asynccontextmanager
    async def running(self, role: str, *, revision: str | None = None) -> AsyncIterator[LiveApp]:
        """Enter the lifespan and give the agents as the runtime sees them (the port ``Agents``).

        Args:
            role: What the process is: ``executor`` or ``reconciler``; handed to the lifespan.
            revision: The code revision, as ``find_revision`` gives it; None: found from the app's own modules.
        """
        found = revision or find_revision(self.modules, None)
        async with AsyncExitStack() as stack:
            deps = None if self.lifespan is None else await stack.enter_async_context(_entered(self.lifespan, role))
            yield LiveApp(self.agents, found, deps, stack)


def _checked_agents(agents: Any) -> tuple[Agent, ...]:  # noqa: ANN401 - checked here
    if not isinstance(agents, Sequence) or not agents:
        message = f"App takes a list of at least one Agent, not {agents!r}"
        raise DefinitionError(message)
    found: dict[str, Agent] = {}
    for one in agents:
        if not isinstance(one, Agent):
            message = f"App takes a list of Agents, {one!r} is none"
            raise DefinitionError(message)
        if one.name in found:
            message = f"two agents are called {one.name!r}: rename one"
            raise DefinitionError(message)
        for tool in one.tools:
            tool.check_complete()
        found[one.name] = one
    return tuple(found.values())


def _checked_lifespan(lifespan: Any) -> Lifespan | None:  # noqa: ANN401 - checked here
    if lifespan is not None and not callable(lifespan):
        message = f"lifespan is a function of the role giving an async context manager, not {lifespan!r}"
        raise DefinitionError(message)
    checked: Lifespan | None = lifespan
    return checked


def _entered(lifespan: Lifespan, role: str) -> AbstractAsyncContextManager[Any]:
    manager: object = lifespan(role)
    if not isinstance(manager, AbstractAsyncContextManager):
        message = (
            f"lifespan({role!r}) gave {type(manager).__name__}, not an async context manager: "
            "put @asynccontextmanager above it"
        )
        raise DefinitionError(message)
    return manager
