"""``App``: the agents of one code base, and what they share."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from typing import Any

from runfold.ports.effects import EffectsTable
from runfold.sdk.agent import Agent
from runfold.sdk.errors import DefinitionError, NoEffectsTable
from runfold.sdk.live import LiveApp
from runfold.sdk.revision import find_revision

Lifespan = Callable[[str], AbstractAsyncContextManager[Any]]


class App:
    """Agents and their lifespan.

    Attributes:
        loaded_from: The module by which ``load_app`` found it; None where nobody looked for it by name.

    Args:
        agents: At least one, each with its own name.
        lifespan: A function of the role (``executor`` or ``reconciler``) giving an async context manager, which
            gives the tools' ``ctx.deps``; entered once a process. Without one, ``ctx.deps`` is None.
        effects_dsn: A libpq URL of the database in which TRANSACTIONAL tools write, and in which the effects table
            is made beside their tables (schema RUNFOLD_POSTGRES_SCHEMA). None: Runfold's own database. Secrets are
            better read from the environment than written into code.

    Raises:
        DefinitionError: Two agents of one name, a LOOKUP tool without a lookup function, or something that is not
            what it should be.
    """

    def __init__(
        self, agents: Sequence[Agent], *, lifespan: Lifespan | None = None, effects_dsn: str | None = None
    ) -> None:
        self.agents = _checked_agents(agents)
        self.lifespan = _checked_lifespan(lifespan)
        self.effects_dsn = _checked_dsn(effects_dsn)
        self.loaded_from: str | None = None

    def __repr__(self) -> str:
        return f"<app: {', '.join(one.name for one in self.agents)}>"

    @property
    def modules(self) -> tuple[str, ...]:
        """Names of the modules that the app and its functions come from; sorted."""
        tools = [tool for agent in self.agents for tool in agent.tools]
        asked = [one for tool in tools for one in (tool.lookup_function, tool.approval_function) if one is not None]
        functions: list[Any] = [tool.function for tool in tools] + [one.function for one in asked]
        functions += [agent.first_message for agent in self.agents] + [agent.planner for agent in self.agents]
        functions.append(self.lifespan)
        found = {self.loaded_from, *(getattr(function, "__module__", None) for function in functions)}
        return tuple(sorted(name for name in found if name and not name.startswith("runfold.")))

    @property
    def needs_effects(self) -> tuple[str, ...]:
        """Names of the tools whose outcome the effects table keeps; sorted."""
        return tuple(sorted({tool.name for agent in self.agents for tool in agent.tools if tool.is_kept}))

    @asynccontextmanager
    async def running(
        self, role: str, *, revision: str | None = None, effects: EffectsTable | None = None
    ) -> AsyncIterator[LiveApp]:
        """Enter the lifespan and give the agents as the runtime sees them (the port ``Agents``).

        Args:
            role: What the process is: ``executor`` or ``reconciler``; handed to the lifespan.
            revision: The code revision, as ``find_revision`` gives it; None: found from the app's own modules.
            effects: The effects table, for an executor whose app has tools that need it.

        Raises:
            NoEffectsTable: It has some, and is given none.
            NoRevision: None is given, and none can be found.
        """
        if role == "executor" and effects is None and self.needs_effects:
            message = (
                f"tools {', '.join(self.needs_effects)} (Recovery.TRANSACTIONAL or dedupe=True) need the effects "
                "table: pass App.running(..., effects=...), in tests runfold.adapters.memory.MemoryEffects"
            )
            raise NoEffectsTable(message)
        found = revision or find_revision(self.modules, None)
        async with AsyncExitStack() as stack:
            deps = None if self.lifespan is None else await stack.enter_async_context(_entered(self.lifespan, role))
            yield LiveApp(self.agents, found, deps, effects, stack)


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


def _checked_dsn(dsn: Any) -> str | None:  # noqa: ANN401 - checked here
    if dsn is not None and not (isinstance(dsn, str) and dsn):
        message = f"effects_dsn is a libpq URL such as postgresql://user@host/database, not a {type(dsn).__name__}"
        raise DefinitionError(message)
    checked: str | None = dsn
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
