"""What is recorded, in which order, and what happens when it cannot be."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from typing import Any, ClassVar

import pytest

from runfold import Agent, App, Approval, Recovery, ToolContext, tool
from runfold.adapters.memory.blobs import MemoryBlobs
from runfold.adapters.memory.store import MemoryStore
from runfold.codec import inputs as codec_inputs
from runfold.core.events import LogRecordBody, RunStarted, ToolReturned
from runfold.core.payload import BlobRef
from runfold.core.state import Status
from runfold.ports.blobs import BlobsUnavailable
from runfold.ports.store import Commit, PartitionRow
from runfold.testing import ScriptedModel
from runfold.testing.simulation.cluster import Cluster
from runfold.testing.simulation.faulty_log import FaultyLog
from runfold.testing.simulation.loop import run_virtual
from tests.runtime.apps import claims, model_app, one_tool_app, requests

# --- outcomes that cannot be recorded ---------------------------------------------------------------------------


async def _too_large(_: ToolContext[None]) -> str:
    raise RuntimeError("x" * 1_200_000)


async def _no_unicode(_: ToolContext[None]) -> str:
    raise RuntimeError("half a character: \ud83d")


@pytest.mark.parametrize("body", [_too_large, _no_unicode])
@pytest.mark.parametrize("recovery", [Recovery.MANUAL, Recovery.RERUN])
def test_an_outcome_that_cannot_be_recorded_is_an_unknown_one(recovery: Recovery, body: Any) -> None:
    """Refused before it is produced: the epoch goes on, and the run by the rules of its recovery class."""

    async def main() -> None:
        async with Cluster.running(partitions=1) as cluster:
            await cluster.start_executor(one_tool_app(recovery, body, retries=1))
            await cluster.start("r1", "a")
            if recovery is Recovery.MANUAL:
                await cluster.waiting("r1", "indeterminate")
                assert len(requests(cluster)) == 1
            else:
                await cluster.ended("r1")
                [returned] = [event for event in cluster.events("r1") if isinstance(event, ToolReturned)]
                assert returned.is_error
                assert len(requests(cluster)) == 2
            assert claims(cluster) == 1

    run_virtual(main())


def test_a_completion_that_is_too_large_to_be_recorded_interrupts_its_run_only() -> None:
    """1,500 calls of 1 kB: refused before it is produced, so that neither the epoch nor the partition ends with it."""
    asked = [("act", {"text": "x" * 1_000}) for _ in range(1_500)]

    async def main() -> None:
        async with Cluster.running(partitions=1) as cluster:
            await cluster.start_executor(model_app(asked))
            await cluster.start("r1", "a")
            state = await cluster.waiting("r1", "error")
            assert state.model_call is not None
            assert "RecordTooLarge" in str(state.model_call.error)
            assert claims(cluster) == 1

    run_virtual(main())


def test_many_middling_payloads_do_not_make_a_record_too_large() -> None:
    """Thirty calls of 60 kB each in one completion: together far above a record's limit, each below the inline one."""
    asked = [("act", {"text": "x" * 60_000}) for _ in range(30)]

    @tool(recovery=Recovery.RERUN)
    async def act(text: str) -> int:
        """Act."""
        return len(text)

    async def main() -> None:
        async with Cluster.running(partitions=1) as cluster:
            await cluster.start_executor(
                App([Agent("a", model=ScriptedModel([asked, "done"]), instructions="", tools=[act])])
            )
            await cluster.start("r1", "a")
            assert (await cluster.ended("r1")).ended is Status.COMPLETED
            assert len(requests(cluster)) == 30

    run_virtual(main())


# --- the author's code ------------------------------------------------------------------------------------------


def test_a_first_message_that_raises_interrupts_the_run_and_a_resume_begins_it() -> None:
    """The run exists, visibly, with the error; the mended code begins it."""
    mended: list[bool] = []

    def first_message(given: object) -> str:
        if not mended:
            raise ValueError("no such field")
        return str(given)

    async def main() -> None:
        async with Cluster.running(partitions=1) as cluster:
            await cluster.start_executor(model_app("done", first_message=first_message))
            await cluster.start("r1", "a")
            await cluster.waiting("r1", "error")
            assert cluster.types("r1") == ["RunStarted", "Interrupted"]
            mended.append(True)
            await cluster.request("r1", codec_inputs.encode_resume("r1", "ops"))
            state = await cluster.ended("r1")
            assert state.ended is Status.COMPLETED
            assert cluster.types("r1").count("VersionChanged") == 1

    run_virtual(main())


def test_what_led_to_a_gate_is_durable_before_its_function_is_asked() -> None:
    """It may take its time: the completion that was paid for must not be lost meanwhile."""
    seen: list[list[str]] = []

    async def main() -> None:
        async with Cluster.running(partitions=1) as cluster:

            @tool(recovery=Recovery.KEYED)
            async def act() -> str:
                """Act."""
                return "done"

            @act.approval
            async def gate() -> Approval | None:
                """Ask."""
                seen.append(cluster.types("r1"))
                return None

            model = ScriptedModel([("act", {}), "done"])
            await cluster.start_executor(App([Agent("a", model=model, instructions="", tools=[act])]))
            await cluster.start("r1", "a")
            await cluster.ended("r1")
            assert [types[-1] for types in seen] == ["ModelResponded"]

    run_virtual(main())


# --- payloads in the object store -------------------------------------------------------------------------------


