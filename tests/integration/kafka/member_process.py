"""A member of a group as a process of its own: says `joined` when it owns something, and stays until it is killed."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence

from runfold.adapters.kafka.config import KafkaConfig, MemberSettings
from runfold.adapters.kafka.membership import KafkaMembership


class _Saying:
    async def assigned(self, partitions: Sequence[int]) -> None:
        if partitions:
            sys.stdout.write("joined\n")
            sys.stdout.flush()

    async def revoked(self, partitions: Sequence[int]) -> None:
        """Have nothing to drain."""

    async def lost(self, partitions: Sequence[int]) -> None:
        """Have nothing to stop."""


def main(bootstrap: str, group: str, topic: str) -> None:
    """Join and stay."""
    settings = MemberSettings(session_s=6.0, heartbeat_s=0.5)
    asyncio.run(KafkaMembership(KafkaConfig(bootstrap), group, topic, settings).run(_Saying()))


if __name__ == "__main__":
    main(*sys.argv[1:])
