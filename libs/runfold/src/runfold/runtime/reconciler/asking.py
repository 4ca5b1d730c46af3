"""One due call: what the author's lookup needs to know, and its answer."""

from __future__ import annotations

import asyncio

import structlog

from runfold.codec.snapshots import CorruptSnapshot, decode_snapshot
from runfold.core.errors import UnknownRecord
from runfold.core.payload import Inline, Payload
from runfold.core.policy import LOOKUP_TRIES
from runfold.core.state import State
from runfold.ports.agents import Agents, Invocation, RunningAgent, Unknown
from runfold.ports.blobs import BlobMissing, Blobs, BlobsUnavailable
from runfold.ports.store import OpenCallRow, ReconcilerStore, StoredRun, StoreUnavailable
from runfold.runtime.reconciler.judging import Answer

_log = structlog.get_logger(__name__)


class Questions:
    """Asks lookups. Holds no lock and no connection while it does."""

    def __init__(self, store: ReconcilerStore, blobs: Blobs, agents: Agents) -> None:
        self._store = store
        self._blobs = blobs
        self._agents = agents

    def terms(self, call: OpenCallRow) -> tuple[float | None, int]:
        """Give a lookup's own time-out in seconds, if it has one, and how often it may fail; of the running code."""
        agent = self._agents.get(call.agent)
        spec = None if agent is None else agent.tool(call.tool)
        if spec is None:
            return None, LOOKUP_TRIES
        return None if spec.lookup_timeout_ms is None else spec.lookup_timeout_ms / 1000, spec.lookup_tries

    async def ask(self, call: OpenCallRow, timeout_s: float) -> Answer:
        """Ask what became of a call.

        Args:
            call: A LOOKUP call.
            timeout_s: For everything: reading arguments and state, and the lookup.

        Raises:
            StoreUnavailable, BlobsUnavailable: Nothing was asked; the lookup is not to blame.
        """
        agent = self._agents.get(call.agent)
        if agent is None:
            return Unknown(f"the running code has no agent {call.agent!r}")
        spec = agent.tool(call.tool)
        if spec is None or not spec.has_lookup:
            said = "no tool" if spec is None else "no lookup function for tool"
            return Unknown(f"agent {call.agent!r} of the running code has {said} {call.tool!r}")
        scope = asyncio.timeout(timeout_s)
        try:
            async with scope:
                return await self._ask(agent, call, timeout_s)
        except (StoreUnavailable, BlobsUnavailable):
            raise
        except (BlobMissing, CorruptSnapshot, UnknownRecord) as error:
            return Unknown(f"what the lookup needs cannot be read: {error}")
        except Exception as error:  # noqa: BLE001 - the author's code; a lookup that fails has said nothing
            if isinstance(error, TimeoutError) and scope.expired():
                return Unknown(f"the lookup took longer than {timeout_s:g} s", timed_out=True)
            return Unknown(f"{type(error).__name__}: {error}")

    async def _ask(self, agent: RunningAgent, call: OpenCallRow, timeout_s: float) -> Answer:
        until = asyncio.get_running_loop().time() + timeout_s
        arguments = await self._read(call.arguments)
        values = await self._values(call.run_id)
        invocation = Invocation(
            run_id=call.run_id,
            agent=call.agent,
            step=call.step,
            attempt=call.attempt,
            tool=call.tool,
            tool_call_id=call.tool_call_id,
            idempotency_key=f"{call.run_id}:{call.step}",
            arguments=arguments,
            values=values,
            timeout_s=max(0.0, until - asyncio.get_running_loop().time()),
            recovery=call.recovery,
        )
        return await agent.look_up(invocation)

    async def _values(self, run_id: str) -> dict[str, bytes]:
        """Read the author's state from the newest readable snapshot: it may miss the latest turns' patches.

        A run so young that it has no snapshot has an empty one.
        """
        stored = (await self._store.load_runs([run_id])).get(run_id)
        state = None if stored is None else _newest(stored)
        return {} if state is None else {key: await self._read(value) for key, value in state.values.items()}

    async def _read(self, payload: Payload) -> bytes:
        return payload.data if isinstance(payload, Inline) else await self._blobs.get(payload)


def _newest(stored: StoredRun) -> State | None:
    """Decode the newest snapshot that can be read.

    Raises:
        CorruptSnapshot, UnknownRecord: There are snapshots, and none can be read.
    """
    problem: CorruptSnapshot | UnknownRecord | None = None
    for row in stored.snapshots:
        try:
            return decode_snapshot(row, stored.chunks)
        except (CorruptSnapshot, UnknownRecord) as error:
            _log.warning("snapshot_set_aside", run_id=stored.run_id, seq=row.seq, error=str(error))
            problem = error
    if problem is not None:
        raise problem
    return None