class SlowBlobs(MemoryBlobs):
    """An object store that takes a second to write, and can be switched off."""

    def __init__(self) -> None:
        super().__init__()
        self.away = False
        self.refused = 0

    async def put(self, data: bytes) -> BlobRef:
        """Write, late."""
        await asyncio.sleep(1)
        self._reach()
        return await super().put(data)

    async def get(self, ref: BlobRef) -> bytes:
        """Read."""
        self._reach()
        return await super().get(ref)

    def _reach(self) -> None:
        self.refused += self.away
        if self.away:
            raise BlobsUnavailable("switched off")


def references(value: object) -> Iterator[BlobRef]:
    """All references to the object store in a record."""
    if isinstance(value, BlobRef):
        yield value
    elif isinstance(value, tuple):
        for item in value:
            yield from references(item)
    elif is_dataclass(value):
        for field in fields(value):
            yield from references(getattr(value, field.name))


def test_a_payload_is_stored_before_the_event_that_refers_to_it_lands() -> None:
    """For every event of a run whose every payload is in the object store."""
    found: list[str] = []
    missing: list[str] = []

    async def main() -> None:
        blobs = SlowBlobs()
        async with Cluster.running(partitions=1, inline_limit=1, blobs=blobs) as cluster:
            log = FaultyLog(cluster.broker)

            def watch(record: LogRecordBody) -> None:
                for reference in references(record):
                    found.append(type(record).__name__)
                    if reference.sha256 not in blobs.stored:
                        missing.append(found[-1])

            log.watch = watch

            async def act(_: ToolContext[None]) -> str:
                return "result"

            await cluster.start_executor(one_tool_app(Recovery.KEYED, act), "p0", log)
            await cluster.start("r1", "a")
            await cluster.ended("r1")
            assert missing == []
            assert {"RunStarted", "ModelResponded", "ToolCallRequested", "ToolReturned", "RunCompleted"} <= set(found)

    run_virtual(main())


@pytest.mark.parametrize("when", ["before", "during"])
def test_a_run_waits_while_the_object_store_is_away(when: str) -> None:
    """Neither an error nor an effect twice: it goes on when the store is back."""
    calls: list[int] = []

    async def main() -> None:
        blobs = SlowBlobs()
        blobs.away = when == "before"
        async with Cluster.running(partitions=1, inline_limit=1, blobs=blobs) as cluster:

            async def act(ctx: ToolContext[None]) -> str:
                calls.append(ctx.attempt)
                blobs.away = True
                return "result"

            await cluster.start_executor(one_tool_app(Recovery.MANUAL, act))
            await cluster.start("r1", "a")
            for _ in range(1 + (when == "before")):
                await cluster.until(lambda: blobs.refused > 3)
                await asyncio.sleep(100)
                blobs.away, blobs.refused = False, 0
            assert (await cluster.ended("r1")).ended is Status.COMPLETED
            assert calls == [1]
            assert "Interrupted" not in cluster.types("r1")
            assert claims(cluster) == 1

    run_virtual(main())


# --- leaving memory ---------------------------------------------------------------------------------------------


class SlowStore(MemoryStore):
    """Tells three seconds late what is covered; commits only while ``may_commit`` is set."""

    may_commit: ClassVar[asyncio.Event]
    asked: ClassVar[int]

    async def covered(self, seqs: Mapping[str, int]) -> set[str]:
        """Answer from what was true three seconds ago."""
        answer = await super().covered(seqs)
        SlowStore.asked += bool(answer)
        await asyncio.sleep(3)
        return answer

    async def commit(self, commit: Commit) -> PartitionRow:
        """Commit when it is allowed."""
        await SlowStore.may_commit.wait()
        return await super().commit(commit)


def test_a_run_that_moved_on_while_postgres_was_asked_does_not_leave_memory() -> None:
    """It rests again, but at an event that no snapshot holds: loaded from there, its next approval were unknown."""

    @tool(recovery=Recovery.KEYED, needs_approval=True)
    async def act() -> str:
        """Act."""
        return "done"

    async def main() -> None:
        SlowStore.may_commit, SlowStore.asked = asyncio.Event(), 0
        SlowStore.may_commit.set()
        async with Cluster.running(store=SlowStore, partitions=1) as cluster:
            model = ScriptedModel([("act", {}), ("act", {}), "done"])
            process = await cluster.start_executor(App([Agent("a", model=model, instructions="", tools=[act])]))
            await cluster.start("r1", "a")
            await cluster.until(lambda: SlowStore.asked)
            SlowStore.may_commit.clear()
            await cluster.approve("r1", 2)
            await cluster.until(lambda: cluster.types("r1").count("Interrupted") == 2)
            await asyncio.sleep(10)
            assert process.executor.runs_in_memory == 1
            await cluster.approve("r1", 5)
            assert (await cluster.ended("r1")).ended is Status.COMPLETED

    run_virtual(main())


def test_a_start_is_recorded_with_its_input_before_anything_is_asked() -> None:
    """The first record of a run settles the input that started it."""

    async def main() -> None:
        async with Cluster.running(partitions=1) as cluster:
            await cluster.start_executor(model_app("done"))
            offset = await cluster.start("r1", "a")
            await cluster.ended("r1")
            first = cluster.events("r1")[0]
            assert isinstance(first, RunStarted)
            assert first.cause is not None
            assert first.cause.offset == offset

    run_virtual(main())
