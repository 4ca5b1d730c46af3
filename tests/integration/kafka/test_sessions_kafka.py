"""How long the group waits for a silent member, as the brokers have it."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

import pytest
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # re-exported without `as`
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
)

from runfold.adapters.kafka import sessions
from runfold.adapters.kafka.config import KafkaConfig, MemberSettings
from runfold.adapters.kafka.errors import KafkaConfigError, KafkaUnavailable
from runfold.adapters.kafka.sessions import session_s
from tests.contract.worlds import KafkaWorld

pytestmark = pytest.mark.integration
_DEVSTACK_S = 6.0


async def found(world: KafkaWorld, settings: Mapping[str, str], group: str = "nobody-yet") -> float:
    """Ask for a group of this world."""
    config = KafkaConfig(world.config.bootstrap, settings)
    return await session_s(config, f"{world.topics.prefix}{group}", MemberSettings(session_s=11.0))


async def alter_session(world: KafkaWorld, group: str, milliseconds: int) -> None:
    """Give a group a session of its own, as an operator would, and wait until the broker knows it."""
    entry = ConfigEntry("consumer.session.timeout.ms", str(milliseconds), incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ConfigResource.Type.GROUP, f"{world.topics.prefix}{group}", incremental_configs=[entry])
    admin = AdminClient(world.config.admin())
    await asyncio.wrap_future(admin.incremental_alter_configs([resource])[resource])
    async with asyncio.timeout(30):
        while await found(world, {"group.protocol": "consumer"}, group) != milliseconds / 1000:  # noqa: ASYNC110 - asked of the broker
            await asyncio.sleep(0.05)


async def test_with_the_classic_protocol_the_member_decides(world: KafkaWorld) -> None:
    """The operator's setting, or ours."""
    assert await found(world, {}) == 11.0
    assert await found(world, {"session.timeout.ms": "7000"}) == 7.0


async def test_with_the_next_generation_protocol_the_broker_is_asked(world: KafkaWorld) -> None:
    """The group's own setting comes before the brokers'; a group needs no members to be asked about."""
    next_generation = {"group.protocol": "consumer"}
    assert await found(world, next_generation) == _DEVSTACK_S
    await alter_session(world, "slow", 9000)
    assert await found(world, next_generation, "slow") == 9.0
    assert await found(world, {**next_generation, "session.timeout.ms": "9000"}, "slow") == 9.0


async def test_a_session_that_is_not_the_brokers_is_refused(world: KafkaWorld) -> None:
    """Acknowledgements would be held fresh for longer than the group waits; both numbers are named."""
    with pytest.raises(KafkaConfigError, match=r"session\.timeout\.ms is 45000, but .* to 6000"):
        await found(world, {"group.protocol": "consumer", "session.timeout.ms": "45000"})


async def test_a_broker_that_does_not_tell_is_not_guessed_about(
    world: KafkaWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The operator has to say it; what is said is then believed."""
    monkeypatch.setattr(sessions, "_SETTING", "consumer.session.of.another.release")
    with pytest.raises(KafkaConfigError, match=r"does not tell .*or say session\.timeout\.ms"):
        await found(world, {"group.protocol": "consumer"})
    assert await found(world, {"group.protocol": "consumer", "session.timeout.ms": "45000"}) == 45.0


async def test_no_broker_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sessions, "_TIMEOUT_S", 0.5)
    config = KafkaConfig("127.0.0.1:1", {"group.protocol": "consumer"})
    with pytest.raises(KafkaUnavailable):
        await session_s(config, "any", MemberSettings())
