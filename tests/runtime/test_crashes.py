"""Attempts that were lost with their process."""

from __future__ import annotations

import asyncio
from functools import partial

from runfold import Recovery, ToolContext
from runfold.codec import inputs as codec_inputs
from runfold.core.events import WaitReason
from runfold.core.state import Status
from tests.runtime.apps import one_tool_app
from tests.runtime.system import System
from tests.runtime.virtual import run_virtual


def _has(calls: list[int], count: int) -> bool:
    return len(calls) == count


def test_three_attempts_lost_to_crashes_interrupt_the_run() -> None:
    """A run that kills its process cannot halt a partition: error, and a person's resume lets it try again."""
    calls: list[int] = []
    calm = asyncio.Event()

    async def act(ctx: ToolContext[None]) -> str:
        calls.append(ctx.attempt)
        if not calm.is_set():
            await asyncio.Event().wait()
        return "done"

    async def main() -> None:
        async with System.running(partitions=1) as system:
            app = one_tool_app(Recovery.KEYED, act)
            for crash in range(1, 4):
                process = await system.start_executor(app, f"p{crash}")
                if crash == 1:
                    await system.start("r1", "a")
                await system.until(partial(_has, calls, crash))
                process.kill()
            await system.start_executor(app, "p4")
            state = await system.waiting("r1", WaitReason.ERROR)
            assert len(calls) == 3
            calm.set()
            await system.request("r1", codec_inputs.encode_resume("r1", "ops"))
            state = await system.ended("r1")
            assert state.ended is Status.COMPLETED
            assert len(calls) == 4

    run_virtual(main())
