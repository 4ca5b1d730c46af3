"""An agent of a running app: the port ``RunningAgent`` on the author's declarations."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack

from pydantic_ai.models import Model, infer_model

from runfold.core.decisions import Planner
from runfold.core.events import Recovery, Version
from runfold.core.payload import canonical_json
from runfold.ports.agents import (
    Begun,
    GateAsked,
    Invalid,
    Invocation,
    Message,
    ModelAnswer,
    ModelFailure,
    NotStarted,
    NotThere,
    Returned,
    ToolSpec,
    Unknown,
    Valid,
)
from runfold.ports.effects import EffectsTable
from runfold.sdk.agent import Agent
from runfold.sdk.asking import ask
from runfold.sdk.calls import Calls, validated
from runfold.sdk.kept import Kept
from runfold.sdk.messages import Transcripts, decode_response


class LiveAgent:
    """See ``runfold.ports.agents.RunningAgent``, whose contract this implements."""

    name: str
    version: Version
    policy: Mapping[str, str]
    planner: Planner
    params: bytes
    sequential: frozenset[str]

    def __init__(
        self, agent: Agent, revision: str, calls: Calls, kept: Kept, transcripts: Transcripts, stack: AsyncExitStack
    ) -> None:
        self._agent = agent
        self._calls = calls
        self._kept = kept
        self._transcripts = transcripts
        self._stack = stack
        self._tools = {one.name: one for one in agent.tools}
        self._specs = {one.name: one.spec for one in agent.tools}
        self._definitions = [one.schema.tool_def for one in agent.tools]
        self._model: Model | None = None
        self._resolving = asyncio.Lock()
        self.name = agent.name
        self.version = version_of(agent, revision)
        self.policy = agent.policy
        self.planner = agent.planner
        self.sequential = frozenset(one.name for one in agent.tools if one.spec.sequential)
        self.params = canonical_json({"model": agent.model_identity, "settings": agent.recorded_settings})

    def first_message(self, input_json: bytes) -> bytes:
        """Give the first user message as a JSON string."""
        return canonical_json(self._agent.opening(input_json))

    def output(self, message: bytes, message_format: str) -> bytes:
        """Give the text of the final completion as a JSON string; no text gives an empty one."""
        return canonical_json(decode_response(message, message_format).text or "")

    def tool(self, name: str) -> ToolSpec | None:
        """What to know of a tool."""
        return self._specs.get(name)

    def validate(self, tool: str, arguments: bytes) -> Valid | Invalid:
        """Check the model's own arguments."""
        found = self._tools.get(tool)
        if found is None:
            known = ", ".join(repr(name) for name in sorted(self._tools))
            return Invalid(canonical_json(f"Unknown tool name: {tool!r}. Available tools: {known or 'none'}"))
        return validated(found, arguments)

    async def ask_model(self, run_id: str, messages: Sequence[Message], timeout_s: float) -> ModelAnswer | ModelFailure:
        """Ask the model once.

        Raises:
            UnknownRecord: A completion in the transcript that this code cannot read.
        """
        built = self._transcripts.build(run_id, messages, self._agent.instructions)
        model = await self._resolved_model()
        if isinstance(model, ModelFailure):
            return model
        agent = self._agent
        return await ask(model, built, agent.model_settings, self._definitions, agent.instructions, timeout_s)

    def forget(self, run_id: str) -> None:
        """Drop what was parsed of the run's transcript."""
        self._transcripts.forget(run_id)

    async def gate(self, call: Invocation) -> GateAsked | None:
        """Ask whether a call needs an approval; whatever the author's function raises is raised."""
        found = self._tools.get(call.tool)
        return None if found is None else await self._calls.gate(found, call)

    async def execute(self, call: Invocation) -> Returned | Unknown | NotStarted:
        """Run the tool."""
        found = self._tools.get(call.tool)
        return self._gone(call) if found is None else await self._calls.execute(found, call)

    async def look_up(self, call: Invocation) -> Returned | NotThere | Begun | Unknown:
        """Ask the effects table, or the author's lookup."""
        if call.recovery is Recovery.TRANSACTIONAL or call.dedupe:
            return await self._kept.find(call)
        found = self._tools.get(call.tool)
        return self._gone(call) if found is None else await self._calls.look_up(found, call)

    async def close(self, call: Invocation, returned: Returned) -> Returned | Begun | Unknown:
        """Close a call in the effects table."""
        return await self._kept.close(call, returned)

    def _gone(self, call: Invocation) -> Unknown:
        return Unknown(f"agent {self.name!r} of the running code has no tool {call.tool!r}")

    async def _resolved_model(self) -> Model | ModelFailure:
        """Find the model when it is first needed: its package and its key may be missing where agents only load."""
        async with self._resolving:
            if self._model is not None:
                return self._model
            given = self._agent.model
            try:
                # Importing a provider's SDK takes up to a second: not on the event loop.
                model = given if isinstance(given, Model) else await asyncio.to_thread(infer_model, given)
                self._model = await self._stack.enter_async_context(model)
            except Exception as error:  # noqa: BLE001 - whatever a provider's package raises: this model is not usable
                return ModelFailure(f"model {given!r} of agent {self.name!r} cannot be used: {error}", retryable=False)
            return self._model


def version_of(agent: Agent, revision: str) -> Version:
    """What a run of this agent is started under."""
    identities = sorted((one.identity() for one in agent.tools), key=lambda identity: str(identity[0]))
    prompt = {"instructions": agent.instructions, "settings": agent.recorded_settings, "output": None}
    return Version(
        revision=revision,
        prompt_hash=hashlib.sha256(canonical_json(prompt)).hexdigest(),
        tools_hash=hashlib.sha256(canonical_json(identities)).hexdigest(),
        model=agent.model_identity,
        tools=tuple(sorted((one.name, one.signature()) for one in agent.tools)),
    )


class LiveApp:
    """See ``runfold.ports.agents.Agents``."""

    def __init__(
        self,
        agents: Sequence[Agent],
        revision: str,
        deps: object,
        effects: EffectsTable | None,
        stack: AsyncExitStack,
    ) -> None:
        kept, transcripts = Kept(effects), Transcripts()
        calls = Calls(deps, kept)
        self._revision = revision
        self._agents = {one.name: LiveAgent(one, revision, calls, kept, transcripts, stack) for one in agents}

    @property
    def revision(self) -> str:
        """Code revision."""
        return self._revision

    def get(self, name: str) -> LiveAgent | None:
        """An agent by name."""
        return self._agents.get(name)
