"""A refused resume names the command that is meant, on virtual time."""

from __future__ import annotations

import pytest

from runfold import Recovery, ToolContext
from runfold.codec import inputs as codec_inputs
from runfold.testing.simulation.cluster import Cluster
from runfold.testing.simulation.loop import run_virtual
from tests.runtime.apps import one_tool_app, settled


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
        async with Cluster.running(partitions=1) as cluster:
            await cluster.start_executor(one_tool_app(Recovery.MANUAL, hangs_up, needs_approval=gated))
            await cluster.start("r1", "a")
            await cluster.waiting("r1", reason)
            refused = await settled(cluster, "r1", await cluster.request("r1", codec_inputs.encode_resume("r1", "ops")))
            assert refused.reason == "not_open"
            assert command in (refused.detail or "")

    run_virtual(main())
