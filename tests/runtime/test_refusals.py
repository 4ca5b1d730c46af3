"""A refused resume names the command that is meant, on virtual time."""

from __future__ import annotations

import pytest

from runfold import Recovery, ToolContext
from runfold.codec import inputs as codec_inputs
from tests.runtime.apps import one_tool_app, settled
from tests.runtime.system import System
from tests.runtime.virtual import run_virtual


async def hangs_up(_: ToolContext[None]) -> str:
    """Fail in the middle: nobody knows what happened."""
    message = "hung up"
    raise RuntimeError(message)


@pytest.mark.parametrize(
    ("gated", "reason", "command"),
    [
        (False, "indeterminate", "use `runfold resolve r1 2` with --result, --absent or --error"),
        (True, "awaiting_approval", "use `runfold approve` or `reject`"),
    ],
)
def test_resuming_a_run_that_waits_for_something_else(*, gated: bool, reason: str, command: str) -> None:
    async def main() -> None:
        async with System.running(partitions=1) as system:
            await system.start_executor(one_tool_app(Recovery.MANUAL, hangs_up, needs_approval=gated))
            await system.start("r1", "a")
            await system.waiting("r1", reason)
            refused = await settled(system, "r1", await system.request("r1", codec_inputs.encode_resume("r1", "ops")))
            assert refused.reason == "not_open"
            assert command in (refused.detail or "")

    run_virtual(main())
