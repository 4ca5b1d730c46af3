"""Membership on a real group where the contract suite does not reach: killed processes, a loop that stands still."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from runfold.adapters.kafka.config import KafkaConfig, MemberSettings
from runfold.adapters.kafka.errors import MembershipFailed
from runfold.adapters.kafka.membership import KafkaMembership
from tests.contract.worlds import PARTITIONS, KafkaWorld

pytestmark = pytest.mark.integration


class Owner:
    """Knows what it owns, and since when it owns everything."""

    def __init__(self) -> None:
        self.owned: set[int] = set()
        self.lost_any = False
        self.assigned_once = asyncio.Event()
        self.everything = asyncio.Event()

    async def assigned(self, partitions: Sequence[int]) -> None:
        """Own more."""
        self.owned |= set(partitions)
        self.assigned_once.set()
        if len(self.owned) == PARTITIONS:
            self.everything.set()

    async def revoked(self, partitions: Sequence[int]) -> None:
        """Own less."""
        self.owned -= set(partitions)
        self.everything.clear()

    async def lost(self, partitions: Sequence[int]) -> None:
        """Own less."""
        self.owned -= set(partitions)
        self.lost_any = True


async def test_the_partitions_of_a_killed_process_come_over_and_the_others_stay(world: KafkaWorld) -> None:
    """After its session; the survivor's own partitions are never touched."""
    member, owner = world.member(), Owner()
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        str(Path(__file__).with_name("member_process.py")),
        *(world.config.bootstrap, f"{world.topics.prefix}executors", world.topics.requests),
        stdout=asyncio.subprocess.PIPE,
    )
    assert process.stdout is not None
    assert await process.stdout.readline() == b"joined\n"
    async with asyncio.TaskGroup() as group:
        group.create_task(member.run(owner))
        async with asyncio.timeout(30):
            while len(owner.owned) < PARTITIONS // 2:
                owner.assigned_once.clear()
                await owner.assigned_once.wait()
        kept = set(owner.owned)
        process.kill()
        await process.wait()
        async with asyncio.timeout(30):
            await owner.everything.wait()
        assert kept <= owner.owned
        assert not owner.lost_any
        await member.leave()


async def test_a_member_whose_event_loop_stands_still_leaves_the_group(world: KafkaWorld) -> None:
    """Its partitions go elsewhere although its heartbeats would go on; its listener is not asked to drain."""
    settings = MemberSettings(session_s=6.0, heartbeat_s=0.5, stall_s=0.5)
    group_id = f"{world.topics.prefix}executors"
    member, owner = KafkaMembership(world.config, group_id, world.topics.requests, settings), Owner()
    running = asyncio.ensure_future(member.run(owner))
    await asyncio.wait_for(owner.everything.wait(), 30)
    time.sleep(2.0)  # noqa: ASYNC251 - the very thing that must not happen to a loop
    with pytest.raises(MembershipFailed, match="event loop"):
        await running
    assert len(owner.owned) == PARTITIONS


async def test_a_topic_that_does_not_exist_is_an_error_of_run(world: KafkaWorld) -> None:
    """Instead of a member that waits for ever."""
    member = KafkaMembership(world.config, f"{world.topics.prefix}x", "no-such-topic", MemberSettings())
    with pytest.raises(MembershipFailed, match="no-such-topic"):
        await asyncio.wait_for(member.run(Owner()), 30)


async def test_the_next_generation_protocol_is_an_option(world: KafkaWorld) -> None:
    """KIP-848: the broker's assignor and sessions."""
    config = KafkaConfig(world.config.bootstrap, {"group.protocol": "consumer"})
    member, owner = KafkaMembership(config, f"{world.topics.prefix}next", world.topics.requests), Owner()
    async with asyncio.TaskGroup() as group:
        group.create_task(member.run(owner))
        async with asyncio.timeout(30):
            await owner.everything.wait()
        await member.leave()
    assert owner.owned == set()
