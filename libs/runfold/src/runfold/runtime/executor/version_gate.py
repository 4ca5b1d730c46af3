"""The version gate at work: before this code drives a run in this tenure."""

from __future__ import annotations

from runfold.core import drafts, versions
from runfold.core.events import VersionChanged, WaitReason
from runfold.core.payload import Payload
from runfold.core.state import State, Wait
from runfold.ports.agents import RunningAgent
from runfold.runtime.executor.batch import Batch
from runfold.runtime.executor.run import Run

_HELD_BACK = (WaitReason.UNKNOWN_AGENT, WaitReason.VERSION_MISMATCH)


def holds_back(state: State) -> bool:
    """Whether the run waits for another version or agent: looked at again by each new owner."""
    return _version_wait(state) is not None


def compare(agent: RunningAgent, state: State, *, accept: bool = False) -> versions.Gate:
    """Compare the run with the running code."""
    accepted = accept or state.accept_version
    return versions.gate(state.version, agent.version, agent.policy, state.used_tools, accept=accepted)


async def admit(run: Run, batch: Batch) -> bool:
    """Let this code drive the run, or hold it back, with the events that say so.

    Raises:
        Exception: Whatever the author's ``first_message`` raises.
    """
    state = batch.known
    wait = _version_wait(state)
    if wait is None and state.operational_wait() is not None:
        return False
    agent = run.agent
    if agent is None:
        if wait is None:
            _hold(batch, state, WaitReason.UNKNOWN_AGENT, {"agent": state.agent})
        return False
    comparison = compare(agent, state)
    if isinstance(comparison, versions.Refused):
        if wait is None:
            parts = {part: {"old": old, "new": new} for part, (old, new) in comparison.parts.items()}
            _hold(batch, state, WaitReason.VERSION_MISMATCH, {"parts": parts})
        return False
    if wait is not None:
        state = batch.add(drafts.resumed(state, batch.stamp(), wait))
    first_message = await _first_message(run, agent, state)
    if isinstance(comparison, versions.Changed) or first_message is not None:
        policy = comparison.policy if isinstance(comparison, versions.Changed) else ()
        batch.add(
            VersionChanged(
                **drafts.envelope(state, batch.stamp()),
                old=state.version,
                new=agent.version,
                policy=policy,
                first_message=first_message,
            )
        )
    return True


async def _first_message(run: Run, agent: RunningAgent, state: State) -> Payload | None:
    if state.has_first_message:
        return None
    payloads = run.world.payloads
    return await payloads.seal(agent.first_message(await payloads.read(state.input)))


def _version_wait(state: State) -> Wait | None:
    return next((wait for wait in state.waits.values() if wait.reason in _HELD_BACK), None)


def _hold(batch: Batch, state: State, reason: WaitReason, detail: dict[str, object]) -> None:
    batch.add(drafts.interruption(state, batch.stamp(), reason, detail))
